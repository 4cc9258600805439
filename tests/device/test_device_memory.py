"""Memory of a case, here of NumPy's arrays: slack is nobody's, a split moves its start; and copies that are kept."""

from __future__ import annotations

import numpy as np
import pytest

from harness.contract.field import Field
from harness.device.memory import GUARD, CaseMemory, Guarded, KeptCopies, Lent

FIELD = Field((5,), "float32", slack=3)


@pytest.fixture
def guarded() -> Guarded:
    made = Guarded(FIELD, np)
    made.poison(0xA5)
    return made


def test_a_kernel_is_given_the_field_and_its_slack_and_writes_the_field(guarded: Guarded):
    assert (guarded.payload.nbytes, guarded.allocation.nbytes) == (20, 32)
    guarded.payload[:] = 0
    assert guarded.trespass(0xA5) == ""


def test_lent_memory_offers_a_launch_what_guarded_memory_does(guarded: Guarded):
    array = np.zeros(20, np.uint8)
    views = {name for name, value in vars(Guarded).items() if isinstance(value, property)}
    assert views == {"allocation", "payload"}
    assert all(getattr(Lent(array), name) is array for name in views)


@pytest.mark.parametrize(
    ("offset", "where"),
    [
        (-1, "1 bytes before it were written, the nearest 1 bytes off"),
        (20, "1 bytes of its slack were written, the nearest 1 bytes off"),
        (31, "1 bytes of its slack were written, the nearest 12 bytes off"),
        (32, "1 bytes after it were written, the nearest 1 bytes off"),
    ],
)
def test_what_is_written_beside_the_field_is_named(guarded: Guarded, offset: int, where: str):
    guarded.memory[GUARD + offset] = 0
    assert guarded.trespass(0xA5) == where


def test_another_split_lies_at_the_same_address():
    memory = CaseMemory({"input": np.zeros(4, np.uint8)}, {"output": FIELD}, np)
    output = memory.outputs["output"]
    before = output.allocation.ctypes.data
    memory.refit({"output": Field((8,), "float32")})
    output.poison(0)
    assert (output.allocation.ctypes.data, output.payload.nbytes, output.trespass(0)) == (before, 32, "")
    memory.refit({"output": Field((0,), "float32", slack=8)})
    assert (output.allocation.ctypes.data, output.payload.nbytes) == (before, 0)
    with pytest.raises(ValueError, match="a field of 36 bytes in an allocation of 32"):
        memory.refit({"output": Field((9,), "float32")})


# Copies on a GPU: one for each array while it lives, as many as there is room for, and none by default


def test_a_copy_that_is_there_already_is_not_made_again():
    kept, array = KeptCopies(), np.arange(8, dtype=np.uint8)
    kept.limit = 8
    copy = array.copy()
    kept.keep(array, copy)
    assert kept.of(array, lambda _: 1 / 0) is copy and kept.nbytes == 8


def test_nothing_is_kept_without_room():
    kept, array = KeptCopies(), np.arange(8, dtype=np.uint8)
    kept.keep(array, array.copy())
    assert kept.nbytes == 0 and kept.of(array, np.copy) is not array


def test_a_copy_goes_with_its_array_and_an_equal_one_has_its_own():
    kept, array = KeptCopies(), np.arange(8, dtype=np.uint8)
    kept.limit = 64
    copy = kept.of(array, np.copy)
    other = array.copy()
    assert kept.of(other, np.copy) is not copy and kept.nbytes == 16
    del array
    assert kept.nbytes == 8
