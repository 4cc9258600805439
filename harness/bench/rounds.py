"""The rounds of a bench: how many are needed, and their times, interleaved with those of the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.bench import statistics
from harness.bench.gpu_timer import Clock, pilot, sample
from harness.bench.timed import Timed

WARM_UP = 3  # rounds that are thrown away
PILOT = 10  # rounds that estimate how many are needed
FEWEST, MOST = 20, 50  # rounds that are kept
PRECISION = 0.005  # target for the relative standard error of the median
LONGEST = 2.0  # seconds of wall time for the kept rounds, unless FEWEST take longer

METHOD = (
    f"{WARM_UP} + {PILOT} rounds of warm-up; then rounds until the standard error of the median is {PRECISION:.1%}, "
    f"{FEWEST} to {MOST} of them, {LONGEST:g} s at most, in turns with the baseline"
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

    baseline: seconds of a call of the baseline just before, None without one
    """

    seconds: float
    mhz: float
    exposed: bool
    baseline: float | None


class Turns:
    """Rounds of a case, each after one of its baseline, on the current stream."""

    def __init__(self, clock: Clock, timed: Timed, baseline: Baseline, record: Recorder):
        self._clock, self._timed, self._baseline, self._record = clock, timed, baseline, record
        self._baseline_seconds: list[float] = []

    def pilot(self) -> int:
        """Warm up, and estimate how many rounds are needed."""
        seconds, host_seconds = pilot(self._clock, self._timed.enqueue, WARM_UP, PILOT, self._timed.calls)
        needed = min(statistics.rounds_needed(seconds, PRECISION), MOST, int(LONGEST / host_seconds))
        return max(FEWEST, needed)

    def take(self, count: int) -> list[Round]:
        self._clock.restart()
        seconds = self._record(self._timed.enqueue, self._before_round, count)
        # With a baseline, every other reading is of its rounds.
        mhz = self._clock.mhz()[1::2] if self._baseline.enqueue else self._clock.mhz()
        exposed = self._clock.exposed[-len(seconds) :]
        baseline = self._baseline_seconds[-len(seconds) :] or [None] * len(seconds)
        return [Round(*each) for each in zip(seconds, mhz, exposed, baseline, strict=True)]

    def _before_round(self) -> None:
        if self._baseline.enqueue:
            self._baseline_seconds += sample(self._clock, self._baseline.enqueue, 1, self._baseline.calls)
            self._clock.exposed.pop()  # it counts only rounds of the case
        self._timed.before_round()
        self._clock.calls = self._timed.calls
        self._clock.flush()


def steady(rounds: Sequence[Round]) -> list[Round]:
    """The rounds without those in which the clock of the multiprocessors was low."""
    return [rounds[number] for number in statistics.steady([each.mhz for each in rounds])]
