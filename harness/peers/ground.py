"""What a contest needs on a GPU before anybody is timed: an input, what the oracle demands of it, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.bench.cold_copies import memories
from harness.bench.gpu_timer import GpuClock
from harness.case import Case
from harness.device.cuda import CudaDevice
from harness.device.memory import Memory
from harness.expectation import from_torch, oracle_of, to_torch
from harness.inputs import make
from harness.interval import Interval, inside
from harness.oracles import gemm_operands, nvfp4, quantizer
from harness.peers.sides import Place
from harness.subjects.handover import tensor
from harness.suite import find_case
from harness.tensor import Field


@dataclass(frozen=True)
class Ground:
    """One case, ready.

    fields: what it writes; inputs, demanded: torch tensors on the GPU, by name; of a product, demanded are intervals
    """

    place: Place
    fields: dict[str, Field]
    inputs: dict[str, Any]
    demanded: dict[str, Any]

    @property
    def layouts(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """(dtype, shape) of every input."""
        return {
            name: (str(value.dtype).removeprefix("torch."), tuple(value.shape)) for name, value in self.inputs.items()
        }

    @property
    def bounded(self) -> bool:
        """Whether values are demanded to lie between others, and not bytes."""
        return any(isinstance(value, Interval) for value in self.demanded.values())

    def wrong(self, name: str) -> int:
        """How many bytes of an output of the first copy are not the demanded ones, or entries not within bounds."""
        demanded = self.demanded[name]
        if not isinstance(demanded, Interval):
            return int((self._written(name) != _bytes(demanded)).sum())
        ends = (_bytes_of_cupy(end) for end in (demanded.low, demanded.high))
        return int((~inside(self._memory.outputs[name].payload, *ends, demanded.low.itemsize)).sum())

    def words(self, name: str, wrong: int) -> str:
        """What a table says of an output of which so much is wrong."""
        demanded = self.demanded[name]
        if not isinstance(demanded, Interval):
            return f"{name}: {wrong:,} bytes"
        right = (demanded.low.double() + demanded.high.double()) / 2
        error = self._written(name).view(demanded.low.dtype).view(right.shape) - right
        relative = float(error.norm() / right.norm())
        return f"{name}: {wrong:,} of {right.numel():,} entries beyond the bound of fp32 sums, L2 error {relative:.1e}"

    def untouched(self, name: str, poison: int) -> bool:
        """Whether all of an output is what it was filled with."""
        return bool((self._written(name) == poison).all())

    def on_host(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Inputs, demanded and written arrays of NumPy."""
        written = {
            name: self._memory.outputs[name].payload.get().view(field.dtype).reshape(field.shape)
            for name, field in self.fields.items()
        }
        inputs, demanded = (
            {name: from_torch(value) for name, value in each.items()} for each in (self.inputs, self.demanded)
        )
        return inputs, demanded, written

    def trespass(self, poison: int) -> str:
        """What was written beside the outputs or into inputs."""
        return self._memory.trespass(poison)

    @property
    def _memory(self) -> Memory:
        return self.place.memories[0]

    def _written(self, name: str) -> Any:
        return tensor(self._memory.outputs[name].payload)


class Grounds:
    """Prepares cases one after the other on corners of one input, that of the largest of `cases`."""

    def __init__(self, device: CudaDevice, clock: GpuClock, cases: Sequence[Case]):
        self._device, self._clock = device, clock
        rows, cols = max(case.rows + case.n for case in cases), max(case.cols for case in cases)
        first = cases[0]
        self._x = to_torch(make(first.input, rows, cols, str(first.flags.dtype), first.seed)).to("cuda")

    def prepare(self, case: Case) -> Ground:
        """The case on as many copies of its memory as the L2 cannot hold."""
        import torch

        inputs = given(case, self._x[: case.rows + case.n, : case.cols].contiguous())
        oracle = oracle_of(case.recipe)
        demanded = {
            name: value.bounds if isinstance(value, Interval) else value.contiguous()
            for name, value in oracle.torch_oracle(case, inputs).items()
        }
        fields = oracle.outputs(case)
        torch.cuda.synchronize()
        first = Memory({name: _bytes_of_cupy(value) for name, value in inputs.items()}, fields)
        copies = memories(first, int(self._device.identity()["l2_bytes"]))
        torch.cuda.synchronize()
        return Ground(Place(self._device, self._clock, case, copies), fields, inputs, demanded)


def given(case: Case, x: Any) -> dict[str, Any]:
    """What a case reads, as its oracle's `inputs` has it for a tensor of torch; not of a rotated column's amax.

    x: (rows, cols); of a GEMM, its A with its B below, of which both are read rowwise and have one amax
    """
    if case.n:
        return _operand("a", x[: case.rows]) | _operand("b", x[case.rows :])
    found = {"input": x}
    if case.flags.get("stage") == "encode":
        amax = x.abs().max().float().reshape(1)
        found |= {f"{direction.name}_amax": amax.clone() for direction in quantizer.directions(case)}
    return found


def _operand(name: str, x: Any) -> dict[str, Any]:
    """`x` quantized; where it is some rows of a larger tensor, the others are zero."""
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
