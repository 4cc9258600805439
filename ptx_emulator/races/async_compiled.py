"""The checks of `async_shadow` in compiled form (`compiled.async_shared`), for accesses that are plainly fine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np

from ptx_emulator.memory import Access
from ptx_emulator.registers import U32

Arrays = tuple[np.ndarray, ...]  # fields of an `AsyncShadow`, in the order in which the compiled functions take them

_KINDS = ("reads", "writes", "updates")


class CompiledChecks:
    """State that the compiled functions need between calls. record, start: these functions; cells: the shadow's"""

    def __init__(self, record: Callable[..., bool], start: Callable[..., bool], cells: int):
        self._record, self._start = record, start
        self._serial = count(1)
        self._own = np.zeros(cells, np.int64), np.zeros(cells, U32), np.zeros(cells, bool)

    def record(
        self, arrays: Arrays, access: Access, first: np.ndarray, width: int, cluster: np.ndarray, row: np.ndarray
    ) -> bool:
        """Record an access by threads; False if it is not plainly fine. first: each thread's first of `width` cells"""
        where = np.stack([cluster, row], axis=1)
        first = np.ascontiguousarray(first)
        kind = _KINDS.index(access.kind)
        return self._record(kind, access.number, next(self._serial), where, first, width, *self._own, *arrays)

    def start(
        self, arrays: Arrays, number: int, reads: bool, at: tuple[int, int], cells: np.ndarray, fenced: bool
    ) -> bool:
        """Start a copy by one thread; False if it is not plainly fine. at: its cluster and row; cells: each once"""
        return self._start(number, reads, fenced, *at, cells, *arrays)
