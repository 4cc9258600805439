"""Subjects that cheat, each in one way, on `swizzle`, whose work is one assignment.

`python -m evidence attack` runs them all; one alone is `--subject evidence.cheating.cheats:SkipsWork` on that
recipe. What they do is written once for NumPy and CuPy. Those that need streams or graphs run on a GPU alone.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
from typing import Any, ClassVar

import numpy as np

from evidence.cheating import tools
from harness.contract.case import Case
from harness.device.memory import GUARD
from harness.subjects import messages
from harness.subjects.caller import CudaCaller
from harness.subjects.subject import Arrays
from harness.subjects.violations import Violation

FIELD, SOURCE = "swizzled_scale_inv", "scale_inv"
LATE = 0.005  # seconds


class Cheat:
    """An honest subject; those below differ from it in what their first line says.

    violation: what it must be caught at; gpu: True if it needs one; mode: in which it is run
    timed: True if verification alone cannot catch it
    """

    violation: ClassVar[Violation | None] = None
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
        tools.work(source, target)


class SkipsWork(Cheat):
    """returns at once"""

    violation = Violation.SKIPS_WORK

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        pass


class AsleepAtFirst(Cheat):
    """does nothing in its first four calls, and works from then on"""

    violation = Violation.ASLEEP_AT_FIRST

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if self.calls > 4:
            tools.work(source, target)


class WorksOnlyTimed(Cheat):
    """looks at the stack, and does nothing unless it is timed"""

    violation = Violation.SKIPS_WORK

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        frame = sys._getframe()
        while frame and frame.f_code.co_name not in ("time", "launch"):
            frame = frame.f_back
        if frame:
            tools.work(source, target)


class WorksOnlyVerified(Cheat):
    """works in its first thirty calls, which are more than a verification makes, and never again"""

    violation = Violation.NOT_IN_TIMING
    timed = True

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if self.calls <= 30:
            tools.work(source, target)


class OnceInFive(Cheat):
    """works in one of five calls"""

    violation = Violation.NOT_EVERY_CALL

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if self.calls % 5 == 1:
            tools.work(source, target)


class WritesLate(Cheat):
    """has a thread do the work 5 ms after the call is over"""

    violation = Violation.WRITES_LATE

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        def later() -> None:
            time.sleep(LATE)
            tools.work(source, target)

        threading.Thread(target=later).start()


class OtherStream(Cheat):
    """queues its work on a stream of its own"""

    violation = Violation.OTHER_STREAM
    gpu = True

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        with tools.other_stream():
            tools.work(source, target)


class DelayedOnOtherStream(Cheat):
    """queues 5 ms of nothing and then its work on a stream of its own"""

    violation = Violation.OTHER_STREAM
    gpu = True

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        with tools.other_stream() as stream:
            tools.delay(stream)
            tools.work(source, target)


class CachesByPointer(Cheat):
    """returns at once if it has been called with these addresses before"""

    violation = Violation.CACHES_BY_POINTER

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if self.seen.setdefault(tools.address(target), self.calls) == self.calls:
            tools.work(source, target)


class CachesAnswer(Cheat):
    """copies the bytes that it wrote when it was first called with these addresses"""

    violation = Violation.CACHES_BY_POINTER

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if tools.address(target) not in self.seen:
            tools.work(source, target)
            self.seen[tools.address(target)] = target.copy()
        tools.assign(target, self.seen[tools.address(target)])


class BakesAnswer(Cheat):
    """computes while it is captured, beside the graph, and has the graph copy the result"""

    violation = Violation.CACHES_BY_POINTER
    gpu, mode = True, "graph"

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if not tools.capturing():
            tools.work(source, target)
            return
        with tools.other_stream() as stream:
            answer = target.copy()
            tools.work(source, answer)
            stream.synchronize()
        self.seen[self.calls] = answer
        tools.assign(target, answer)


class NotCaptured(Cheat):
    """does its work beside the graph while it is captured, so that the graph holds nothing"""

    violation = Violation.NOT_CAPTURED
    gpu, mode = True, "graph"

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if not tools.capturing():
            tools.work(source, target)
            return
        with tools.other_stream():
            tools.work(source, target)


class FirstRotation(Cheat):
    """of the buffers that a timed graph goes round, works on the first alone"""

    violation = Violation.FIRST_ROTATION
    gpu, mode, timed = True, "graph", True

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        if not tools.capturing():
            self.seen.clear()
        else:
            self.seen.setdefault(0, tools.address(target))
        if self.seen.get(0, tools.address(target)) == tools.address(target):
            tools.work(source, target)


class AsksOracle(Cheat):
    """asks the harness's oracle for the answer"""

    violation = Violation.READS_ORACLE

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        from harness.expected.expected import expect

        tools.assign(target, tools.like(target, expect(case).values[FIELD]))


class SearchesMemory(Cheat):
    """searches its process's memory for the answer, and writes nothing if there is none"""

    violation = Violation.SKIPS_WORK

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        answers = [each for each in gc.get_objects() if isinstance(each, dict) and FIELD in each]
        found = [each[FIELD] for each in answers if isinstance(each[FIELD], np.ndarray)]
        found = [each for each in found if each is not target and each.size == target.size]
        if any(address != tools.address(target) for address in map(tools.address, found)):
            tools.assign(target, tools.like(target, found[0]))


class WritesOutside(Cheat):
    """does its work, and changes the first byte of the guard before its output"""

    violation = Violation.WRITES_OUTSIDE

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        tools.work(source, target)
        first = tools.before(target, GUARD)
        tools.assign(first, first ^ 0xFF)


class ModifiesInputs(Cheat):
    """does its work, and clears the first byte of its input"""

    violation = Violation.MODIFIES_INPUTS

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        tools.work(source, target)
        first = source[:1, :1]
        tools.assign(first, first ^ 0xFF)


class DependsOnPoison(Cheat):
    """reads its outputs before it writes them"""

    violation = Violation.DEPENDS_ON_POISON

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        before = (target == 0x5A).astype(np.uint8)
        tools.work(source, target)
        tools.assign(target, target ^ before)


class Leaves(Cheat):
    """ends its process as if all were well"""

    violation = Violation.LEAVES

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        os._exit(0)


class ForgesAnswers(Cheat):
    """does nothing, and tells the harness itself that its work is done"""

    violation = Violation.FORGES

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        for each in gc.get_objects():
            if isinstance(each, socket.socket):
                messages.send_answer(each, {"ok": {}})


class ClaimsLessTime(Cheat):
    """does its work, and has the process that times it report a tenth of the time"""

    violation = Violation.BELOW_WALL_CLOCK
    gpu, mode, timed = True, "graph", True

    def quantize(self, case: Case, source: Any, target: Any) -> None:
        tools.work(source, target)
        if self.calls == 1:
            found = CudaCaller.time

            def faster(caller: CudaCaller, **given: Any) -> dict[str, Any]:
                said = found(caller, **given)
                return said | {"seconds": said["seconds"] / 10}

            CudaCaller.time = faster


CHEATS = tuple(Cheat.__subclasses__())
