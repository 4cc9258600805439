"""Readers of global memory whose tags were replaced by those of other blocks: for each cell, a list."""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled import layout
from ptx_emulator.registers import U64, Bits

_FIRST = 1 << 12


class Readers:
    """A list of readers in rows: a tag, the number of its access, and the row of the previous reader, or 0.

    table: address and length of the rows and the first free one, for the compiled interpreter, which also adds rows
    """

    def __init__(self) -> None:
        self._rows = np.zeros((_FIRST, 3), U64)
        self.table = np.array([self._rows.ctypes.data, _FIRST, 1], np.int64)

    def add(self, tags: Bits, numbers: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """Add readers and return their rows; all (n,)."""
        free = int(self.table[layout.READERS_FREE])
        end = free + len(tags)
        while end + _FIRST > len(self._rows):  # leaves room for the compiled interpreter
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[free:end] = np.stack([tags, numbers.astype(U64), earlier.astype(U64)], axis=1)
        self.table[:] = self._rows.ctypes.data, len(self._rows), end
        return np.arange(free, end)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return self._rows[rows]
