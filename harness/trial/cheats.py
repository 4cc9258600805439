"""Subjects that cheat, each in one way, on `swizzle`, whose work is one assignment.

`harness attack` runs them all; one alone is `--subject harness.trial.cheats:SkipsWork` on that recipe. What they do is
written once for NumPy and CuPy. Those that need streams or graphs run on a GPU alone.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, ClassVar

import numpy as np

from harness.case import Case
from harness.subjects import Arrays
from harness.trial.offence import Offence

FIELD, SOURCE = "swizzled_scale_inv", "scale_inv"
LATE = 0.005  # seconds


class Cheat:
    """An honest subject; those below differ from it in what their first line says.

    offence: what it must be caught at; gpu: True if it needs one; mode: in which it is run; timed: True if verification
    alone cannot tell
    """

    offence: ClassVar[Offence | None] = None
    gpu: ClassVar[bool] = False
    mode: ClassVar[str] = "eager"
    timed: ClassVar[bool] = False

    def __init__(self) -> None:
        self.calls = 0
        self.seen: dict[int, Any] = {}

    def __call__(self, case: Case, inputs: Arrays, outputs: Arrays) -> None:
        self.calls += 1
        self.quantize(case, inputs[SOURCE], outputs[FIELD])

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        """Compact scales (rows, cols) u8 into 128x4 tiles."""
        work(source, target)


class SkipsWork(Cheat):
    """returns at once"""

    offence = Offence.SKIPS_WORK

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        pass


class AsleepAtFirst(Cheat):
    """does nothing in its first four calls, and works from then on"""

    offence = Offence.ASLEEP_AT_FIRST

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if self.calls > 4:
            work(source, target)


class WorksOnlyTimed(Cheat):
    """looks at the stack, and does nothing unless it is timed"""

    offence = Offence.SKIPS_WORK

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        frame = sys._getframe()
        while frame and not frame.f_code.co_filename.endswith("timing.py"):
            frame = frame.f_back
        if frame:
            work(source, target)


class WorksOnlyVerified(Cheat):
    """works in its first thirty calls, which are more than a verification makes, and never again"""

    offence = Offence.NOT_IN_TIMING
    timed = True

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if self.calls <= 30:
            work(source, target)


class OnceInFive(Cheat):
    """works in one of five calls"""

    offence = Offence.NOT_EVERY_CALL

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if self.calls % 5 == 1:
            work(source, target)


class WritesLate(Cheat):
    """has a thread do the work 5 ms after the call is over"""

    offence = Offence.WRITES_LATE

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        def later() -> None:
            time.sleep(LATE)
            work(source, target)

        threading.Thread(target=later).start()


class OtherStream(Cheat):
    """queues its work on a stream of its own"""

    offence = Offence.OTHER_STREAM
    gpu = True

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        with other_stream():
            work(source, target)


class DelayedOnOtherStream(Cheat):
    """queues 5 ms of nothing and then its work on a stream of its own"""

    offence = Offence.OTHER_STREAM
    gpu = True

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        with other_stream() as stream:
            delay(stream)
            work(source, target)


class CachesByPointer(Cheat):
    """returns at once if it has been called with these addresses before"""

    offence = Offence.CACHES_BY_POINTER

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if self.seen.setdefault(address(target), self.calls) == self.calls:
            work(source, target)


class CachesAnswer(Cheat):
    """copies the bytes that it wrote when it was first called with these addresses"""

    offence = Offence.CACHES_BY_POINTER

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if address(target) not in self.seen:
            work(source, target)
            self.seen[address(target)] = target.copy()
        assign(target, self.seen[address(target)])


class BakesAnswer(Cheat):
    """computes while it is captured, beside the graph, and has the graph copy the result"""

    offence = Offence.CACHES_BY_POINTER
    gpu, mode = True, "graph"

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if not capturing():
            work(source, target)
            return
        with other_stream() as stream:
            answer = target.copy()
            work(source, answer)
            stream.synchronize()
        self.seen[self.calls] = answer
        assign(target, answer)


class NotCaptured(Cheat):
    """does its work beside the graph while it is captured, so that the graph holds nothing"""

    offence = Offence.NOT_CAPTURED
    gpu, mode = True, "graph"

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if not capturing():
            work(source, target)
            return
        with other_stream():
            work(source, target)


class FirstRotation(Cheat):
    """of the buffers that a timed graph goes round, works on the first alone"""

    offence = Offence.FIRST_ROTATION
    gpu, mode, timed = True, "graph", True

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if not capturing():
            self.seen.clear()
        else:
            self.seen.setdefault(0, address(target))
        if self.seen.get(0, address(target)) == address(target):
            work(source, target)


class AsksOracle(Cheat):
    """asks the harness's oracle for the answer"""

    offence = Offence.READS_ORACLE

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        from harness.expectation import expect

        assign(target, like(target, expect(case).values[FIELD]))


class SearchesMemory(Cheat):
    """searches the process's memory for the answer, and works only if there is none"""

    offence = Offence.READS_ORACLE

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        answers = [each for each in gc.get_objects() if isinstance(each, dict) and FIELD in each]
        found = [each[FIELD] for each in answers if isinstance(each[FIELD], np.ndarray) and each[FIELD] is not target]
        if found:
            assign(target, like(target, found[0]))
        else:
            work(source, target)


class WritesOutside(Cheat):
    """does its work, and changes the last byte before the guard of its output ends"""

    offence = Offence.WRITES_OUTSIDE

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        work(source, target)
        end = target.base[-1:]
        assign(end, end ^ 0xFF)


class ModifiesInputs(Cheat):
    """does its work, and clears the first byte of its input"""

    offence = Offence.MODIFIES_INPUTS

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        work(source, target)
        first = source[:1, :1]
        assign(first, first ^ 0xFF)


class DependsOnPoison(Cheat):
    """reads its outputs before it writes them"""

    offence = Offence.DEPENDS_ON_POISON

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        before = (target == 0x5A).astype(np.uint8)
        work(source, target)
        assign(target, target ^ before)


CHEATS = (
    SkipsWork, AsleepAtFirst, WorksOnlyTimed, WorksOnlyVerified, OnceInFive, WritesLate, OtherStream,
    DelayedOnOtherStream, CachesByPointer, CachesAnswer, BakesAnswer, NotCaptured, FirstRotation, AsksOracle,
    SearchesMemory, WritesOutside, ModifiesInputs, DependsOnPoison,
)  # fmt: skip


def work(source: Any, target: Any) -> None:
    """What is to be done: the bytes of 128x4 tiles, one tile after the other."""
    rows, cols = source.shape
    tiles = source.reshape(rows // 128, 4, 32, cols // 4, 4).transpose(0, 3, 2, 1, 4)
    assign(target.reshape(tiles.shape), tiles)


def assign(target: Any, source: Any) -> None:
    """Copy one array into another, on the current stream of a GPU."""
    target[...] = source


def like(target: Any, array: np.ndarray) -> Any:
    """A NumPy array where another array is."""
    if isinstance(target, np.ndarray):
        return array
    import cupy

    return cupy.asarray(array)


def address(array: Any) -> int:
    """Where an array starts."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def capturing() -> bool:
    """Whether a graph is being captured."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


@cache
def _stream() -> Any:
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def other_stream() -> AbstractContextManager[Any]:
    """A stream that nobody waits for."""
    return _stream()


def delay(stream: Any) -> None:
    """Keep a stream busy."""
    import cupy

    from harness.device import foreign
    from harness.device.cuda import native_target

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    foreign.hold(stream, native_target(properties["major"], properties["minor"]))
