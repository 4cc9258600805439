"""The GPU clock against a stand-in for CuPy that keeps a log of what was asked of the stream."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from harness.bench.gpu_timer import FLUSH_SMALLEST, GpuClock, sample
from harness.errors import LaunchError

MIB = 1 << 20


class CudaError(Exception):
    """Stands in for both of CuPy's."""


class FakeCuda:
    """A stream whose flush lasts until `queued` operations came after it; after that the GPU runs dry."""

    def __init__(self, queued: int = 99):
        self.queued = queued
        self.log: list[str] = []
        self.broken = False
        runtime = SimpleNamespace(CUDARuntimeError=CudaError)
        self.cuda = SimpleNamespace(
            Stream=lambda non_blocking: FakeStream(self),
            get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
            Event=lambda: FakeEvent(self),
            get_elapsed_time=lambda start, stop: 1000.0 * (stop.place - start.place),
            runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=CudaError),
        )
        self.float32 = "float32"
        self.stream = "the default stream"

    def zeros(self, shape: int | tuple, dtype: str) -> SimpleNamespace:
        return SimpleNamespace(max=lambda out: self.log.append(f"flush {4 * shape // MIB} MiB on {self.stream}"))


class FakeStream:
    """Current while it is entered."""

    def __init__(self, cuda: FakeCuda):
        self.cuda = cuda

    def __enter__(self) -> None:
        self.before, self.cuda.stream = self.cuda.stream, "stream"

    def __exit__(self, *_: object) -> None:
        self.cuda.stream = self.before

    def __str__(self) -> str:
        return "stream"


class FakeEvent:
    def __init__(self, cuda: FakeCuda):
        self.cuda = cuda

    def record(self, stream: str) -> None:
        self.place = len(self.cuda.log)
        self.cuda.log.append(f"event on {stream}")

    def synchronize(self) -> None:
        if self.cuda.broken:
            raise CudaError("an illegal memory access was encountered")
        self.cuda.log.append("wait")

    @property
    def done(self) -> bool:
        return len(self.cuda.log) - self.place > self.cuda.queued


class NoClock:
    """In place of the multiprocessors' clock."""

    def read(self) -> None:
        pass


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def test_a_round_is_queued_whole_behind_its_flush_and_only_then_waited_for(cuda: FakeCuda):
    clock = GpuClock(50 * MIB, NoClock())
    sample(clock, lambda: cuda.log.append("launch"), rounds=2)
    once = ["flush 512 MiB on stream", "event on stream", "launch", "event on stream", "wait"]
    assert cuda.log == once * 2


def test_a_reading_is_in_seconds(cuda: FakeCuda):
    clock = GpuClock(50 * MIB, NoClock())
    # In the stand-in every operation lasts a second: the event itself and the launch.
    assert sample(clock, lambda: cuda.log.append("launch"), rounds=1) == [2.0]
    assert sample(clock, lambda: cuda.log.append("launch"), rounds=1, calls=8) == [0.25]
    assert sample(clock, lambda: cuda.log.append("launch"), rounds=1) == [2.0]  # and not of eight calls any more


@pytest.mark.parametrize(("l2", "flushed"), [(50 * MIB, FLUSH_SMALLEST), (200 * MIB, 600 * MIB)])
def test_the_flush_is_thrice_the_l2_and_said_so(cuda: FakeCuda, l2: int, flushed: int):
    clock = GpuClock(l2, NoClock())
    clock.flush()
    assert cuda.log == [f"flush {flushed // MIB} MiB on stream"]
    assert f"flush by reading {flushed // MIB} MiB ({flushed / l2:.1f}x L2)" in clock.method
    assert flushed >= 3 * l2


def test_a_longer_flush_reads_the_memory_more_often(cuda: FakeCuda):
    clock = GpuClock(50 * MIB, NoClock())
    for times in (4, 16):
        cuda.log.clear()
        sample(clock, lambda: None, rounds=1, flushes=times)
        assert cuda.log == ["flush 512 MiB on stream"] * times + ["event on stream"] * 2 + ["wait"]
    assert clock.flushes == 20


def test_a_round_whose_flush_ended_too_early_is_marked(cuda: FakeCuda):
    clock = GpuClock(50 * MIB, NoClock())
    sample(clock, lambda: cuda.log.append("launch"), rounds=1)
    cuda.queued = 2
    sample(clock, lambda: cuda.log.append("launch"), rounds=1)
    assert clock.exposed == [False, True]


def test_a_kernel_that_fails_is_a_launch_error(cuda: FakeCuda):
    clock = GpuClock(50 * MIB, NoClock())
    cuda.broken = True
    with pytest.raises(LaunchError, match="timed launch: an illegal memory access"):
        sample(clock, lambda: None, rounds=1)
