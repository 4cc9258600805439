"""Cold memory: copies of a case's memory that fill the L2 several times, launched in turn by one captured graph."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from harness.bench.gpu_timer import Clock, GpuClock, graph_us
from harness.contract.case import Case
from harness.device.cuda import CudaDevice
from harness.device.cuda_program import CudaProgram, launches_of
from harness.device.device import Outcome
from harness.device.memory import CaseMemory

COLD = 3  # the copies fill at least this many times the L2
MOST_COPIES = 256
LEAST_US = 200.0  # shortest graph, so that the GPU never waits for the host
MOST_CALLS = 512
WARM_IS_FASTER = 0.03  # if one copy alone is faster by at least this share, the copies were cold


def copies_for(nbytes: int, l2_bytes: int) -> int:
    """How many copies evict each other from the L2: two to MOST_COPIES, which is too few for the smallest cases."""
    return min(max(math.ceil(COLD * l2_bytes / max(1, nbytes)) + 1, 2), MOST_COPIES)


def calls_for(copies: int, us: float) -> int:
    """Calls in a graph that takes LEAST_US, the same number on every copy. us: time of one call"""
    wanted = max(copies, min(int(LEAST_US / us) + 1, MOST_CALLS))
    return -(-wanted // copies) * copies


def memories(first: CaseMemory, l2_bytes: int) -> list[CaseMemory]:
    return [first, *(first.twin() for _ in range(copies_for(first.nbytes, l2_bytes) - 1))]


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """A graph and what it calls: a graph knows addresses alone, so the calls keep the memory there alive."""

    graph: Any
    launches: tuple[Callable[[], None], ...]

    def launch(self, stream: Any) -> None:
        self.graph.launch(stream)


def capture(clock: Clock, launches: Sequence[Callable[[], None]], calls: int) -> CapturedGraph:
    """A graph of `calls` calls, cycling through the launches."""
    with clock.stream as stream:
        stream.begin_capture()
        for number in range(calls):
            launches[number % len(launches)]()
        return CapturedGraph(stream.end_capture(), tuple(launches))


def rotate(clock: GpuClock, launches: Sequence[Callable[[], None]]) -> tuple[CapturedGraph, int]:
    """A graph that cycles through these launches for LEAST_US, and its number of calls."""
    count = len(launches)
    calls = calls_for(count, graph_us(clock, capture(clock, launches, count)) / count)
    return capture(clock, launches, calls), calls


class Passes:
    """A graph of one call on each copy, replayed until it takes LEAST_US.

    Only one call writes each copy, so that a skipped call shows as wrong bytes.
    """

    def __init__(self, clock: GpuClock, graph: CapturedGraph, copies: int):
        self._graph = graph
        self.calls = calls_for(copies, graph_us(clock, graph) / copies)
        self._times = self.calls // copies

    def launch(self, stream: Any) -> None:
        for _ in range(self._times):
            self._graph.launch(stream)


class Rotation:
    """A case prepared on each of several copies of its memory. first: on the first of them; our kernels if absent"""

    def __init__(
        self, device: CudaDevice, case: Case, memories: Sequence[CaseMemory], first: CudaProgram | None = None
    ):
        self.l2_bytes = int(device.identity()["l2_bytes"])
        first = first or CudaProgram(launches_of(device, case, device.targets[0]), case, memories[0])
        self.programs = [first, *first.on(memories[1:])]

    def share(self, other: Rotation) -> None:
        """Use the scratch and workspaces of another rotation on the same copies, where they are equally large.

        The addresses of atomics and of decoded operands change the time of the same machine code by up to 3 %.
        """
        for program, its in zip(self.programs, other.programs, strict=True):
            program.share(its)

    @property
    def launches(self) -> list[Callable[[], None]]:
        """The launches on each copy, with libraries loaded."""
        self.programs[0].load_libraries()
        # The graph that is timed next calls them on another stream with the same workspace, and two products of cuBLAS
        # that share it may wait for each other for ever.
        import_module("cupy").cuda.get_current_stream().synchronize()
        return [program.launch for program in self.programs]

    @property
    def filled(self) -> float:
        """How many times all copies fill the L2."""
        return self.programs[0].memory.nbytes * len(self.programs) / self.l2_bytes

    def poison(self, byte: int) -> None:
        for program in self.programs:
            program.poison(byte)

    def outcomes(self, poison: int, order: random.Random) -> list[tuple[str, Outcome]]:
        """The outcomes on the first, the last and a random copy, each with the copy's name."""
        count = len(self.programs)
        numbers = sorted({0, order.randrange(count), count - 1})
        return [(f"copy {number + 1} of {count}", self.programs[number].outcome(poison)) for number in numbers]

    def coldness(self, clock: GpuClock, calls: int, us: float) -> str:
        """Text that says whether the timed calls read from memory and not from the L2.

        Shown by timing one copy alone, unless that fills the L2. calls: calls in the graph; us: time of one call
        """
        one, filled = self.programs[0].memory.nbytes, self.filled
        size = f"{len(self.programs)} copies fill {filled:.1f}x L2"
        if filled < COLD:
            return f"warm: {size}"
        if one > self.l2_bytes:
            return f"cold: {size}, one alone more than all of it"
        alone = graph_us(clock, capture(clock, self.launches[:1], calls)) / calls
        if alone * (1 + WARM_IS_FASTER) < us:
            return f"cold: {size}; {alone:.2f} us on one copy alone"
        return f"cold by construction, not shown: {size}; one copy alone takes {alone:.2f} us, as long"
