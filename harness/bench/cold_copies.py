"""A case launched time after time on memory that the L2 has let go of: its copies in turn, captured into one graph."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from harness.bench.gpu_timer import GpuClock, graph_us
from harness.contract.case import Case
from harness.device.cuda import CudaDevice, CudaProgram
from harness.device.device import Outcome
from harness.device.memory import Memory

COLD = 3  # times the L2, that the copies fill at least
MOST_COPIES = 256
LEAST_US = 200.0  # that a graph takes, so that the GPU never waits for the host
MOST_CALLS = 512
WARM_IS_FASTER = 0.03  # by this much a case on one copy alone is faster, if the copies were cold


def copies_for(nbytes: int, l2_bytes: int) -> int:
    """So many copies of so many bytes that none of them is left in the L2 when its turn comes again.

    At least two, and MOST_COPIES at most, which is not enough for the smallest cases.
    """
    return min(max(math.ceil(COLD * l2_bytes / max(1, nbytes)) + 1, 2), MOST_COPIES)


def calls_for(copies: int, us: float) -> int:
    """How many calls a graph has: of every copy as many, and LEAST_US of them, given the time of one."""
    wanted = max(copies, min(int(LEAST_US / us) + 1, MOST_CALLS))
    return -(-wanted // copies) * copies


def memories(first: Memory, l2_bytes: int) -> list[Memory]:
    """A case's memory and its copies."""
    return [first, *(first.twin() for _ in range(copies_for(first.nbytes, l2_bytes) - 1))]


def capture(clock: GpuClock, launches: Sequence[Callable[[], None]], calls: int) -> Any:
    """A graph of so many calls, one of the launches after the other and again from the first."""
    with clock.stream as stream:
        stream.begin_capture()
        for number in range(calls):
            launches[number % len(launches)]()
        return stream.end_capture()


def rotate(clock: GpuClock, launches: Sequence[Callable[[], None]]) -> tuple[Any, int]:
    """A graph of these launches in turn that takes LEAST_US, and how many calls that are."""
    count = len(launches)
    calls = calls_for(count, graph_us(clock, capture(clock, launches, count)) / count)
    return capture(clock, launches, calls), calls


class Passes:
    """A graph of one call on each copy, replayed until it takes LEAST_US.

    One call is all that ever writes a copy in it, so that a call left out is a copy without the right bytes.
    """

    def __init__(self, clock: GpuClock, graph: Any, copies: int):
        self._graph = graph
        self.calls = calls_for(copies, graph_us(clock, graph) / copies)
        self._times = self.calls // copies

    def launch(self, stream: Any) -> None:
        """All of it on this stream."""
        for _ in range(self._times):
            self._graph.launch(stream)


class Rotation:
    """One side of a case on each of some memories."""

    def __init__(self, device: CudaDevice, case: Case, memories: Sequence[Memory]):
        self.l2_bytes = int(device.identity()["l2_bytes"])
        self.programs = [CudaProgram(device, case, device.targets[0], memory) for memory in memories]

    @property
    def launches(self) -> list[Callable[[], None]]:
        """Of every copy. What libraries load at their first call is loaded."""
        self.programs[0].load_libraries()
        return [program.launch for program in self.programs]

    def poison(self, byte: int) -> None:
        """Fill every output of every copy on the current stream."""
        for program in self.programs:
            program.poison(byte)

    def outcomes(self, poison: int, order: random.Random) -> list[tuple[str, Outcome]]:
        """What the first copy, the last and one between hold, given the byte all outputs were filled with before.

        Each with words for which copy it is.
        """
        count = len(self.programs)
        numbers = sorted({0, order.randrange(count), count - 1})
        return [(f"copy {number + 1} of {count}", self.programs[number].outcome(poison)) for number in numbers]

    def coldness(self, clock: GpuClock, calls: int, us: float) -> str:
        """Whether what was timed came from memory and not from the L2, in words.

        calls, us: of the graph, and of one call. Shown by an A/B with one copy alone, unless that is more than the L2.
        """
        one = self.programs[0].memory.nbytes
        filled = one * len(self.programs) / self.l2_bytes
        size = f"{len(self.programs)} copies fill {filled:.1f}x L2"
        if filled < COLD:
            return f"warm: {size}"
        if one > self.l2_bytes:
            return f"cold: {size}, one alone more than all of it"
        alone = graph_us(clock, capture(clock, self.launches[:1], calls)) / calls
        if alone * (1 + WARM_IS_FASTER) < us:
            return f"cold: {size}; {alone:.2f} us on one copy alone"
        return f"cold by construction, not shown: {size}; one copy alone takes {alone:.2f} us, as long"
