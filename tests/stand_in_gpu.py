"""A GPU for subjects that is none: a CuPy of NumPy arrays, whose streams queue, and a torch whose graphs replay.

What runs on it is the harness's own code for GPUs. Its order is what CUDA guarantees, and no more: a stream of its own
runs ahead of a busy one, and what is put on it during a capture is done at once and not captured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fake_clock import FakeClock
from in_process import in_process

from evidence.cheating import tools
from harness.expected import torch_calls
from harness.subjects import caller, shared, streams
from harness.subjects.audit import bench
from harness.subjects.device import HostDevice, SubjectDevice, with_subject
from harness.subjects.subject import Subject

WORK_US = 10.0  # of an assignment


class Stream:
    """waiting: work behind something that keeps the stream busy, or None; recorded: what a capture holds, or None"""

    current: Stream
    all: dict[int, Stream] = {}

    def __init__(self, non_blocking: bool = False, ptr: int | None = None):
        self.waiting: list[Callable[[], None]] | None = None
        self.recorded: list[Callable[[], None]] | None = None
        self.ptr = len(Stream.all) if ptr is None else ptr
        self.before: list[Stream] = []
        Stream.all[self.ptr] = self

    def __enter__(self) -> Stream:
        self.before.append(Stream.current)
        Stream.current = self
        return self

    def __exit__(self, *_: Any) -> None:
        Stream.current = self.before.pop()

    def queue(self, work: Callable[[], None]) -> None:
        if self.recorded is not None:
            self.recorded.append(work)
        elif self.waiting is not None:
            self.waiting.append(work)
        else:
            work()

    def hold(self) -> None:
        self.waiting = self.waiting or []

    def synchronize(self) -> None:
        waiting, self.waiting = self.waiting or [], None
        for work in waiting:
            work()


class Array(np.ndarray):
    """An array whose changes and copies are queued on the current stream.

    `get` and `set` are not queued; they are called after a wait.
    """

    def __setitem__(self, where: Any, value: Any) -> None:
        Stream.current.queue(lambda: self._assign(where, value))

    def _assign(self, where: Any, value: Any) -> None:
        StandInGpu.clock.now += 1e-6 * WORK_US
        super().__setitem__(where, value)

    def __ixor__(self, bits: Any) -> Array:
        plain = self.view(np.ndarray)
        Stream.current.queue(lambda: np.bitwise_xor(plain, bits, out=plain))
        return self

    def fill(self, value: int) -> None:
        Stream.current.queue(lambda: super(Array, self).fill(value))

    def copy(self, order: str = "C") -> Array:
        copied = np.empty_like(self)
        Stream.current.queue(lambda: np.copyto(copied, self))
        return copied

    def get(self) -> np.ndarray:
        return np.array(self)

    def set(self, content: np.ndarray) -> None:
        np.copyto(self, content)


class Graph:
    """In place of torch.cuda.CUDAGraph."""

    def capture_begin(self, capture_error_mode: str) -> None:
        self.stream = Stream.current
        self.stream.recorded = []

    def capture_end(self) -> None:
        self.work, self.stream.recorded = self.stream.recorded, None

    def replay(self) -> None:
        for work in self.work:
            Stream.current.queue(work)


class Event:
    def record(self, stream: Stream) -> None:
        self.now = StandInGpu.clock.now

    def synchronize(self) -> None:
        pass


def drain() -> None:
    for stream in list(Stream.all.values()):
        stream.synchronize()


class StandInGpu(HostDevice):
    """A device named `cuda` on the CPU."""

    name, targets, modes = "cuda", ("sm_90a",), frozenset({"eager", "graph"})
    properties = {"l2CacheSize": 1 << 18}
    index = 0
    clock: FakeClock

    def identity(self) -> dict[str, str]:
        return {"device": "cuda", "gpu": "Stand-in H1", "l2_bytes": "262144", "driver": "1", "nvrtc": "13.0"}

    def condition(self) -> dict[str, Any]:
        return {}

    def to_host(self, array: Any, field: Any) -> np.ndarray:
        return super().to_host(array.get(), field)

    def against(self, subject: Subject) -> SubjectDevice:
        return with_subject(self, in_process(subject))


class ChildsClock:
    """The clock of the subject's process, which shows the same time."""

    def __init__(self, *_: Any):
        self.stream, self.exposed = StandInGpu.clock.stream, []

    def flush(self, times: int = 1) -> None:
        pass

    def __call__(self) -> float:
        self.exposed.append(False)
        StandInGpu.clock.now += 1e-9
        return StandInGpu.clock.now


def install(monkeypatch: pytest.MonkeyPatch) -> StandInGpu:
    """Put it in the place of CuPy and of what the harness uses of torch.cuda."""
    StandInGpu.clock = clock = FakeClock()
    Stream.all = {}
    null = Stream.current = Stream(ptr=0)
    clock.stream = Stream(non_blocking=True)

    @contextmanager
    def allocator(_: Any) -> Iterator[None]:
        yield

    class CudaError(Exception):
        pass

    cupy = SimpleNamespace(
        empty=lambda shape, dtype: np.empty(shape, dtype).view(Array),
        zeros=lambda shape, dtype: np.zeros(shape, dtype).view(Array),
        asarray=lambda array: np.array(array).view(Array),
        uint8=np.uint8,
        ndarray=Array,
        __spec__=None,
        cuda=SimpleNamespace(
            Stream=Stream,
            Event=Event,
            MemoryPool=lambda: SimpleNamespace(malloc=None),
            using_allocator=allocator,
            get_current_stream=lambda: Stream.current,
            get_elapsed_time=lambda start, stop: 1e3 * (stop.now - start.now),
            runtime=SimpleNamespace(
                deviceSynchronize=drain, CUDARuntimeError=CudaError, memGetInfo=lambda: (1 << 30, 1 << 30)
            ),
            Device=lambda index=0: SimpleNamespace(use=lambda: None),
            driver=SimpleNamespace(CUDADriverError=CudaError),
        ),
    )
    Stream.null = null
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(torch.cuda, "ExternalStream", Stream.all.__getitem__)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda: null)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "synchronize", drain)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    blocks: dict[bytes, Any] = {}

    def exported(nbytes: int) -> tuple[Any, bytes]:
        handle = str(len(blocks)).encode()
        blocks[handle] = cupy.empty(nbytes, np.uint8)
        return blocks[handle], handle

    monkeypatch.setattr(shared, "exported", exported)
    monkeypatch.setattr(shared, "imported", lambda nbytes, handle: blocks[handle])
    monkeypatch.setattr(shared, "returned", lambda block: None)
    monkeypatch.setattr(caller, "GpuClock", ChildsClock)
    monkeypatch.setattr(bench, "wall", lambda: clock.now)
    monkeypatch.setattr(bench, "PASS", 1e-5)  # the fewest copies are enough where time is exact
    monkeypatch.setattr(bench, "AROUND", 0.0)
    monkeypatch.setattr(caller.CudaCaller, "time", caller.CudaCaller.time)  # which a cheat replaces
    monkeypatch.setattr(streams, "hold", lambda stream, target: stream.hold())
    monkeypatch.setattr(tools, "delay", lambda stream: stream.hold())
    monkeypatch.setattr(tools, "capturing", lambda: Stream.current.recorded is not None)
    tools._stream.cache_clear()
    # The torch oracle would have to see the GPU.
    ask = torch_calls.ask_torch
    monkeypatch.setattr(
        torch_calls, "ask_torch", lambda oracle, case, inputs, device, alone: ask(oracle, case, inputs, "cpu", alone)
    )
    return StandInGpu()
