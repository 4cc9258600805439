"""What a contest needs on a GPU before anybody is timed: an input, what the oracle demands of it, and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.case import Case
from harness.clock import GpuClock
from harness.device.cuda import CudaDevice
from harness.device.memory import Memory
from harness.device.rotation import memories
from harness.expectation import from_torch, oracle_of, to_torch
from harness.inputs import make
from harness.oracles import quantizer
from harness.peers.sides import Place
from harness.tensor import Field


@dataclass(frozen=True)
class Ground:
    """One case, ready. fields: what it writes; inputs, demanded: torch tensors on the GPU, by name"""

    place: Place
    fields: dict[str, Field]
    inputs: dict[str, Any]
    demanded: dict[str, Any]

    @property
    def layouts(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """(dtype, shape) of every input."""
        return {name: (str(value.dtype).removeprefix("torch."), tuple(value.shape)) for name, value in self.inputs.items()}

    def wrong(self, name: str) -> int:
        """How many bytes of an output of the first copy are not the demanded ones."""
        return int((self._written(name) != _bytes(self.demanded[name])).sum())

    def untouched(self, name: str, poison: int) -> bool:
        """Whether all of an output is what it was filled with."""
        return bool((self._written(name) == poison).all())

    def on_host(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Inputs, demanded and written arrays of NumPy."""
        written = {
            name: self._memory.outputs[name].payload.get().view(field.dtype).reshape(field.shape)
            for name, field in self.fields.items()
        }
        inputs, demanded = ({name: from_torch(value) for name, value in each.items()} for each in self._both())
        return inputs, demanded, written

    @property
    def _memory(self) -> Memory:
        return self.place.memories[0]

    def _both(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.inputs, self.demanded

    def _written(self, name: str) -> Any:
        import torch

        return torch.as_tensor(self._memory.outputs[name].payload, device="cuda")


class Grounds:
    """Prepares cases one after the other; those of one shape share their input."""

    def __init__(self, device: CudaDevice, clock: GpuClock):
        self._device, self._clock = device, clock
        self._input: tuple[tuple[object, ...], Any] = ((), None)

    def prepare(self, case: Case) -> Ground:
        """The case on as many copies of its memory as the L2 cannot hold."""
        import torch

        inputs = given(case, self._drawn(case))
        oracle = oracle_of(case.recipe)
        demanded = {name: value.contiguous() for name, value in oracle.torch_oracle(case, inputs).items()}
        torch.cuda.synchronize()
        fields = oracle.outputs(case)
        first = Memory({name: _bytes_of_cupy(value) for name, value in inputs.items()}, fields)
        copies = memories(first, int(self._device.identity()["l2_bytes"]))
        torch.cuda.synchronize()
        return Ground(Place(self._device, self._clock, case, copies), fields, inputs, demanded)

    def _drawn(self, case: Case) -> Any:
        key = (case.rows, case.cols, case.input, case.flags.dtype, case.seed)
        if self._input[0] != key:
            self._input = ((), None)
            x = make(case.input, case.rows, case.cols, str(case.flags.dtype), case.seed)
            self._input = (key, to_torch(x).to("cuda"))
        return self._input[1]


def given(case: Case, x: Any) -> dict[str, Any]:
    """What a case reads, as its oracle's `inputs` has it for a tensor of torch; not of a rotated column's amax."""
    found = {"input": x}
    if case.flags.get("stage") == "encode":
        amax = x.abs().max().float().reshape(1)
        found |= {f"{direction.name}_amax": amax.clone() for direction in quantizer.directions(case)}
    return found


def _bytes(value: Any) -> Any:
    import torch

    return value.view(torch.uint8).reshape(-1)


def _bytes_of_cupy(value: Any) -> Any:
    import cupy

    return cupy.asarray(_bytes(value.contiguous()))


