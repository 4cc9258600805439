"""Rounds that take turns: of a case with its baseline, as many as are needed, and of several graphs in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness.bench import statistics
from harness.bench.gpu_timer import Clock, GpuClock, pedantic, pilot, sample
from harness.bench.statistics import Samples
from harness.bench.timed import Timed
from harness.device.cuda_code import cuda_errors

WARM_UP = 3  # rounds that are thrown away
PILOT = 10  # rounds that estimate how many are needed
FEWEST, MOST = 20, 50  # rounds that are kept
PRECISION = 0.005  # target for the relative standard error of the median
LONGEST = 2.0  # seconds of wall time for the kept rounds, unless FEWEST take longer
BETWEEN_CLOCKS = 10  # rounds of several graphs between two readings of the multiprocessors' clock
FLUSHES = (1, 4, 16)  # flushes of the L2 before a round: more, which take longer, where the host was late

METHOD = (
    f"{WARM_UP} + {PILOT} rounds of warm-up; then rounds until the standard error of the median is {PRECISION:.1%}, "
    f"{FEWEST} to {MOST} of them, {LONGEST:g} s at most, in turns with the baseline; those in which the GPU "
    "waited for the host are taken again behind a longer flush"
)

# Runs a target for a number of rounds, each after `setup`, and returns the seconds of each.
Recorder = Callable[[Callable[[], None], Callable[[], None], int], list[float]]


@dataclass(frozen=True)
class Baseline:
    """The baseline of a case, ready to run.

    enqueue: None if it cannot run, because of `why_not`; calls: in a round; moved: bytes of a call
    """

    enqueue: Callable[[], None] | None = None
    calls: int = 1
    moved: int = 0
    why_not: str = ""


@dataclass(frozen=True)
class Round:
    """seconds: of a call; mhz: of the multiprocessors; exposed: whether the GPU waited for the host

    baseline, second: seconds of a call of each opponent just before, None without one
    """

    seconds: float
    mhz: float
    exposed: bool
    baseline: float | None
    second: float | None = None


class InterleavedRounds:
    """Rounds of a case, each after one of its opponents, on the current stream."""

    def __init__(
        self, clock: Clock, timed: Timed, baseline: Baseline, record: Recorder, second: Baseline | None = None
    ):
        self._clock, self._timed, self._record = clock, timed, record
        self._opponents = (baseline, second or Baseline())
        self._seconds: tuple[list[float], ...] = ([], [])
        self._flushes = FLUSHES[0]

    def pilot(self) -> int:
        """Warm up, and estimate how many rounds are needed."""
        seconds, host_seconds = pilot(self._clock, self._timed.enqueue, WARM_UP, PILOT, self._timed.calls)
        needed = min(statistics.rounds_needed(seconds, PRECISION), MOST, int(LONGEST / host_seconds))
        return max(FEWEST, needed)

    def take(self, count: int) -> list[Round]:
        """Take `count` rounds.

        A round in which the GPU waited for the host is repeated behind a longer flush, and kept only if the GPU waited
        behind the longest flush, too.
        """
        kept: list[Round] = []
        exposed: list[Round] = []
        record = self._record
        for self._flushes in FLUSHES:
            for each in self._take(count - len(kept), record):
                (exposed if each.exposed else kept).append(each)
            if len(kept) == count:
                break
            record = partial(pedantic, self._clock)  # pytest-benchmark records once for each case
        return kept + exposed[len(exposed) - count + len(kept) :]

    def _take(self, count: int, record: Recorder) -> list[Round]:
        self._clock.restart()
        seconds = record(self._timed.enqueue, self._before_round, count)
        # Each opponent that can run has a reading before the case's own.
        others = sum(1 for each in self._opponents if each.enqueue)
        mhz = self._clock.mhz()[others :: others + 1]
        exposed = self._clock.exposed[-len(seconds) :]
        theirs = [taken[-len(seconds) :] or [None] * len(seconds) for taken in self._seconds]
        return [Round(*each) for each in zip(seconds, mhz, exposed, *theirs, strict=True)]

    def _before_round(self) -> None:
        for opponent, taken in zip(self._opponents, self._seconds, strict=True):
            if opponent.enqueue:
                taken += sample(self._clock, opponent.enqueue, 1, opponent.calls, self._flushes)
                self._clock.exposed.pop()  # `exposed` counts only rounds of the case
        self._timed.before_round()
        self._clock.calls = self._timed.calls
        self._clock.flush(self._flushes)


def steady(rounds: Sequence[Round]) -> list[Round]:
    """The rounds at a steady clock of the multiprocessors; all if none of them could read it."""
    return [rounds[number] for number in statistics.steady([each.mhz for each in rounds])] or list(rounds)


@dataclass(frozen=True)
class TimedGraph:
    """A captured graph, and how many calls of the case it holds."""

    graph: Any
    calls: int


def take(clock: GpuClock, graphs: Mapping[str, TimedGraph], rounds: int, order: random.Random) -> dict[str, Samples]:
    """Microseconds a call, and MHz, of every graph for `rounds` rounds, rounded up to a multiple of BETWEEN_CLOCKS.

    In a round each graph runs once, in a new random order.
    """
    import cupy

    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in graphs}
    for _ in range(-(-rounds // BETWEEN_CLOCKS)):
        queued: list[tuple[str, Any, Any]] = []
        with cuda_errors("timed graphs"), clock.stream as stream:
            clock.restart()
            clock.flush()  # keeps the GPU busy until the first graphs are queued
            for _ in range(BETWEEN_CLOCKS):
                for name in order.sample(sorted(graphs), len(graphs)):
                    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
                    start.record(stream)
                    graphs[name].graph.launch(stream)
                    stop.record(stream)
                    queued.append((name, start, stop))
            mhz = clock.mhz()[0]
            for name, start, stop in queued:
                found[name][0].append(cupy.cuda.get_elapsed_time(start, stop) * 1e3 / graphs[name].calls)
                found[name][1].append(mhz)
    return {name: Samples(*taken) for name, taken in found.items()}
