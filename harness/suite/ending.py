"""How processes end: by a signal as by Ctrl-C, and with the process that began them."""

from __future__ import annotations

import _weakrefset
import ctypes
import multiprocessing
import os
import signal
import threading
import time
import weakref
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE = 1.0  # seconds in which a signal that comes again is the same one, sent to a group and handed down, too
_LATER = 0.02  # seconds, in which a finalizer may have ended
_WEAK = (weakref.__file__, _weakrefset.__file__)
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def interrupt_by_signals() -> None:
    """Have the signals that end a process raise KeyboardInterrupt, so that it ends what it began and says how to go on.

    A SIGHUP that is ignored, as `nohup` has it, stays so. Does nothing in another thread than the first.
    """
    last = -_AT_ONCE
    waits = False  # whether an interrupt waits for the end of a finalizer; a lock could be held where a signal comes

    def send_again(number: int) -> None:
        # Until the handler has noticed: a signal just before a call that blocks is too early.
        while waits:
            time.sleep(_LATER)
            if waits:
                signal.pthread_kill(threading.main_thread().ident, number)

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last, waits
        if _in_finalizer(frame):  # where Python ignores what is raised, and the interrupt would be lost
            if not waits:
                waits = True
                threading.Thread(target=send_again, args=(number,), daemon=True).start()
            return
        waits = False
        before, last = last, time.monotonic()
        if last - before >= _AT_ONCE:
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, interrupt)


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether a frame is of a `__del__`, or of what weak references call, or below one."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename in _WEAK:
            return True
        frame = frame.f_back
    return False


def end_with_parent(parent: int) -> None:
    """In a process that has just begun: be killed when the process that began it, `parent`, ends, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already, and no signal will come
        os.kill(os.getpid(), signal.SIGKILL)


def serve_parent() -> None:
    """The same in a process of a pool, whose parent alone says that it was interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    end_with_parent(multiprocessing.parent_process().pid)
