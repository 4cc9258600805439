"""Work shared among processes: with a progress bar, in a pool, or each piece in a process of its own."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
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
def forking() -> Iterator[None]:
    """Start forked processes in this block without the warning of Python 3.12 that this process has threads.

    They are those of BLAS and torch. BLAS starts its own anew in a child; children keep torch to one thread.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield


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


def each_alone(
    function: Callable[[Work], Found], items: Iterable[Work], jobs: int, longest: float
) -> Iterator[tuple[Work, Found | None]]:
    """Each item and its result, as they come; None for one whose process died.

    jobs: processes at a time; longest: seconds, after which a process is killed, as one that waits for a GPU must be
    """
    context = multiprocessing.get_context("fork")
    waiting = list(items)[::-1]
    running: dict[Connection, tuple[Work, multiprocessing.process.BaseProcess, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            item = waiting.pop()
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_send, args=(sender, function, item), daemon=True)
            with forking():
                process.start()
            sender.close()  # so that the end of the process ends the pipe
            running[receiver] = item, process, time.monotonic() + longest
        first = min(deadline for _, _, deadline in running.values())
        for receiver in wait(list(running), max(0.0, first - time.monotonic())):
            item, process, _ = running.pop(receiver)
            try:
                found = receiver.recv()
            except EOFError:
                found = None
            process.join()
            yield item, found
        for _, process, deadline in running.values():
            if deadline < time.monotonic():
                process.kill()


def _send(sender: Connection, function: Callable[[Work], Found], item: Work) -> None:
    sender.send(function(item))
