"""Runs in a subject's process: calls the subject on memory that belongs to another process."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from harness.api.triton import triton_on
from harness.bench.gpu_timer import GpuClock
from harness.contract.case import Case
from harness.errors import CompileError, LaunchError, NotEmulated
from harness.ground.strictness import strict
from harness.subjects import shared, streams
from harness.subjects.shared import Place
from harness.subjects.subject import Subject
from ptx_emulator.process_order import given_order
from ptx_emulator.schedule import Schedule

Places = Mapping[str, Place]

MOST_NAMED = 16  # approximate instructions that an answer names


class SubjectRaised(Exception):  # noqa: N818
    """The subject raised something; `__cause__` is what."""


@dataclass
class Opened:
    """A case's memory, mapped here.

    copies: inputs and outputs of each copy; snapshot: memory for a copy of the outputs
    """

    case: Case
    block: Any
    copies: list[tuple[dict[str, Any], dict[str, Any]]]
    snapshot: dict[str, Any]
    graph: Any = field(default=None)


class Caller:
    """Calls a subject on the CPU."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self._opened: dict[int, Opened] = {}

    def open(
        self,
        number: int,
        case: Case,
        nbytes: int,
        handle: bytes,
        copies: Sequence[tuple[Places, Places]],
        snapshot: Places,
        files: Sequence[int] = (),
    ) -> None:
        block = self._attached(nbytes, handle, files)

        def views(places: Places) -> dict[str, Any]:
            return {name: place.of(block) for name, place in places.items()}

        pairs = [(views(inputs), views(outputs)) for inputs, outputs in copies]
        self._opened[number] = Opened(case, block, pairs, views(snapshot))

    def close(self) -> None:
        self._opened.clear()

    def call(self, number: int, order: Schedule) -> dict[str, Any]:
        """Call once. order: of all launches on the emulator

        The answer has the kernels of the launches that ended, and the approximate instructions in them.
        """
        with given_order(order) as launches:
            self._call(self._opened[number], 0)
        return {name: list(getattr(launches, name)[:MOST_NAMED]) for name in ("kernels", "approximated")}

    def idle(self) -> None:
        """Do nothing: on a CPU no work is ever queued."""

    def _attached(self, nbytes: int, handle: bytes, files: Sequence[int]) -> Any:
        return shared.attached(nbytes, files[0])

    def _call(self, opened: Opened, copy: int) -> None:
        inputs, outputs = opened.copies[copy]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a subject's warnings must not become errors
                with self.kernels():
                    self.subject.quantize(opened.case, dict(inputs), dict(outputs))
        except (LaunchError, CompileError, NotEmulated):
            raise
        except BaseException as error:
            raise SubjectRaised from error

    def kernels(self) -> AbstractContextManager[object]:
        """A context for the subject's own kernel launches."""
        return triton_on(self.subject.triton_target, strict=strict()) if self.subject.triton_target else nullcontext()


class CudaCaller(Caller):
    """Calls a subject on a GPU: with a stream current, or captured into a graph that is replayed.

    The outputs are copied to the snapshot on the same stream, right after the call.
    """

    def __init__(self, subject: Subject, index: int, target: str, l2_bytes: int):
        super().__init__(subject)
        import cupy
        import torch

        cupy.cuda.Device(index).use()
        torch.cuda.set_device(index)
        self._target, self._l2_bytes = target, l2_bytes

    @cached_property
    def _stream(self) -> Any:
        import cupy

        return cupy.cuda.Stream(non_blocking=True)

    @cached_property
    def _clock(self) -> GpuClock:
        return GpuClock(self._l2_bytes, NoClockOfTheMultiprocessors())

    def kernels(self) -> AbstractContextManager[object]:
        return nullcontext()

    def close(self) -> None:
        self.idle()
        for opened in self._opened.values():
            shared.returned(opened.block)
        super().close()

    def call(self, number: int, own_stream: bool = False, behind: int | None = None) -> None:
        """Call once. behind: queue it behind work that keeps the stream busy and fills the outputs with this byte"""
        import cupy

        opened = self._opened[number]
        stream = self._stream if own_stream or behind is not None else cupy.cuda.Stream.null
        with self._queued(opened, stream):
            if behind is not None:
                streams.hold(stream, self._target)
                for output in opened.copies[0][1].values():
                    _bytes(output).fill(behind)
            self._call(opened, 0)

    def capture(self, number: int, copies: int = 1, timed: bool = False) -> None:
        opened = self._opened[number]
        stream = self._clock.stream if timed else self._stream
        with self._errors(opened):
            opened.graph = streams.Graph(stream, [partial(self._call, opened, copy) for copy in range(copies)])

    def replay(self, number: int) -> None:
        opened = self._opened[number]
        with self._queued(opened, self._stream):
            opened.graph.launch(self._stream)

    def idle(self) -> None:
        import cupy

        with streams.errors("waiting for the GPU"):
            cupy.cuda.runtime.deviceSynchronize()

    def time(self, number: int, copy: int | None) -> dict[str, Any]:
        """Seconds, by events behind a flush of the L2, of a call on one copy, or of the graph if `copy` is None."""
        opened, clock = self._opened[number], self._clock
        with self._errors(opened), streams.current(clock.stream):
            clock.flush()
            start = clock()
            self._work(opened, copy)
            seconds = clock() - start
        return {"seconds": float(seconds), "exposed": bool(clock.exposed.pop())}

    def launch(self, number: int, copy: int | None) -> None:
        """Run a call or the graph like `time`, but without flush and events; returns when the work is done."""
        opened = self._opened[number]
        with self._errors(opened), streams.current(self._clock.stream) as stream:
            self._work(opened, copy)
            stream.synchronize()

    def ping(self) -> None:
        """The overhead of `launch`, without its work."""
        with streams.current(self._clock.stream) as stream:
            stream.synchronize()

    def _work(self, opened: Opened, copy: int | None) -> None:
        if copy is None:
            opened.graph.launch(self._clock.stream)
        else:
            self._call(opened, copy)

    def _attached(self, nbytes: int, handle: bytes, files: Sequence[int]) -> Any:
        with streams.errors("memory of the harness"):
            return shared.imported(nbytes, handle)

    @contextmanager
    def _errors(self, opened: Opened):
        with streams.errors(opened.case.id), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield

    @contextmanager
    def _queued(self, opened: Opened, stream: Any):
        with self._errors(opened):
            with streams.current(stream):
                yield
                for name, output in opened.copies[0][1].items():
                    opened.snapshot[name][...] = _bytes(output)
            stream.synchronize()


class NoClockOfTheMultiprocessors:
    """A clock without the SM clock, which the bench reads in its own process."""

    def read(self) -> None:
        pass


def _bytes(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)
