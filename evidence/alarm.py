"""An alarm for code that may never end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class OutOfTime(BaseException):
    """The block under `at_most` did not end in time.

    Not an Exception, so that other code's handlers do not catch it.
    """


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise OutOfTime in a block that takes longer. Cannot be nested: a process has one alarm."""

    def late(*_: object) -> None:
        raise OutOfTime(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # repeats, in case the code swallows the error
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
