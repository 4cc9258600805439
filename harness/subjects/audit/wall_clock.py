"""A lower bound on a subject's times by our own clock, because its process reports the times itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from harness.subjects.audit.violations import Finding, Violation

PASS = 1e-2  # seconds that a bounding pass should last if memory allows, so that the overhead around it is small
MOST_CALLS = 4096  # calls of a pass
ROUNDS = 5
AROUND = 2e-4  # seconds for starting a graph and noticing its end; a Python process takes as long to wake
MOST_AROUND = 7e-4  # seconds; a larger overhead is not accepted, or a process could gain by answering slowly
TOLERANCE = 0.10  # share of the bound, for other clocks of a busy GPU and for pending write-backs

wall = time.perf_counter


class WallClock:
    """The least wall time of some passes, from the request to the answer, each of so many calls.

    A pass is a graph of one call on each copy of the memory, on new data, with all of its outputs compared. So the GPU
    really took that long: no call can be faster than the shortest pass, minus the time of an empty request, divided by
    its calls. Reported times may be longer, because they are of colder memory. Eager calls are bounded by the same
    graph: between two of them the GPU may wait for the host, so that wall time says nothing of the GPU's, but the
    graph of a call takes the GPU no longer than the call. A subject whose calls cannot be captured gets no time.
    """

    def __init__(self, calls: int):
        self.calls = calls
        self._passes: list[float] = []
        self._empty: list[float] = []

    def measure(self, launch: Callable[[], object], nothing: Callable[[], object]) -> None:
        self._empty.append(_seconds(nothing))
        self._passes.append(_seconds(launch))

    @property
    def least(self) -> float:
        """The least possible seconds of a call."""
        around = min(min(self._empty) + AROUND, MOST_AROUND)
        return max(min(self._passes) - around, 0.0) / self.calls

    def finding(self, reported: Sequence[float]) -> Finding | None:
        """The offence if a reported time is impossible, else None. reported: seconds of a call"""
        median = statistics.median(reported)
        if median >= self.least * (1 - TOLERANCE):
            return None
        return Finding(
            Violation.BELOW_WALL_CLOCK,
            f"it reports {1e6 * median:.2f} us a call; by the wall clock around {self.calls} calls that were compared, "
            f"one takes {1e6 * self.least:.2f} us",
        )


def _seconds(action: Callable[[], object]) -> float:
    began = wall()
    action()
    return wall() - began
