"""Work shared among processes, with a progress bar."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from rich.progress import track

from harness.suite.ending import serve_parent
from harness.text import console

Found = TypeVar("Found")
Work = TypeVar("Work")


def side_by_side(function: Callable[[Work], Found], work: Sequence[Work], processes: int) -> list[Found]:
    """`function` of every piece of work, in their order. What is interrupted ends at once."""
    with ProcessPoolExecutor(processes, initializer=serve_parent) as pool:
        try:
            done = pool.map(function, work)
            return list(track(done, "compiling", len(work), disable=not console().is_terminal))
        except BaseException:
            for process in multiprocessing.active_children():
                process.kill()
            raise
