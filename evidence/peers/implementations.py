"""The implementations in a contest: our launches and a peer's calls, on the same inputs, eagerly and as graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from harness.bench.cold_copies import Rotation, calls_for, rotate
from harness.bench.gpu_timer import GpuClock, graph_us
from harness.bench.rounds import TimedGraph
from harness.contract.case import Case
from harness.device.cuda import CudaDevice
from harness.device.cuda_code import cuda_errors
from harness.device.memory import CaseMemory
from harness.subjects import handover, streams
from harness.subjects.handover import tensor
from harness.subjects.subject import Subject


class Implementation(Protocol):
    """Our kernels or a peer. Everything is queued on the current stream."""

    def launch(self) -> None:
        """Run once, on the first copy of the memory."""

    def graph(self) -> TimedGraph:
        """Capture calls that cycle through all copies."""

    def deliver(self) -> None:
        """Copy the results of the last launch, or of the graph's first call, to the outputs of the first copy."""

    def poison(self, byte: int) -> None:
        """Fill all memory that is written."""


@dataclass(frozen=True)
class Setup:
    """Device, clock and memory of a contest. memories: copies of a case's memory, together larger than the L2"""

    device: CudaDevice
    clock: GpuClock
    case: Case
    memories: Sequence[CaseMemory]

    @contextmanager
    def stream(self) -> Iterator[Any]:
        """Make the clock's stream current in CuPy and torch, and synchronize it at the end."""
        with cuda_errors(self.case.id), streams.current(self.clock.stream) as stream:
            yield stream
            stream.synchronize()


class OurKernels:
    def __init__(self, setup: Setup):
        self._clock = setup.clock
        self._rotation = Rotation(setup.device, setup.case, setup.memories)
        self.program = self._rotation.programs[0]
        self.launch = self.program.launch

    def graph(self) -> TimedGraph:
        return TimedGraph(*rotate(self._clock, self._rotation.launches))

    def deliver(self) -> None:
        """Do nothing: our kernels write to the outputs themselves."""

    def poison(self, byte: int) -> None:
        self._rotation.poison(byte)


class Peer:
    """A subject. If its module has a function `call`, only that is timed, and its results stay where it writes them.

    The inputs of `call` are those of the case, converted before timing by `prepare` if the module has that.
    """

    def __init__(self, setup: Setup, subject: Subject, layouts: Mapping[str, tuple[str, tuple[int, ...]]]):
        self._clock, self._case, self._memories = setup.clock, setup.case, setup.memories
        self._outputs = [
            {name: view(found.payload, found.field.dtype, found.field.shape) for name, found in memory.outputs.items()}
            for memory in setup.memories
        ]
        inputs = [
            {name: view(array, *layouts[name]) for name, array in memory.inputs.items()} for memory in setup.memories
        ]
        module = sys.modules.get(subject.quantize.__module__)
        call, prepare = getattr(module, "call", None), getattr(module, "prepare", None)
        self._found: list[Mapping[str, Any]] = []  # the results of each call
        self._launches: list[Callable[[], None]]
        if call:
            given = [{name: tensor(array) for name, array in each.items()} for each in inputs]
            if prepare:
                with setup.stream():
                    given = [prepare(setup.case, each) for each in given]
            self._launches = [partial(self._kept, call, each) for each in given]
        else:
            self._launches = [
                partial(subject.quantize, setup.case, *both) for both in zip(inputs, self._outputs, strict=True)
            ]

    def launch(self) -> None:
        self._found.clear()
        self._launches[0]()

    def graph(self) -> TimedGraph:
        """Capture calls that each allocate their results, so that these are written to cold memory, too."""
        count = len(self._launches)
        graph = self._captured(count)
        calls = calls_for(count, graph_us(self._clock, graph) / count)
        return TimedGraph(graph if calls == count else self._captured(calls), calls)

    def deliver(self) -> None:
        if self._found:
            handover.deliver(self._case, self._found[0], self._outputs[0])

    def poison(self, byte: int) -> None:
        import torch

        for memory in self._memories:
            for guarded in memory.outputs.values():
                guarded.poison(byte)
        for found in self._found:
            for name, value in found.items():
                if not name.endswith("_amax"):  # an amax may be an input
                    value.view(torch.uint8).fill_(byte)

    def _kept(self, call: handover.Call, given: Mapping[str, Any]) -> None:
        self._found.append(call(self._case, given))

    def _captured(self, calls: int) -> streams.Graph:
        self._found.clear()
        return streams.Graph(self._clock.stream, [self._launches[n % len(self._launches)] for n in range(calls)])


def view(array: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """View CuPy bytes as an array of this dtype and shape; bf16, which CuPy lacks, as uint16."""
    return array.view(np.dtype("uint16" if dtype == "bfloat16" else dtype)).reshape(shape)
