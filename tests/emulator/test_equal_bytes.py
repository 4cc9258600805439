"""The kernel that compares bytes on a GPU, run on the emulator; arrays of NumPy's are compared without it."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, module

from harness.device.equal_bytes import _SOURCE, equal_bytes
from harness.emulator.launch import launch

BYTE = 0xA5


def differ(one: np.ndarray, other: np.ndarray | None, offset: int = 0) -> bool:
    """What the kernel says of `one` from `offset` on, beside another array or BYTE."""
    found = np.zeros(1, np.uint32)
    first, second = buffer("one", one), 0 if other is None else buffer("other", other)
    memory = [first] if other is None else [first, second]
    address = [first.address + offset, second and second.address + offset]
    launch(
        module(_SOURCE), "differ", (2, 1, 1), (32, 1, 1), [*address, one.nbytes - offset, BYTE, buffer("found", found)],
        memory=memory,
    )  # fmt: skip
    return bool(found[0])


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("offset", [0, 1, 16])
@pytest.mark.parametrize("size", [17, 1100])
def test_every_byte_counts(size: int, offset: int, beside: bool):
    right = np.full(size, BYTE, np.uint8)
    assert not differ(right, right.copy() if beside else None, offset)
    for place in {0, 15, 16, size // 2, size - 1}:
        wrong = right.copy()
        wrong[place] ^= 0x10
        assert differ(wrong, right if beside else None, offset) == (place >= offset), place


def test_on_the_host_sizes_and_bytes_count():
    nan = np.full(3, np.nan, np.float32)
    assert equal_bytes(nan, nan.copy())
    assert not equal_bytes(nan, nan[:2])
    assert not equal_bytes(np.float32([0.0]), np.float32([-0.0]))
    assert equal_bytes(np.full(3, BYTE, np.uint8), BYTE)
    assert not equal_bytes(np.uint8([BYTE, 0]), BYTE)
