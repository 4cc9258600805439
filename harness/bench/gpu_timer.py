"""The GPU timer: a reading is a CUDA event on one stream, and every round starts behind a flush of the L2.

The host does not wait for the flush: while the GPU is busy with it, the host queues start event, launches and stop
event, so that the time between the events holds no host latency if the host is done first. `exposed` records the
rounds in which it was not. The SM clock is read at each flush.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from harness.device.cuda import CudaDevice
from harness.device.cuda_code import cuda_errors, load
from harness.jit.compile import compile_kernel
from harness.jit.signature import read_signatures

MOST_READINGS = 4096  # readings between two calls of `restart`
_LARGEST = 10_000  # MHz; beyond it, the two readings came from different counters


class SmClock:
    """Readings on the current stream, copied from the GPU by `mhz`."""

    def __init__(self, device: CudaDevice):
        import cupy

        signature = read_signatures("sm_clock", Path(__file__).parent)["sm_clock"]
        self._function = load(compile_kernel(signature, {}, device.targets[0]))
        self._readings = cupy.zeros((MOST_READINGS, 3), cupy.uint64)
        self._count = 0

    def restart(self) -> None:
        self._count = 0

    def read(self) -> None:
        """Queue a reading; beyond MOST_READINGS readings, the last slot is overwritten."""
        self._count = min(self._count + 1, MOST_READINGS)
        self._function((1,), (1,), (self._readings[self._count - 1],))

    def mhz(self) -> list[float]:
        """Between each reading and the next, once they have happened; 0 where another multiprocessor answered."""
        taken = self._readings[: self._count].get().astype(float)
        found = []
        for (cycles_then, ns_then, sm_then), (cycles, ns, sm) in pairwise(taken):
            passed = ns - ns_then
            mhz = (cycles - cycles_then) / passed * 1e3 if passed > 0 and sm == sm_then else 0.0
            found.append(mhz if 0 < mhz < _LARGEST else 0.0)
        return found


FLUSH_FACTOR = 3  # times the L2
FLUSH_SMALLEST = 512 << 20  # bytes; takes an H200 150 us, longer than the host needs to queue a graph of hundreds


class Clock(Protocol):
    """The timer of pytest-benchmark, with the flush before each round.

    stream: on which everything timed is queued
    calls: in a round; times are of one
    flushes: how many there were
    exposed: one entry a round, True if the GPU waited for the host within the timed region
    report: the time of a round that another process has timed since the last reading
    method: how this clock measures, for a record
    """

    stream: AbstractContextManager[Any]
    calls: int
    flushes: int
    exposed: list[bool]
    report: Report | None
    method: str

    def __call__(self) -> Any:
        """A reading; the difference of two is in seconds."""

    def flush(self, times: int = 1) -> None:
        """Queue reads of more bytes than the L2 holds, which evict the data of the round while the host queues it."""

    def restart(self) -> None:
        """Forget the readings behind `mhz`."""

    def mhz(self) -> list[float]:
        """SM clock from each flush since `restart` to the next, and from the last until now."""


@dataclass(frozen=True, slots=True)
class Report:
    """A round that was timed elsewhere. seconds: of a call; exposed: whether the GPU waited for the host"""

    seconds: float
    exposed: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """One reading. `stop - start` is the seconds of a call, once `stop` has happened, or those that were reported."""

    clock: GpuClock
    calls: int
    event: Any

    def __sub__(self, start: Tick) -> float:
        import cupy

        report, self.clock.report = self.clock.report, None
        if report is not None:
            self.clock.exposed.append(report.exposed)
            return report.seconds
        with cuda_errors("timed launch"):
            # If the start has passed by now, the flush ended before everything was queued.
            self.clock.exposed.append(start.event.done)
            self.event.synchronize()
            return cupy.cuda.get_elapsed_time(start.event, self.event) / 1e3 / self.calls


def clock_of(device: CudaDevice) -> GpuClock:
    return GpuClock(int(device.identity()["l2_bytes"]), SmClock(device))


class GpuClock:
    """Clock of the current GPU, whose L2 holds `l2_bytes`, with its SM clock."""

    __name__ = "gpu_clock"  # the timer's name in pytest-benchmark's JSON

    def __init__(self, l2_bytes: int, sm_clock: SmClock):
        import cupy

        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.calls, self.flushes = 1, 0
        self.exposed: list[bool] = []
        self.report: Report | None = None
        self._sm_clock = sm_clock
        size = max(FLUSH_FACTOR * l2_bytes, FLUSH_SMALLEST)
        self._memory = cupy.zeros(size // 4, cupy.float32)
        self._sink = cupy.zeros((), cupy.float32)
        cupy.cuda.get_current_stream().synchronize()
        self.method = f"events on the stream behind a flush by reading {size >> 20} MiB ({size / l2_bytes:.1f}x L2)"

    def __call__(self) -> Tick:
        import cupy

        event = cupy.cuda.Event()
        event.record(self.stream)
        return Tick(self, self.calls, event)

    def flush(self, times: int = 1) -> None:
        # Not by writing, which leaves the L2 full of dirty lines whose write-back is then timed: 8 % of
        # per_tensor/stage=amax/32768x8192, 130 us instead of 120 (H200, 2026-11-21).
        self.flushes += times
        with cuda_errors("flush"), self.stream:
            self._sm_clock.read()
            for _ in range(times):
                self._memory.max(out=self._sink)

    def restart(self) -> None:
        self._sm_clock.restart()

    def mhz(self) -> list[float]:
        with cuda_errors("clock of the multiprocessors"), self.stream as stream:
            self._sm_clock.read()
            stream.synchronize()
            return self._sm_clock.mhz()


def graph_us(clock: GpuClock, graph: Any) -> float:
    """Microseconds of a graph, the least of three rounds; rough, without a flush."""
    import cupy

    times: list[float] = []
    with cuda_errors("timed graph"), clock.stream as stream:
        for _ in range(3):
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            graph.launch(stream)
            stop.record(stream)
            stop.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, stop) * 1e3)
    return min(times)


def sample(clock: Clock, target: Callable[[], None], rounds: int, calls: int = 1, flushes: int = 1) -> list[float]:
    """Seconds of a call for each round. calls: in one run of the target; flushes: before each"""
    clock.calls = calls
    return pedantic(clock, target, lambda: clock.flush(flushes), rounds)


def pedantic(clock: Clock, target: Callable[[], None], setup: Callable[[], None], rounds: int) -> list[float]:
    """Seconds of a call for each round, measured as pytest-benchmark's pedantic mode does, without its record."""
    seconds = []
    for _ in range(rounds):
        setup()
        start = clock()
        target()
        stop = clock()
        seconds.append(stop - start)
    return seconds


def pilot(
    clock: Clock, target: Callable[[], None], warm_up: int, rounds: int, calls: int = 1
) -> tuple[list[float], float]:
    """Samples after `warm_up` discarded rounds, and the host's seconds for one round."""
    sample(clock, target, warm_up, calls)
    began = time.perf_counter()
    seconds = sample(clock, target, rounds, calls)
    return seconds, (time.perf_counter() - began) / rounds
