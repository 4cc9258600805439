"""Keep a case that takes its process down from costing any other: its result is left, and a new process goes on.

A kernel that never returns cannot be stopped, and one that breaks the CUDA context breaks it for every later case of
the process; either way the process ends.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.contract.case import Case
from harness.device.device import Device
from harness.errors import HarnessError
from harness.files import EMULATOR, PACKAGE, refused_storage, storage_error
from harness.ground.seconds import WAITS
from harness.verdict import Result, Story, Verdict
from harness.verify.verify import blank, failed

_GRACE = 30  # seconds after the timeout; then a process ends even if its other Python threads cannot run
_EXACT = 0.01  # seconds that two clocks may differ by


class Watchdog:
    """Calls `late` if a case takes longer than `seconds`, without its waits for room; 0 is no limit.

    late: gets the case and what its thread is doing, in one line and in several; called in another thread, and does not
    return
    """

    def __init__(self, seconds: float, late: Callable[[Case, str, str], None]):
        self.seconds, self.late = seconds, late

    @contextmanager
    def over(self, case: Case) -> Iterator[None]:
        """Watch the calling thread while the context lasts."""
        if not self.seconds:
            yield
            return
        watched, done, lock = threading.get_ident(), threading.Event(), threading.Lock()
        began, waited = time.monotonic(), WAITS.total
        timer = threading.Timer(0, lambda: None)

        def expire() -> None:
            with lock:
                if done.is_set():
                    return
                left = self.seconds - (time.monotonic() - began) + (WAITS.total - waited)
                if left > _EXACT:
                    watch(left)
                else:
                    self.late(case, *_doing(watched, self.seconds))

        def watch(seconds: float) -> None:
            nonlocal timer
            timer = threading.Timer(seconds, expire)
            timer.daemon = True
            timer.start()
            faulthandler.dump_traceback_later(seconds + _GRACE, exit=True)

        watch(self.seconds)
        try:
            yield
        finally:
            with lock:
                done.set()
            timer.cancel()
            faulthandler.cancel_dump_traceback_later()


class GaveUp(Exception):
    """Raised for a case after which its process can run no other. result: the case's"""

    def __init__(self, result: Result):
        super().__init__(result.reason)
        self.result = result


def attempt(case: Case, device: Device, run: Callable[[], Result]) -> Result:
    """Return the result of `run`. Raises GaveUp if this process can run no other case on the device.

    Raises what `run` raises if the device is still there.
    """
    try:
        result = run()
    except HarnessError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and refused_storage(error):
            raise storage_error(error.filename or "a file", error) from None
        lost = device.lost()
        if not lost:
            raise
        raise GaveUp(given_up(case, device, f"{lost}, after {error!r}")) from None
    if result.verdict is Verdict.LAUNCH_ERROR and device.lost():
        raise GaveUp(result)
    if result.verdict is Verdict.OUT_OF_BOUNDS and device.name == "cuda":
        # The kernel may have overwritten anything in this process's memory.
        raise GaveUp(result)
    return result


def given_up(case: Case, device: Device, reason: str, detail: str = "") -> Result:
    """The result of a case that ends its process. detail: more lines for its story, such as the stack"""
    empty = blank(case, device)
    # In the making of inputs or in an oracle, it says nothing about the kernel.
    verdict = Verdict.SETUP_ERROR if _in_an_oracle(detail) else Verdict.LAUNCH_ERROR
    story = Story(f"{verdict}  {case.id}\n  {reason}\n{detail}".rstrip())
    return failed(empty, verdict, reason, story)


def died(case: Case, how: str, device: Device) -> Result:
    """The result of a case whose process ended and left no record."""
    reason = f"{how}, and left no record; --resume runs the case again"
    # On a cluster, the device stands for all machines and has no targets.
    ran = Result(
        case.id, case.recipe, Verdict.LAUNCH_ERROR, reason, input=case.input, device=device.name, died=True,
        subject=device.subject_label,
    )  # fmt: skip
    return failed(ran, ran.verdict, reason)


def _doing(thread: int, seconds: float) -> tuple[str, str]:
    """Where a thread is: the innermost line of the harness, and the whole stack."""
    frames = traceback.extract_stack(sys._current_frames()[thread])
    own = [frame for frame in frames if any(map(Path(frame.filename).is_relative_to, (PACKAGE, EMULATOR)))]
    last = (own or frames)[-1]
    place = f"{Path(last.filename).name}:{last.lineno}, {last.line}"
    detail = "".join(f"  {line}\n" for line in "".join(traceback.format_list(own or frames[-6:])).splitlines())
    return f"no end after {seconds:g} s, in {place}", detail


def _in_an_oracle(stack: str) -> bool:
    """Whether a stack is one of the harness that makes inputs or asks an oracle; those of a kernel's runs are not."""
    return any(f"{Path('harness', folder)}/" in stack for folder in ("expected", "oracles"))
