"""Time that is counted and not measured, for tests of a bench."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

from harness.bench.rounds import Recorder


class FakeClock:
    """Time that only targets move on; `late` marks every round as one in which the GPU waited."""

    method = "a fake clock"
    stream = nullcontext(SimpleNamespace())
    __name__ = "fake_clock"

    def __init__(self):
        self.now = 0.0
        self.flushes = self._restarted = 0
        self.late = False
        self.late_behind: frozenset[int] = frozenset()  # flushes of so many reads are too short for the host
        self.calls = 1
        self.clocks: dict[int, float] = {}  # flush → MHz, where it is not 1980
        self.exposed: list[bool] = []

    def __call__(self) -> float:
        self.exposed.append(self.late)
        return self.now / self.calls

    def flush(self, times: int = 1) -> None:
        self.flushes += 1
        if self.late_behind:
            self.late = times in self.late_behind

    def restart(self) -> None:
        self._restarted = self.flushes

    def mhz(self) -> list[float]:
        return [self.clocks.get(number, 1980.0) for number in range(self.flushes - self._restarted)]


def in_turns(clock: FakeClock) -> Recorder:
    """A recorder that calls `setup` before each round, as pytest-benchmark's pedantic mode does."""

    def record(target: Callable[[], None], setup: Callable[[], None], rounds: int) -> list[float]:
        seconds = []
        for _ in range(rounds):
            setup()
            start = clock()
            target()
            seconds.append(clock() - start)
        return seconds

    return record
