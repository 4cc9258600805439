"""An end to what may never come to one, in the main thread of a process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class OutOfTimeError(TimeoutError):
    """What was begun under `at_most` did not end in time."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise OutOfTimeError in what takes longer. Not to be nested: a process has one alarm."""

    def late(*_: object) -> None:
        raise OutOfTimeError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
