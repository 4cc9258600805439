"""Limit how many of the largest cases run at a time on this machine: each keeps many gigabytes in memory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from filelock import Timeout

from harness.contract.case import Case
from harness.errors import InputError
from harness.ground.locks import NamedLock, tell_waiting
from harness.ground.seconds import WAITS

LARGE = 1 << 28  # elements
AT_A_TIME = 4
PAUSE, TELL_EVERY = 0.2, 300.0  # seconds
LEAST = 8  # bytes per element: at least the tensor and a float32 copy are in memory


def require_memory(case: Case) -> None:
    """Raise InputError for a case that does not fit in this machine's memory."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if case.elements * LEAST > there:
        gib = f"{case.elements * LEAST >> 30:,} GiB of memory or more; this machine has {there >> 30:,}"
        raise InputError(f"{case.id} takes {gib}; choose a smaller shape")


@contextmanager
def host_room(case: Case) -> Iterator[None]:
    """Wait until fewer than AT_A_TIME other large cases are drawn or run on this machine; small cases do not wait."""
    if case.elements < LARGE:
        yield
        return
    folder, remedy = Path(tempfile.gettempdir()), "it is for all users of this machine, so ask its owner to remove it"
    places = [NamedLock.of(folder / f"nvfp4-harness-room{i}.lock", 0o666, remedy) for i in range(AT_A_TIME)]
    with WAITS.waiting():
        taken = _taken(places)
    with taken:
        yield


def _taken(places: Sequence[NamedLock]) -> AbstractContextManager[object]:
    since = told = time.monotonic()
    while True:
        for place in places:
            with suppress(Timeout):
                return place.acquire(blocking=False)
        if time.monotonic() - told >= TELL_EVERY:
            told = time.monotonic()
            tell_waiting(since, *(Path(place.lock_file) for place in places))
        time.sleep(PAUSE)
