"""Call a function on many items, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")


def each_alone(
    function: Callable[[Item], Found], items: Iterable[Item], jobs: int, longest: float
) -> Iterator[tuple[Item, Found | None]]:
    """Each item and its result, as they come; None for one whose process died.

    jobs: processes at a time; longest: seconds, after which a process is killed, as one that waits for a GPU must be
    """
    context = multiprocessing.get_context("fork")
    waiting = list(items)[::-1]
    running: dict[Connection, tuple[Item, multiprocessing.process.BaseProcess, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            item = waiting.pop()
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_send, args=(sender, function, item), daemon=True)
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


def _send(sender: Connection, function: Callable[[Item], Found], item: Item) -> None:
    sender.send(function(item))
