"""The kernel that compares bytes on a GPU, run on the emulator; arrays of NumPy's are compared without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from ctypes import string_at
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from harness.device.memory import _SOURCE, _kernel, equal_bytes
from harness.jit.nvrtc import build
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

BYTE = 0xA5


@cache
def differs() -> Module:
    return Module(build("equal.cu", {"equal.cu": _SOURCE}, (), ("-arch=compute_90a",)).ptx)


def differ(one: np.ndarray, other: np.ndarray | None, offset: int = 0) -> bool:
    """Whether the kernel finds that `one`, from byte `offset` on, differs from another array, or from BYTE."""
    found = np.zeros(1, np.uint32)
    first, second = Buffer("one", one), 0 if other is None else Buffer("other", other)
    memory = [first] if other is None else [first, second]
    address = [first.address + offset, second and second.address + offset]
    launch(
        differs(), "differ", (2, 1, 1), (32, 1, 1),
        [*address, one.nbytes - offset, BYTE, Buffer("found", found.view(np.uint8))], memory=memory,
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


class OnGpu:
    """An array of CuPy's, whose bytes a stand-in for the kernel reads where they lie."""

    def __init__(self, array: np.ndarray):
        self.array, self.size, self.nbytes = array, array.size, array.nbytes
        self.data = SimpleNamespace(ptr=array.ctypes.data)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple]]:
    """Grids and sizes of what was launched on a stand-in for CuPy."""
    log = []

    def kernel(blocks: tuple[int], threads: tuple[int], arguments: tuple) -> None:
        one, other, size, byte, found = arguments
        log.append((blocks[0], int(size)))
        wanted = string_at(int(other), int(size)) if other else bytes([byte]) * int(size)
        found.array[0] = string_at(int(one), int(size)) != wanted

    def zeros(count: int, dtype: type) -> OnGpu:
        made = OnGpu(np.zeros(count, dtype))
        made.get = lambda: made.array
        return made

    cupy = SimpleNamespace(zeros=zeros, RawKernel=lambda source, name: kernel)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    _kernel.cache_clear()
    yield log
    _kernel.cache_clear()


@pytest.mark.parametrize("size", [1, 4, 15, 16, 4097, 5 << 20])
def test_on_a_gpu_arrays_of_every_size_are_compared_to_the_last_byte(launched: list, size: int):
    right, wrong = (np.full(size, BYTE, np.uint8) for _ in range(2))
    wrong[-1] ^= 0x10
    for other in (OnGpu(right.copy()), BYTE):
        assert equal_bytes(OnGpu(right), other)
        assert not equal_bytes(OnGpu(wrong), other)
    assert launched == [(min(-(-size // 4096), 1024), size)] * 4


def test_on_a_gpu_an_array_that_goes_on_is_another(launched: list):
    whole = np.full(32, BYTE, np.uint8)
    assert not equal_bytes(OnGpu(whole[:16]), OnGpu(whole))
    assert not equal_bytes(OnGpu(whole), OnGpu(whole[:16]))
    assert equal_bytes(OnGpu(whole[:0]), OnGpu(whole[:0]))
    assert launched == []  # a grid of no blocks is refused
