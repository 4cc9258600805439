"""Readers of global memory whose tags were replaced by those of other blocks: for each cell, a list."""

from __future__ import annotations

import numpy as np

from harness.emulator.compiled import layout
from harness.emulator.registers import U64, Bits

_FIRST = 1 << 12


class Readers:
    """Rows of a tag, the number of its access, and the row of the reader before, or 0.

    table: address and length of the rows, and which is free, for the compiled interpreter, which adds some too
    """

    def __init__(self) -> None:
        self._rows = np.zeros((_FIRST, 3), U64)
        self.table = np.array([self._rows.ctypes.data, _FIRST, 1], np.int64)

    def add(self, tags: Bits, numbers: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """The rows of new readers; all (n,)."""
        free = int(self.table[layout.READERS_FREE])
        end = free + len(tags)
        while end + _FIRST > len(self._rows):  # so that the compiled interpreter has room, too
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[free:end] = np.stack([tags, numbers.astype(U64), earlier.astype(U64)], axis=1)
        self.table[:] = self._rows.ctypes.data, len(self._rows), end
        return np.arange(free, end)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return self._rows[rows]
