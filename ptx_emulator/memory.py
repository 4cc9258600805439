"""Memory that kernels can address: global buffers, and the shared and local memory of a batch of blocks.

Each buffer lies in the middle of its own window of 2^42 bytes, so that an index that runs off either end, even one that
overflowed 32 bits, hits no other buffer. Shared and local memory start at small addresses, the same in every block or
thread, and each has a window of generic addresses.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.registers import U8, UNSIGNED

WINDOW_BITS = 42
FIRST_WINDOW = 16  # window of a module's first variable
_WINDOWS = itertools.cycle(range(1 << 10, 1 << 21))

# The system owns the first KiB of a block's shared memory, so no kernel has data at address 0.
SHARED_BASE = 1024
SHARED_WINDOW = 2 << WINDOW_BITS
# From this bit on, an address in shared memory of the cluster holds the rank of its block, the block's own as well:
# CUTLASS clears bit 24 to reach the even block of a pair (`Sm100MmaPeerBitMask` in cute/arch/copy_sm100_tma.hpp).
CLUSTER_RANK_BITS = 24
IN_BLOCK = (1 << CLUSTER_RANK_BITS) - 1
LOCAL_WINDOW = 3 << WINDOW_BITS
LOCAL_BASE = 256

WRITTEN, PENDING = 1, 2

# Scopes of fences and strong accesses: the threads that they order, of one block, of its cluster, or of the grid.
OF_BLOCK, OF_CLUSTER, OF_GRID = range(3)


def in_block(address: int, rank: int) -> int:
    """Translate an address to the shared memory of another block of the cluster."""
    return address & IN_BLOCK | rank << CLUSTER_RANK_BITS


class Storage(ABC):
    """Bytes, and which of them were written.

    data: (size,) uint8
    written: (size,) uint8, WRITTEN, or PENDING while a cp.async is in flight; None if all bytes may be read
    missing: what a fault says of bytes that are neither
    """

    missing = "which nothing wrote before"

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
        """The name of this memory in a fault, and the offset of `byte` in it."""

    def written_rows(self, size: int) -> np.ndarray:
        """`written` as one row of wide integers for each `size` bytes."""
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
    """A buffer in global memory.

    name: in faults; array: contiguous uint8, which kernels change in place
    initialised: False if a kernel must write a byte before it is read; window: of addresses, a new one for None
    address: of the first byte, a multiple of 256
    """

    def __init__(
        self,
        name: str,
        array: np.ndarray,
        readable: bool = True,
        writable: bool = True,
        initialised: bool = True,
        window: int | None = None,
    ):
        if array.dtype != np.uint8 or not array.flags.c_contiguous:
            raise ValueError(f"buffer {name!r} needs a contiguous uint8 array, not {array.dtype}")
        data = array.reshape(-1)
        super().__init__(data, None if initialised else np.zeros(len(data), U8))
        self.name, self.readable, self.writable = name, readable, writable
        self.window = next(_WINDOWS) if window is None else window
        self.address = (self.window << WINDOW_BITS) + (1 << WINDOW_BITS - 1)

    def name_byte(self, byte: int) -> tuple[str, int]:
        return f"buffer {self.name!r}", byte

    def __repr__(self) -> str:
        return f"Buffer({self.name!r}, {len(self.data)} bytes at {self.address:#x})"


class BlockMemory(Storage):
    """Shared memory of `owners` blocks, or local memory of `owners` threads, `size` bytes each.

    stride: bytes between owners, padded so that every access stays aligned
    """

    def __init__(self, owners: int, size: int, tracked: bool):
        self.size = size
        self.stride = -(-size // 32) * 32
        total = owners * self.stride
        super().__init__(np.zeros(total, U8), np.zeros(total, U8) if tracked else None)

    def name_byte(self, byte: int) -> tuple[str, int]:
        """Always shared memory: local memory is not tracked."""
        return "shared memory", byte % self.stride


@dataclass(frozen=True)
class Access:
    """An instruction's access to memory.

    space: `global`, `constant` (which includes parameters), `shared`, `local` or `generic`
    kind: `reads`, `writes` or `updates` (an atomic)
    size, count: bytes of an element, elements of a vector
    strong: atomic, volatile, relaxed, acquire or release: two of them do not race
    acquires, releases: acts as a fence after itself, or before
    scope: the threads among which it is strong, released or acquired
    constant: through the non-coherent cache (`ld.global.nc`)
    number: of the access in its kernel, in the tags of races
    """

    instruction: Instruction
    space: str
    kind: str
    size: int
    count: int = 1
    strong: bool = False
    acquires: bool = False
    releases: bool = False
    scope: int = OF_GRID
    constant: bool = False
    number: int = 0

    @property
    def bytes(self) -> int:
        """Bytes that one lane accesses; the address must be a multiple of it."""
        return self.size * self.count

    @property
    def takes(self) -> bool:
        """Whether an atomic replaces what others have gathered (`exch`)."""
        return self.kind == "updates" and ".exch." in self.instruction.mnemonic

    @property
    def gathers(self) -> bool:
        """Whether an atomic adds to what others have gathered (a maximum, a minimum, a sum of floats)."""
        words = set(self.instruction.mnemonic.split("."))
        return self.kind == "updates" and bool(words & {"max", "min"} or {"add", "f32"} <= words)

    @property
    def what(self) -> str:
        """The access in words: `reads 16 bytes`."""
        return f"{self.kind} {self.bytes} bytes"


@dataclass(frozen=True)
class Resolved:
    """The rows of one storage that lanes access.

    index: in units of the access's width; (blocks, threads) by broadcasting, or (n,) for some lanes
    which: (active lanes,) bool, the lanes of `index`; None for all
    """

    storage: Storage
    index: np.ndarray
    which: np.ndarray | None = None


def all_written(storage: Storage, index: np.ndarray, size: int) -> np.ndarray | None:
    """Return None if every byte of every row was written, else a mask of the rows with an unwritten byte."""
    rows = storage.written_rows(size)
    full = rows.dtype.type(int.from_bytes(bytes([WRITTEN]) * rows.itemsize, "little"))
    complete = rows[index] == full
    if complete.all():
        return None
    return ~(complete.all(axis=-1) if rows.ndim > 1 else complete)


def holds_state(storage: Storage, index: np.ndarray, size: int, state: int) -> np.ndarray:
    """The rows that have a byte in this state."""
    starts = index.reshape(-1).astype(np.int64) * size
    return (storage.written[starts[:, None] + np.arange(size)] == state).any(axis=1)


def mark_bytes(storage: Storage, index: np.ndarray, size: int, state: int) -> None:
    """Set every byte of these rows to WRITTEN or PENDING."""
    rows = storage.written_rows(size)
    rows[index] = rows.dtype.type(int.from_bytes(bytes([state]) * rows.itemsize, "little"))
