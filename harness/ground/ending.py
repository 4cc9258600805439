"""How processes end: a signal acts like Ctrl-C, and a process ends with its parent.

Ctrl-C, SIGTERM and SIGHUP just end a process that still loads modules (`harness/__main__.py`,
`runner/pytest_child.py`). From then on `interrupt_by_signals` has them raise KeyboardInterrupt, for which `cli.main`
exits with 130. A suite run is two processes: `runner/supervisor.py` hands on what has not reached pytest's process
anyway, and ends with 130 unless that one ended in its own way; there pytest stops its loop over cases, and
`runner/run.py` prints how to go on.
"""

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
_AT_ONCE = 1.0  # seconds; within them a repeated signal is the same one, sent to the group and also forwarded
_LATER = 0.02  # seconds until a finalizer has probably ended
_WEAK = (weakref.__file__, _weakrefset.__file__)
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def interrupt_by_signals() -> None:
    """Make the signals that end a process raise KeyboardInterrupt, so that it cleans up and says how to resume.

    A SIGHUP that is ignored, as under `nohup`, stays ignored. Does nothing outside of the main thread.
    """
    last = -_AT_ONCE
    waits = False  # whether an interrupt waits for a finalizer; no lock, because the interrupted code may hold it

    def send_again(number: int) -> None:
        # Repeat until the handler has run, because a signal just before a blocking call does not interrupt it.
        while waits:
            time.sleep(_LATER)
            if waits:
                signal.pthread_kill(threading.main_thread().ident, number)

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last, waits
        if _in_finalizer(frame):  # Python ignores exceptions there, so the interrupt would be lost
            if not waits:
                waits = True
                threading.Thread(target=send_again, args=(number,), daemon=True).start()
            return
        waits = False
        before, last = last, time.monotonic()
        if last - before >= _AT_ONCE:
            raise KeyboardInterrupt

    hear_children()
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, interrupt)


def hear_children() -> None:
    """Take back that SIGCHLD is ignored, as a parent may hand it down (`trap '' CHLD` in a shell).

    Where it is ignored, no signal says that a child has ended, and the child's exit code is lost and read as 0. Does
    nothing outside of the main thread, which alone may change it.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether a frame runs in a `__del__` or in a callback of a weak reference."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename in _WEAK:
            return True
        frame = frame.f_back
    return False


def end_with_parent(parent: int) -> None:
    """Call it in a new process: the kernel then kills this process when `parent` ends, in whatever way."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has already ended, so no signal will come
        os.kill(os.getpid(), signal.SIGKILL)


def serve_parent() -> None:
    """`end_with_parent` for a process of a pool, which ignores Ctrl-C because its parent reports the interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    end_with_parent(multiprocessing.parent_process().pid)
