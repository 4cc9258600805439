"""A wrong byte in any field of any recipe or pipeline gets its screen, and the trace that the screen names is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from suite_files import smallest

import harness
from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.verify.diagnosis.trace import trace

SIGNALLING = {"float16": 0x7D01, "bfloat16": 0x7F81, "float32": 0x7F800001}


def wrong(right: np.ndarray | Interval) -> Iterator[np.ndarray]:
    """Other values in every entry, outside of its interval if it has one, and the NaNs that NumPy warns of."""
    if isinstance(right, Interval):
        yield np.full_like(right.high, 3e4)
    else:
        yield (right.reshape(-1).view(np.uint8) ^ 0x41).view(right.dtype).reshape(right.shape)
    if right.dtype.name in SIGNALLING:
        bits = np.full(right.shape, SIGNALLING[right.dtype.name], f"u{right.dtype.itemsize}")
        yield bits.view(right.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("case", smallest(), ids=lambda case: case.id)
def test_a_wrong_field_gets_its_screen_and_its_trace(case: Case):
    inputs = harness.make_inputs(case)
    right = harness.ask_oracle(case, "numpy", inputs)
    written = {name: value.low if isinstance(value, Interval) else value for name, value in right.items()}
    assert harness.compare_outputs(case, written, right, inputs) == ""
    for name in filter(lambda name: written[name].size, right):
        for array in wrong(right[name]):
            screen = harness.compare_outputs(case, written | {name: array}, right)
            assert screen.startswith(f"MISMATCH  {case.id}") and f"{name.rpartition('.')[2]} " in screen
        place = re.search(rf"(?:--tensor (\d+) )?--field {re.escape(name)} --at (\d+),(\d+)", screen)
        if place:
            tensor, *at = map(int, place.groups(default="0"))
            shown = trace(case, name, tuple(at), written | {name: array}, inputs, tensor)
            assert name.rpartition(".")[2] in shown
