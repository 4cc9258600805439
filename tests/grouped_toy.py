"""A grouped recipe that only tests know: suite, kernel and oracle, each as small as can be.

The oracle asks the dense recipe of every tensor. The kernel does the amax stage alone; what else a case may ask of the
oracle is for tests without a kernel.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from harness import files
from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.problem import Dense
from harness.errors import ContractError
from harness.expected.expected import oracle_of
from harness.files import KERNELS
from harness.suite.suite import Suite, load_suite

SUITE = """\
recipe: toy_group
contract: NUMERICS 8

axes:
  recipe: [per_tensor, local_1x64]
  shape_representation: [varying_first_dim, same_both_dims, varying_last_dim, varying_both_dims]
  outputs: [rowwise, both]
  rounding: [rne, sr]
  scale_layout: [compact, swizzled]
  stage: [amax, full, encode]

exclude:
  - when: {recipe: local_1x64, shape_representation: varying_both_dims}
    because: a reason of the test's own

launches:
  - kernel: toy_group_amax

sets:
  smoke:
    - cover: product
      axes: {shape_representation: varying_first_dim, others: default}
      shapes: [128+0+256x512, 3*128x64]
      inputs: [normal]
    - cover: product
      axes: {shape_representation: varying_both_dims, others: default}
      shapes: [128+0+256x512+128+256]
      inputs: [ties]
  full:
    - axes:
        recipe: [per_tensor, local_1x64]
        shape_representation: [same_both_dims, varying_first_dim]
        others: default
      shapes: [2*128x64]
      inputs: [normal]
  bench:
    - axes: default
      shapes: [8*128x64]
      inputs: [normal]
"""

KERNEL = """\
#include "numerics/types.cuh"
#include "scheduler/launch.cuh"

constexpr int kToyThreads = 64;

__global__ void __launch_bounds__(kToyThreads) toy_group_amax(
    const unsigned short* __restrict__ input,  // (elements,) bf16
    const i64* __restrict__ tensor_offsets,    // (num_tensors + 1,)
    const i64* __restrict__ first_dims,        // (num_tensors,)
    const i64* __restrict__ last_dims,         // (num_tensors,)
    float* __restrict__ rowwise_amax,          // (num_tensors,)
    int num_tensors, i64 rows, i64 cols) {
  __shared__ unsigned largest[kToyThreads];
  for (int tensor = blockIdx.x; tensor < num_tensors; tensor += gridDim.x) {
    const i64 start = tensor_offsets[tensor];
    const i64 size = first_dims[tensor] * last_dims[tensor];
    unsigned bits = 0;
    for (i64 i = threadIdx.x; i < size; i += kToyThreads) {
      const unsigned magnitude = (input[start + i] & 0x7FFFu) << 16;
      bits = magnitude > bits ? magnitude : bits;
    }
    largest[threadIdx.x] = bits;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < kToyThreads; ++i) bits = largest[i] > bits ? largest[i] : bits;
      rowwise_amax[tensor] = tensor_offsets[num_tensors] == rows * cols ? __uint_as_float(bits) : -1.0f;
    }
    __syncthreads();
  }
}

__constant__ Launch toy_group_amax_launch = {128, 128, kToyThreads, 1, Schedule::persistent};
"""


def fields(case: Case) -> dict[str, Field]:
    """The dense recipe's fields for each tensor, joined; an empty tensor has an amax and no other bytes."""
    made = [dense_fields(case, number) for number in range(len(case.problem.tensors))]
    return {name: Field.joined([tensor[name] for tensor in made]) for name in made[0]}


