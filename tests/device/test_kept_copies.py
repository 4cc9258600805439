"""Copies on a GPU: one for each array while it lives, as many as there is room for, and none by default."""

from __future__ import annotations

import numpy as np

from harness.device.memory import KeptCopies


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
