"""The checks of `async_shadow` in compiled form (`compiled.async_shared`), for what is plainly fine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np

from harness.emulator.memory import Access
from harness.emulator.registers import U32

Arrays = tuple[np.ndarray, ...]  # of an `AsyncShadow`, as the compiled functions take them

_KINDS = ("reads", "writes", "updates")


class CompiledChecks:
    """record, start: the compiled functions, of which this keeps what they need between calls; cells: of the shadow"""

    def __init__(self, record: Callable[..., bool], start: Callable[..., bool], cells: int):
        self._record, self._start = record, start
        self._serial = count(1)
        self._own = np.zeros(cells, np.int64), np.zeros(cells, U32), np.zeros(cells, bool)

    def record(
        self, arrays: Arrays, access: Access, first: np.ndarray, width: int, cluster: np.ndarray, row: np.ndarray
    ) -> bool:
        """Whether an access of threads is plainly fine; then it is kept. first: cell of each thread, of `width`"""
        where = np.stack([cluster, row], axis=1)
        first = np.ascontiguousarray(first)
        kind = _KINDS.index(access.kind)
        return self._record(kind, access.number, next(self._serial), where, first, width, *self._own, *arrays)

    def start(
        self, arrays: Arrays, number: int, reads: bool, at: tuple[int, int], cells: np.ndarray, fenced: bool
    ) -> bool:
        """Whether a copy of one thread is plainly fine; then it is kept. at: its cluster and row; cells: each once"""
        return self._start(number, reads, fenced, *at, cells, *arrays)
