"""Work shared among processes that end with the one that began them."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from rich.progress import track

from harness.text import console

Found = TypeVar("Found")
Work = TypeVar("Work")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def end_with_parent() -> None:
    """In a process that has just begun: be killed when the process that began it ends, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def serve_parent() -> None:
    """The same in a process of a pool, whose parent alone says that it was interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    end_with_parent()


def side_by_side(function: Callable[[Work], Found], work: Sequence[Work], processes: int) -> list[Found]:
    """`function` of every piece of work, in their order, with a progress bar. What is interrupted ends at once."""
    with ProcessPoolExecutor(processes, initializer=serve_parent) as pool:
        try:
            done = pool.map(function, work)
            return list(track(done, "compiling", len(work), disable=not console().is_terminal))
        except BaseException:
            for process in multiprocessing.active_children():
                process.kill()
            raise
