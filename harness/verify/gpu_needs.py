"""How many bytes of GPU memory a case's own arrays take, told from its fields before anything is allocated there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from harness.contract.case import Case
from harness.contract.field import round_up
from harness.device.capability import needed
from harness.device.device import Device
from harness.device.memory import ALIGNMENT, GUARD
from harness.suite.launch_plan import own_memory, plan
from harness.verify.expected import fields_of
from harness.verify.judge import POISONS

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
    own = needed(case) if device.subject_label else max(_of_launches(case, fits) for fits in (True, False))
    read = _sum(array.nbytes for array in inputs.values())
    # A graph is captured on the same arrays, but may be compared with an eager program on others.
    eager = 2 * read + outputs + copies + own if case.mode == "graph" else 0
    return INPUTS * read + outputs + copies + expected + own + eager


def _of_launches(case: Case, fits: bool) -> int:
    """Scratch and workspaces, where a GPU holds all CTAs of a launch at once, or does not."""
    scratch, workspace = own_memory(plan(case, fits=lambda step: fits))
    return _sum(scratch.values()) + _sum(map(_guarded, workspace.values()))


def _guarded(size: int) -> int:
    return 2 * GUARD + round_up(size, ALIGNMENT)


def _sum(sizes: Iterable[int]) -> int:
    return sum(map(_block, sizes))


def _block(size: int) -> int:
    return round_up(size, BLOCK)
