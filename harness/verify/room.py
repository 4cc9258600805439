"""Room for a case: a place among the largest that run on this machine at a time, and the GPU memory that it needs.

Each of the largest keeps many gigabytes in memory. What a case needs is told from its fields before anything is
allocated.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import numpy as np
from filelock import Timeout

from harness.contract.case import Case
from harness.contract.field import round_up
from harness.device.capability import needed
from harness.device.device import Device
from harness.device.memory import ALIGNMENT, GUARD
from harness.expected.expected import fields_of
from harness.ground.locks import NamedLock, tell_waiting
from harness.ground.seconds import WAITS
from harness.suite.launch_plan import Step, plans, scratch_and_workspace
from harness.verify.judge import POISONS

LARGE = 1 << 28  # elements
AT_A_TIME = 4
PAUSE, TELL_EVERY = 0.2, 300.0  # seconds


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


INPUTS = 3  # what kernels read, the pristine copy, and that of the second input while it takes the first one's place
EXPECTED = 2  # the expected bytes of an output, or both ends of an interval
COUNTED = 1 << 20  # elements; a smaller case is within the share of any process, and telling its needs takes time
BLOCK = 512  # bytes; CuPy's pool rounds each array up to a multiple


def gpu_needs(case: Case, device: Device, inputs: Mapping[str, np.ndarray]) -> int:
    """Bytes of inputs, outputs with their guards, copies of each run, workspaces and scratch.

    inputs: the arrays that the case's kernels read, by parameter. Returns 0 for a small case, and for the emulator.
    Of a subject or card, what it allocates by itself is not known; the oracle's temporaries, which stay in torch's pool
    while it runs, are added.
    """
    if device.name != "cuda" or case.elements < COUNTED:
        return 0
    fields = list(fields_of(case).values())
    outputs = sum(_block(_guarded(field.allocated)) for field in fields)
    copies = len(POISONS) * sum(_block(field.nbytes) for field in fields)
    expected = EXPECTED * max((_block(field.nbytes) for field in fields), default=0)
    own = needed(case) if device.subject_label else max(map(_of_launches, plans(case)))
    read = _sum(array.nbytes for array in inputs.values())
    # A graph is captured on the same arrays, but may be compared with an eager program on others.
    eager = 2 * read + outputs + copies + own if case.mode == "graph" else 0
    return INPUTS * read + outputs + copies + expected + own + eager


def _of_launches(steps: Iterable[Step]) -> int:
    """Scratch and workspaces."""
    scratch, workspace = scratch_and_workspace(steps)
    return _sum(scratch.values()) + _sum(map(_guarded, workspace.values()))


def _guarded(size: int) -> int:
    return 2 * GUARD + round_up(size, ALIGNMENT)


def _sum(sizes: Iterable[int]) -> int:
    return sum(map(_block, sizes))


def _block(size: int) -> int:
    return round_up(size, BLOCK)