def dense_fields(case: Case, number: int) -> dict[str, Field]:
    """The fields of one tensor."""
    dense = case.part(number)
    if dense.elements:
        return oracle_of(dense.recipe).outputs(dense)
    some = oracle_of(dense.recipe).outputs(Case(dense.recipe, dense.flags, Dense(128, 128)))
    return {name: field if name.endswith("amax") else Field((0, 0), field.dtype) for name, field in some.items()}


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """The elements, and where each tensor starts and how far it goes; for stage=encode the amaxes."""
    group = case.problem.group
    given = {"tensor_offsets": group.tensor_offsets, "first_dims": group.first_dims, "last_dims": group.last_dims}
    if case.flags.stage == "encode":
        flags = case.flags.replace(stage="amax", scale_layout="compact", rounding="rne")
        given |= numpy_oracle(replace(case, flags=flags), {"input": x})
    return {"input": x, **given}


def inputs_of(case: Case, tensors: dict, number: int) -> dict:
    """One tensor's elements, (rows, cols), and its amaxes if any are given."""
    rows, cols = case.problem.tensors[number]
    start = case.problem.group.tensor_offsets[number]
    amaxes = {name: tensors[name][number : number + 1] for name in tensors if name.endswith("amax")}
    return {"input": tensors["input"][start : start + rows * cols].reshape(rows, cols), **amaxes}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor alone, by the NumPy oracle of its recipe."""
    return _asked(case, tensors, "numpy_oracle", np.concatenate, np.zeros)


def torch_oracle(case: Case, tensors: dict) -> dict:
    """Every tensor alone, by the torch oracle of its recipe."""
    import torch

    def zeros(count: int, dtype: str) -> torch.Tensor:
        return torch.zeros(count, dtype=getattr(torch, dtype))

    return _asked(case, tensors, "torch_oracle", torch.cat, zeros)


def _asked(case: Case, tensors: dict, who: str, join: Callable, zeros: Callable) -> dict:
    written = {name: [] for name in fields(case)}
    for number in range(len(case.problem.tensors)):
        dense, own = case.part(number), dense_fields(case, number)
        given = inputs_of(case, tensors, number)
        said = getattr(oracle_of(dense.recipe), who)(dense, given) if dense.elements else {}
        for name, field in own.items():
            written[name].append(said[name].reshape(-1) if name in said else zeros(field.size, field.dtype))
    return {name: join(parts) for name, parts in written.items()}


def module() -> ModuleType:
    """The oracle, as `harness.oracles.toy_group` would be."""
    made = ModuleType("harness.oracles.toy_group")
    made.outputs, made.inputs, made.inputs_of = fields, inputs, inputs_of
    made.numpy_oracle, made.torch_oracle = numpy_oracle, torch_oracle
    return made


class Toy:
    """The recipe, installed for one test. kernels: a folder with its `.cu`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.path = folder / "suites" / "toy_group.yaml"
        self.path.parent.mkdir()
        self.path.write_text(SUITE)
        self.kernels = shutil.copytree(KERNELS, folder / "kernels")
        (self.kernels / "toy_group.cu").write_text(KERNEL)
        for suite in files.SUITES.glob("*.yaml"):
            (self.path.parent / suite.name).symlink_to(suite)
        monkeypatch.setattr(files, "SUITES", self.path.parent)
        monkeypatch.setitem(sys.modules, "harness.oracles.toy_group", module())

    @property
    def suite(self) -> Suite:
        """The suite as it is on disk now."""
        return load_suite(self.path)

    def edit(self, old: str, new: str) -> None:
        """Replace a text of the suite, which must be there."""
        _edit(self.path, old, new)

    def edit_kernel(self, old: str, new: str) -> None:
        """Replace a text of the kernel, which must be there."""
        _edit(self.kernels / "toy_group.cu", old, new)

    def case(self, shape: str = "128+0+256x512", input_name: str = "normal", **flags: object) -> Case:
        """A case by its id, the flags at their defaults but for `flags`."""
        changed = ",".join(f"{name}={value}" for name, value in flags.items()) or "default"
        return self.suite.find(f"toy_group/{changed}/{shape}/{input_name}/eager")


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if old not in text:
        raise ContractError(f"{path.name} holds no {old!r}")
    path.write_text(text.replace(old, new, 1))
