"""A case of a contest on a GPU, ready to be timed: its inputs, the expected outputs, and copies of its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidence.peers.implementations import Setup
from harness.bench.cold_copies import memories
from harness.bench.gpu_timer import GpuClock
from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Interval, inside
from harness.device.cuda import CudaDevice
from harness.device.memory import CaseMemory
from harness.expected.expected import oracle_of
from harness.expected.torch_calls import from_torch, to_torch
from harness.inputs.draw import make
from harness.oracles import gemm_operands, nvfp4, quantizer
from harness.subjects.handover import tensor
from harness.suite.suite import find_case


@dataclass(frozen=True)
class PreparedCase:
    """One case, ready to run.

    fields: its outputs; inputs, expected: torch tensors on the GPU, by name; a product's expected outputs are intervals
    """

    setup: Setup
    fields: dict[str, Field]
    inputs: dict[str, Any]
    expected: dict[str, Any]

    @property
    def layouts(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {
            name: (str(value.dtype).removeprefix("torch."), tuple(value.shape)) for name, value in self.inputs.items()
        }

    @property
    def bounded(self) -> bool:
        return any(isinstance(value, Interval) for value in self.expected.values())

    def wrong(self, name: str) -> int:
        """Count the wrong bytes of an output of the first copy, or its entries out of bounds."""
        expected = self.expected[name]
        if not isinstance(expected, Interval):
            return int((self._written(name) != _bytes(expected)).sum())
        ends = (_bytes_of_cupy(end) for end in (expected.low, expected.high))
        return int((~inside(self._memory.outputs[name].payload, *ends, expected.low.itemsize)).sum())

    def describe(self, name: str, wrong: int) -> str:
        expected = self.expected[name]
        if not isinstance(expected, Interval):
            return f"{name}: {wrong:,} bytes"
        right = (expected.low.double() + expected.high.double()) / 2
        error = self._written(name).view(expected.low.dtype).view(right.shape) - right
        relative = float(error.norm() / right.norm())
        return f"{name}: {wrong:,} of {right.numel():,} entries beyond the bound of fp32 sums, L2 error {relative:.1e}"

    def unwritten(self, name: str, poison: int) -> bool:
        return bool((self._written(name) == poison).all())

    def on_host(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
        written = {
            name: self._memory.outputs[name].payload.get().view(field.dtype).reshape(field.shape)
            for name, field in self.fields.items()
        }
        inputs, expected = (
            {name: from_torch(value) for name, value in each.items()} for each in (self.inputs, self.expected)
        )
        return inputs, expected, written

    def trespass(self, poison: int) -> str:
        """The first write outside the outputs, as text; empty if there is none."""
        return self._memory.trespass(poison)

    @property
    def _memory(self) -> CaseMemory:
        return self.setup.memories[0]

    def _written(self, name: str) -> Any:
        return tensor(self._memory.outputs[name].payload)


def _lines(case: Case) -> int:
    """How many rows of the input a case takes; a GEMM takes B's rows below A's."""
    return case.rows + case.problem.n if case.is_gemm else case.rows


class CasePreparer:
    """Prepares cases on corners of one input that is large enough for all `cases`."""

    def __init__(self, device: CudaDevice, clock: GpuClock, cases: Sequence[Case]):
        self._device, self._clock = device, clock
        rows, cols = max(map(_lines, cases)), max(case.cols for case in cases)
        first = cases[0]
        self._x = to_torch(make(first.input, rows, cols, str(first.flags.dtype), first.seed)).to("cuda")

    def prepare(self, case: Case) -> PreparedCase:
        """Prepare the case on more copies of its memory than the L2 holds."""
        import torch

        inputs = given(case, self._x[: _lines(case), : case.cols].contiguous())
        oracle = oracle_of(case.recipe)
        expected = {
            name: value.bounds if isinstance(value, Interval) else value.contiguous()
            for name, value in oracle.torch_oracle(case, inputs).items()
        }
        fields = oracle.outputs(case)
        torch.cuda.synchronize()
        first = CaseMemory({name: _bytes_of_cupy(value) for name, value in inputs.items()}, fields)
        copies = memories(first, int(self._device.identity()["l2_bytes"]))
        torch.cuda.synchronize()
        return PreparedCase(Setup(self._device, self._clock, case, copies), fields, inputs, expected)


def given(case: Case, x: Any) -> dict[str, Any]:
    """The inputs of a case as torch tensors, as from its oracle's `inputs`; but a rotated copy's amax is plain `x`'s.

    x: (rows, cols); for a GEMM, A with B below it, both rowwise and with a single amax
    """
    if case.is_gemm:
        return _operand("a", x[: case.rows]) | _operand("b", x[case.rows :])
    found = {"input": x}
    if case.flags.get("stage") == "encode":
        amax = x.abs().max().float().reshape(1)
        found |= {f"{direction.name}_amax": amax.clone() for direction in quantizer.directions(case)}
    return found


def _operand(name: str, x: Any) -> dict[str, Any]:
    """Quantize `x`, padded with zero rows to whole blocks."""
    from torch.nn.functional import pad

    whole = pad(x, (0, 0, 0, -len(x) % nvfp4.BLOCK))
    rows, cols = whole.shape
    case = find_case(f"per_tensor/outputs=rowwise/{rows}x{cols}/normal/eager")
    made = oracle_of(case.recipe).torch_oracle(case, {"input": whole})
    made["rowwise_data"] = made["rowwise_data"][: len(x)]
    return {f"{name}_{part}": made[f"rowwise_{part}"].contiguous() for part in gemm_operands.PARTS}


def _bytes(value: Any) -> Any:
    import torch

    return value.view(torch.uint8).reshape(-1)


def _bytes_of_cupy(value: Any) -> Any:
    import cupy

    return cupy.asarray(_bytes(value.contiguous()))
