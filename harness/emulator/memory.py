"""Bytes that kernels can address: buffers of global memory, and the shared and local memory of a batch of blocks.

Addresses are 64-bit. Each buffer lies in the middle of a window of 2^36 bytes of its own, so that an index that runs
off either end, even one that overflowed 32 bits, meets no other buffer. Shared and local memory have small addresses,
the same in every block or thread, and a generic window each.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from harness.emulator.ptx.syntax import Instruction
from harness.emulator.registers import U8, UNSIGNED

WINDOW_BITS = 36
_WINDOWS = itertools.cycle(range(16, 1 << 27))

# The first KiB of a block's shared memory belongs to the system, so no kernel has data at address 0.
SHARED_BASE = 1024
SHARED_WINDOW = 2 << WINDOW_BITS
LOCAL_WINDOW = 3 << WINDOW_BITS
LOCAL_BASE = 256

WRITTEN, PENDING = 1, 2


class Storage(ABC):
    """Bytes, and which of them were ever written.

    data: (size,) uint8
    written: (size,) uint8, WRITTEN where data may be read, PENDING where an asynchronous copy will arrive; None if all
    of it may be read
    """

    def __init__(self, data: np.ndarray, written: np.ndarray | None):
        self.data, self.written = data, written
        self._views: dict[tuple[int, int], np.ndarray] = {}
        self._written_views: dict[int, np.ndarray] = {}

    def elements(self, size: int, count: int) -> np.ndarray:
        """The bytes as (n,) or, if count > 1, (n, count) integers of `size` bytes; a shorter tail is left out."""
        view = self._views.get((size, count))
        if view is None:
            view = self._views[size, count] = _rows(self.data, size, count)
        return view

    @abstractmethod
    def name_byte(self, byte: int) -> tuple[str, int]:
        """What a fault calls these bytes, and the number of `byte` in them."""

    def written_rows(self, size: int) -> np.ndarray:
        """`written` for accesses of `size` bytes, as few wide integers a row."""
        view = self._written_views.get(size)
        if view is None:
            wide = min(size, 8)
            view = self._written_views[size] = _rows(self.written, wide, size // wide)
        return view


def _rows(data: np.ndarray, size: int, count: int) -> np.ndarray:
    rows = len(data) // (size * count)
    view = data[: rows * size * count].view(UNSIGNED[size])
    return view.reshape(rows, count) if count > 1 else view


class Buffer(Storage):
    """A piece of global memory that a kernel may be handed a pointer to.

    name: what faults call it
    array: its bytes, a contiguous uint8 array; kernels change it in place
    readable, writable: what kernels may do to it
    initialised: False if a kernel must write a byte before anything reads it
    address: what a pointer to its first byte holds, a multiple of 256
    """

    def __init__(
        self, name: str, array: np.ndarray, readable: bool = True, writable: bool = True, initialised: bool = True
    ):
        if array.dtype != np.uint8 or not array.flags.c_contiguous:
            raise ValueError(f"buffer {name!r} needs a contiguous uint8 array, not {array.dtype}")
        data = array.reshape(-1)
        super().__init__(data, None if initialised else np.zeros(len(data), U8))
        self.name, self.readable, self.writable = name, readable, writable
        self.window = next(_WINDOWS)
        self.address = (self.window << WINDOW_BITS) + (1 << WINDOW_BITS - 1)

    def name_byte(self, byte: int) -> tuple[str, int]:
        """The buffer's name, and the byte itself."""
        return f"buffer {self.name!r}", byte

    def __repr__(self) -> str:
        return f"Buffer({self.name!r}, {len(self.data)} bytes at {self.address:#x})"


class BlockMemory(Storage):
    """Memory that each of `owners` blocks or threads has `size` bytes of.

    stride: bytes from one owner's to the next's, padded so that every access stays aligned
    """

    def __init__(self, owners: int, size: int, tracked: bool):
        self.size = size
        self.stride = -(-size // 32) * 32
        total = owners * self.stride
        super().__init__(np.zeros(total, U8), np.zeros(total, U8) if tracked else None)

    def name_byte(self, byte: int) -> tuple[str, int]:
        """Shared memory: local memory is not tracked, so no fault names a byte of it so."""
        return "shared memory", byte % self.stride


@dataclass(frozen=True)
class Access:
    """What an instruction does to memory.

    space: `global`, `constant` (which includes parameters), `shared`, `local` or `generic`
    kind: `reads`, `writes` or `updates` (an atomic)
    size, count: bytes of an element, elements of a vector
    strong: True for an access that may race with its like: atomic, volatile, relaxed, acquire or release
    releases: True if it publishes what its block did before, as a fence would
    """

    instruction: Instruction
    space: str
    kind: str
    size: int
    count: int = 1
    strong: bool = False
    releases: bool = False

    @property
    def bytes(self) -> int:
        """Bytes one lane touches; the address must be a multiple of it."""
        return self.size * self.count

    @property
    def what(self) -> str:
        """`reads 16 bytes`."""
        return f"{self.kind} {self.bytes} bytes"


@dataclass(frozen=True)
class Resolved:
    """Where some lanes of an instruction fell.

    index: their rows in `storage`, in units of the access's width; (blocks, threads) by broadcasting, or (n,) for
    chosen lanes
    which: which of the acting lanes these are, or None for all of them
    """

    storage: Storage
    index: np.ndarray
    which: np.ndarray | None = None


def all_written(storage: Storage, index: np.ndarray, size: int) -> np.ndarray | None:
    """None if every byte of every row was written, else which rows lack one."""
    rows = storage.written_rows(size)
    full = rows.dtype.type(int.from_bytes(bytes([WRITTEN]) * rows.itemsize, "little"))
    complete = rows[index] == full
    if complete.all():
        return None
    return ~(complete.all(axis=-1) if rows.ndim > 1 else complete)


def mark(storage: Storage, index: np.ndarray, size: int, state: int) -> None:
    """Every byte of these rows is WRITTEN, and may be read from now on, or PENDING."""
    rows = storage.written_rows(size)
    rows[index] = rows.dtype.type(int.from_bytes(bytes([state]) * rows.itemsize, "little"))
