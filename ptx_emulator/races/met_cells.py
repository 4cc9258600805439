"""One batch's knowledge of the bytes of a buffer that copies or threads accessed, in pages.

A batch meets a small part of a large buffer. With an entry for each byte of the buffer, every batch would touch memory
that no other has touched, and the system would have to find it. Pages are given to the parts that are met, and are the
same memory in each batch, so that the next one clears only what was used.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.registers import U32, Bits

_PAGE = 64  # cells
_NAMES = ("cluster", "writer", "epoch", "access", "writes", "reads")


class MetCells:
    """The last writer of each cell (cluster, row + 1, epoch, access), and the copies that write and read it; 0 for none

    size: the buffer's size in cells. The arrays are (pages * 64,), and `at` says where the cells of an access lie in
    them.
    Where writer, writes and reads are 0, nothing is known of a cell. Page 0 is always empty: it stands for the parts
    that nothing accessed.
    """

    cluster: Bits
    writer: Bits
    epoch: Bits
    access: Bits
    writes: Bits
    reads: Bits

    def __init__(self, size: int):
        self._page = np.zeros(-(-size // _PAGE), U32)  # page of each part of the buffer
        self._met: list[np.ndarray] = []  # parts that have a page
        self._used = 1
        for name in _NAMES:
            setattr(self, name, np.zeros(_PAGE, U32))

    def clear(self) -> None:
        """Begin again, with nothing known."""
        for parts in self._met:
            self._page[parts] = 0
        self._met.clear()
        for each in (self.writer, self.writes, self.reads):
            each[: self._used * _PAGE] = 0
        self._used = 1

    def at(self, first: np.ndarray, width: int, adds: bool) -> np.ndarray:
        """The places in the arrays for accesses of `width` cells each, (n, width). first: (n,), their first cells

        adds: whether the caller will write there, so that parts without a page get one, which may reallocate the arrays
        """
        if adds:
            self._add(first // _PAGE)
            if width > 1:
                for cell in range(_PAGE, width - 1, _PAGE):
                    self._add((first + cell) // _PAGE)
                self._add((first + (width - 1)) // _PAGE)
        if width > 1 and _PAGE % width == 0 and not (first % width).any():  # no access crosses the end of a page
            return (self._page[first // _PAGE].astype(np.int64) * _PAGE + first % _PAGE)[:, None] + np.arange(width)
        cells = first[:, None] + np.arange(width)
        return self._page[cells // _PAGE].astype(np.int64) * _PAGE + cells % _PAGE

    def _add(self, parts: np.ndarray) -> None:
        parts = parts[self._page[parts] == 0]
        if not parts.size:
            return
        parts = np.unique(parts)
        end = self._used + len(parts)
        if end * _PAGE > len(self.writer):
            for name in _NAMES:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(max(len(old), end * _PAGE - len(old)), U32)]))
        self._page[parts] = np.arange(self._used, end)
        self._met.append(parts)
        self._used = end
