"""Work shared among processes, with a progress bar."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from rich.progress import track

from harness.ground.ending import serve_parent
from harness.text import console

Found = TypeVar("Found")
Work = TypeVar("Work")


def side_by_side(function: Callable[[Work], Found], work: Sequence[Work], processes: int) -> list[Found]:
    """Call `function` on every piece of work in parallel, and return the results in order.

    An interrupt ends it at once.
    """
    with process_pool(processes) as pool:
        tasks = [pool.submit(function, each) for each in work]
        return [task.result() for task in track(tasks, "compiling", disable=not console().is_terminal)]


@contextmanager
def process_pool(processes: int, start_method: str | None = None) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that end at once when their user is interrupted or fails.

    Give them work by `submit`: `map` cancels what has not begun, a cancelled future takes no exception, and so a pool
    whose processes were killed prints a traceback of its own.
    start_method: of `multiprocessing`; "spawn" where this process has a GPU in use, which a forked one cannot use
    """
    with ProcessPoolExecutor(processes, multiprocessing.get_context(start_method), serve_parent) as pool:
        try:
            yield pool
        except BaseException:
            for process in multiprocessing.active_children():
                process.kill()
            raise
