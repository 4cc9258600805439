"""The exercises on the emulator: what they write is what their models say, with no fault, in three orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_source import buffer, module
from exercises import ALL, BEFORE, Exercise, Tensor

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

ORDERS = (ASCENDING, DESCENDING, Schedule(seed=1))


def emulated(each: Exercise, arch: str = "sm_90a", **options) -> dict[str, np.ndarray]:
    """The arrays after a launch on the emulator."""
    arrays = {name: array.copy() for name, array in each.arrays.items()}
    buffers = {name: buffer(name, array) for name, array in arrays.items()}

    def argument(given: str | Tensor | int) -> object:
        if isinstance(given, Tensor):
            return replace(given.map, address=buffers[given.array].address).encode()
        return buffers[given] if isinstance(given, str) else given

    arguments = [argument(given) for given in each.arguments]
    memory = list(buffers.values())
    launch(module(each.source, arch), "k", (each.grid, 1, 1), (each.block, 1, 1), arguments, each.shared,
           memory=memory, **options)  # fmt: skip
    return arrays


@pytest.mark.parametrize(
    "each", [pytest.param(each, marks=pytest.mark.covers(*each.covers), id=each.name) for each in ALL]
)
def test_writes_what_its_model_says(each: Exercise) -> None:
    wanted = each.wanted(each.arrays)
    for order in ORDERS:
        found = emulated(each, schedule=order)
        for name, array in each.arrays.items():
            right = wanted.get(name, array)
            if right is None:
                continue
            wrong = np.flatnonzero(found[name] != right)
            assert not wrong.size, f"{name}[{wrong[0]}] of {each.name}: {found[name][wrong[0]]}, not {right[wrong[0]]}"


@pytest.mark.parametrize("each", BEFORE, ids=[each.name for each in BEFORE])
def test_a_store_that_begins_before_the_tensor_is_a_fault(each: Exercise) -> None:
    with pytest.raises(Fault, match="stores a box at coordinates .* for a store a GPU raises an illegal instruction"):
        emulated(each)


def test_a_store_into_the_end_of_a_row_needs_a_buffer_that_has_it() -> None:
    """The last row of 97 bytes ends with the buffer, and a GPU writes 15 bytes behind it."""
    (each,) = (each for each in ALL if each.name == "store.2d.odd")
    short = {**each.arrays, "tensor": each.arrays["tensor"][: 19 * 112 + 97].copy()}
    with pytest.raises(Fault, match=r"within 16 bytes, of which a GPU writes all: byte 2239 .* which has 2225 bytes"):
        emulated(replace(each, arrays=short))


def test_without_the_sanitizer() -> None:
    ring = ALL[0]
    assert (emulated(ring, sanitize=False)["out"] == ring.wanted(ring.arrays)["out"]).all()
