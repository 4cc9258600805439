"""Where the seconds of this process go. Each second counts for one kind of work, the innermost in progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

COMPILE, INPUTS, ORACLES, UPLOAD, VERIFY = "compile", "inputs", "oracles", "upload", "verify"
WARMING, ROUNDS = "warm-up", "rounds"
KINDS = (COMPILE, INPUTS, ORACLES, UPLOAD, VERIFY, WARMING, ROUNDS)


class Seconds:
    """Seconds by kind of work.

    If work of one kind contains another kind, the inner work's seconds count only for the inner kind.
    """

    def __init__(self) -> None:
        self.totals = dict.fromkeys(KINDS, 0.0)
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        """Count the seconds of the context for this kind."""
        self._close()
        self._open.append(kind)
        try:
            yield
        finally:
            self._close()
            self._open.pop()

    def _close(self) -> None:
        now = perf_counter()
        if self._open:
            self.totals[self._open[-1]] += now - self._since
        self._since = now


class Waits:
    """Seconds that this process waited for others to leave room, which are no seconds of a case."""

    def __init__(self) -> None:
        self._before, self._since = 0.0, 0.0

    @property
    def total(self) -> float:
        """So far, with the wait that is going on."""
        since = self._since  # read once, because a watchdog asks from another thread
        return self._before + (perf_counter() - since if since else 0.0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the seconds of the context, which does not contain another."""
        self._since = perf_counter()
        try:
            yield
        finally:
            self._before += perf_counter() - self._since  # first, so that the total never shrinks for a moment
            self._since = 0.0


SECONDS = Seconds()
WAITS = Waits()
