"""Energy of a call: what the GPU's counter gains while calls follow each other, idle power and memory included.

NVML counts millijoules since the driver was loaded, and sets its counter some ten times a second. So calls are counted
from one setting of the counter to another, over at least a second, after a while in which power settles. Each interval
between two settings gives an energy of its own; the error bar is that of their mean, 95 %.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import stdev
from typing import Any, Protocol

from harness.bench.gpu_timer import Clock
from harness.device.cuda_code import cuda_errors

SETTLE = 0.3  # seconds
LEAST, MOST = 1.0, 4.0  # seconds that are counted
FEWEST = 5  # settings of the counter
BATCH_US = 2000.0  # calls are counted in batches that take so long
AHEAD = 8  # batches that are queued at a time, so that the GPU never waits for the host


@dataclass(frozen=True)
class Meter:
    """A reading of a GPU; each value is None if the driver does not report it."""

    millijoules: int | None = None
    celsius: int | None = None


@dataclass(frozen=True)
class Energy:
    """Energy of a call, with its error bar. celsius: GPU temperature at the end; why_not: why nothing was measured"""

    microjoules: float = 0.0
    error: float = 0.0
    celsius: int | None = None
    why_not: str = ""

    def times(self) -> dict[str, Any]:
        """The fields for `Result.times`."""
        if self.why_not:
            return {"no_energy": self.why_not}
        return {
            "energy_uj": round(self.microjoules, 3),
            "energy_error_uj": round(self.error, 3),
            "celsius": self.celsius,
        }


class Queue(Protocol):
    """Calls that follow each other. done: how many have ended"""

    done: int

    def feed(self) -> None:
        """Queue what is missing, and count what has ended."""


class Replays:
    """Rounds of a case, queued on the clock's current stream. us: of a call; calls: in a round"""

    def __init__(self, clock: Clock, enqueue: Callable[[], None], calls: int, us: float):
        self._clock, self._enqueue = clock, enqueue
        self._rounds = max(1, int(BATCH_US / (us * calls)))
        self._calls = calls * self._rounds
        self._queued: deque[Any] = deque()
        self.done = 0

    def feed(self) -> None:
        import cupy

        with cuda_errors("energy"), self._clock.stream as stream:
            while len(self._queued) < AHEAD:
                for _ in range(self._rounds):
                    self._enqueue()
                event = cupy.cuda.Event(disable_timing=True)
                event.record(stream)
                self._queued.append(event)
            while self._queued and self._queued[0].done:
                self._queued.popleft()
                self.done += self._calls


def measure(queue: Queue, meter: Callable[[], Meter], now: Callable[[], float] = time.perf_counter) -> Energy:
    """Energy of a call of this queue. now: seconds"""
    began, last = now(), meter().millijoules
    if last is None:
        return Energy(why_not="the driver counts no energy")
    settings: list[tuple[float, int, int]] = []  # seconds, millijoules, calls that had ended
    failed = 0
    while (passed := now() - began) < SETTLE + MOST:
        queue.feed()
        read = meter().millijoules
        failed += read is None
        # After a failed reading it is unknown when the counter was set.
        if read is not None and last is not None and read != last and passed >= SETTLE:
            settings.append((passed, read, queue.done))
            if len(settings) > FEWEST and passed - settings[0][0] >= LEAST:
                return _of(settings, meter().celsius)
        last = read
    readings = f"; {failed} of its readings failed" if failed else ""
    return Energy(why_not=f"the counter was set {len(settings)} times in {MOST:g} s, too seldom{readings}")


def _of(settings: list[tuple[float, int, int]], celsius: int | None) -> Energy:
    intervals = list(zip(settings, settings[1:], strict=False))
    if any(later[2] == earlier[2] for earlier, later in intervals):
        return Energy(why_not="no call ended between two settings of the counter")
    each = [1e3 * (later[1] - earlier[1]) / (later[2] - earlier[2]) for earlier, later in intervals]
    (_, first, calls), (_, end, ended) = settings[0], settings[-1]
    return Energy(1e3 * (end - first) / (ended - calls), 1.96 * stdev(each) / len(each) ** 0.5, celsius)
