"""What the oracles demand of a case: its inputs, its fields, and the bytes two independent witnesses agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module

import ml_dtypes
import numpy as np

from harness import operands
from harness.case import Case
from harness.errors import ContractError, NotCapable
from harness.grouped import MOST_TENSORS
from harness.inputs import DTYPES, make
from harness.tensor import Field

NUMPY_LARGEST = 1 << 26  # of `Case.work`; beyond, the NumPy oracle takes minutes and torch alone is asked
NUMPY_LARGEST_TIMED = 1 << 22  # the same in a timed run, which lasts as long as a GPU is held


@dataclass(frozen=True)
class Expectation:
    """What a case reads and must write.

    inputs: arrays by kernel parameter; fields: what is written; values: the demanded bytes; witnesses: who was asked
    disagreement: a sentence if the witnesses differ, in which case nothing can be judged
    """

    inputs: dict[str, np.ndarray]
    fields: dict[str, Field]
    values: dict[str, np.ndarray]
    witnesses: tuple[str, ...]
    disagreement: str = ""


def oracle_of(recipe: str):
    """The oracle module of a recipe's stem."""
    return import_module(f"harness.oracles.{recipe}")


def expect(case: Case, torch_device: str = "cpu", numpy_largest: int = NUMPY_LARGEST) -> Expectation:
    """Ask both oracles, or torch alone if the case is more `work` than `numpy_largest`.

    Cases that differ only in their mode share one answer.
    """
    return _expect(replace(case, mode="eager"), torch_device, numpy_largest)


def make_inputs(case: Case) -> dict[str, np.ndarray]:
    """The arrays that the case's kernels read, by parameter; kept for `expect` to find."""
    return _inputs(replace(case, mode="eager"))


@lru_cache(maxsize=1)
def _inputs(case: Case) -> dict[str, np.ndarray]:
    return oracle_of(case.recipe).inputs(case, **high_precision(case))


def high_precision(case: Case) -> dict[str, np.ndarray]:
    """What the case quantizes, by the names an oracle's `inputs` takes it.

    x: (rows, cols); of a group (elements,), every tensor drawn with its own extents and the seed plus its number
    act_input: in the same shape, only of a case with an activation: what went into it
    a, b, c, bias: of a GEMM, see `harness.operands`
    """
    if case.n:
        return operands.draw(case)
    made = {"x": _draw(case, case.seed)}
    if case.flags.get("activation", "none") != "none":
        # Beyond the seeds of the tensors themselves, so that no gradient is its own activation's input.
        made["act_input"] = _draw(case, case.seed + MOST_TENSORS)
    return made


def _draw(case: Case, seed: int) -> np.ndarray:
    dtype = str(case.flags.get("dtype", "bf16"))
    if not case.tensors:
        return make(case.input, case.rows, case.cols, dtype, seed)
    flat = np.empty(case.elements, DTYPES[dtype])
    offsets = case.grouped.tensor_offsets
    for number, (rows, cols) in enumerate(case.tensors):
        if rows and cols:
            part = make(case.input, rows, cols, dtype, seed + number)
            flat[offsets[number] : offsets[number + 1]] = part.reshape(-1)
    return flat


def _require_parts(case: Case, fields: Mapping[str, Field]) -> None:
    for name, field in fields.items():
        if len(field.parts) != len(case.tensors):
            raise ContractError(
                f"{case.recipe}: field {name} has {len(field.parts)} parts; must be one for each of the "
                f"{len(case.tensors)} tensors of a group"
            )


@lru_cache(maxsize=1)
def _expect(case: Case, torch_device: str, numpy_largest: int) -> Expectation:
    oracle = oracle_of(case.recipe)
    fields = oracle.outputs(case)
    _require_parts(case, fields)
    inputs = _inputs(case)
    answers = {}
    if case.work <= numpy_largest:
        answers["numpy"] = oracle.numpy_oracle(case, inputs)
    answers["torch"] = _ask_torch(oracle, case, inputs, torch_device)
    values = answers.get("numpy", answers["torch"])
    disagreement = _disagreement(case, values, answers["torch"])
    return Expectation(inputs, fields, values, tuple(answers), disagreement)


def _ask_torch(oracle, case: Case, inputs: dict[str, np.ndarray], device: str) -> dict[str, np.ndarray]:
    try:
        import torch
    except ImportError:
        raise NotCapable(
            "capability: torch is not installed, so there is no second oracle; `pip install torch`"
        ) from None
    tensors = {name: _to_torch(value, torch).to(device) for name, value in inputs.items()}
    return {name: _from_torch(value.cpu(), torch) for name, value in oracle.torch_oracle(case, tensors).items()}


def _to_torch(array: np.ndarray, torch):
    # torch reads no ml_dtypes array, so bf16 goes by its bits.
    array = np.ascontiguousarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _from_torch(tensor, torch) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _disagreement(case: Case, numpy_values: dict[str, np.ndarray], torch_values: dict[str, np.ndarray]) -> str:
    for name, value in numpy_values.items():
        other = torch_values[name]
        if value.dtype.name != other.dtype.name or value.shape != other.shape:
            return f"the oracles disagree on {name}: numpy {value.dtype}{value.shape}, torch {other.dtype}{other.shape}"
        differing = np.flatnonzero(value.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8))
        if differing.size:
            return f"the oracles disagree on {differing.size} bytes of {name}, first at byte {differing[0]}"
    return ""
