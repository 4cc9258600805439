"""Room in the machine's memory for the largest cases, over all processes: each keeps many gigabytes while it runs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from harness.contract.case import Case

LARGE = 1 << 28  # elements
AT_A_TIME = 4
PAUSE = 0.2  # seconds


@contextmanager
def host_room(case: Case) -> Iterator[None]:
    """Wait until fewer than AT_A_TIME other large cases are drawn or run on this machine; others do not wait."""
    if case.elements < LARGE:
        yield
        return
    places = [FileLock(Path(tempfile.gettempdir(), f"nvfp4-harness-room{i}.lock")) for i in range(AT_A_TIME)]
    taken = None
    while taken is None:
        for place in places:
            try:
                taken = place.acquire(blocking=False)
                break
            except Timeout:
                continue
        else:
            time.sleep(PAUSE)
    with taken:
        yield
