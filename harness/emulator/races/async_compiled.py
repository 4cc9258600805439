"""The checks of `async_shadow` in compiled form (`compiled.async_shared`), for what is plainly fine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.memory import Access
from harness.emulator.registers import U32

if TYPE_CHECKING:
    from harness.emulator.races.async_shadow import AsyncShadow

_KINDS = ("reads", "writes", "updates")


class CompiledChecks:
    """record, start: the compiled functions; cells: of the shadow. What they keep for themselves between calls is here"""

    def __init__(self, record: Callable[..., bool], start: Callable[..., bool], cells: int):
        self._record, self._start = record, start
        self._serial = count(1)
        self._own = np.zeros(cells, np.int64), np.zeros(cells, U32), np.zeros(cells, bool)

    def record(
        self, shadow: AsyncShadow, access: Access, first: np.ndarray, width: int, cluster: np.ndarray, row: np.ndarray
    ) -> bool:
        """Whether an access of threads is plainly fine; then it is kept. first: cell of each thread, of `width`"""
        where = np.stack([cluster, row], axis=1)
        first = np.ascontiguousarray(first)
        kind = _KINDS.index(access.kind)
        return self._record(kind, access.number, next(self._serial), where, first, width, *self._own, *_of(shadow))

    def start(self, shadow: AsyncShadow, number: int, cells: np.ndarray, fenced: bool) -> bool:
        """Whether a copy of one thread is plainly fine; then it is kept. cells: each once"""
        copy = shadow.copies[number]
        return self._start(number, copy.kind == "reads", fenced, copy.cluster, copy.row, cells, *_of(shadow))


def _of(shadow: AsyncShadow) -> tuple[np.ndarray, ...]:
    """The arrays of a shadow, as the compiled functions take them."""
    readers = [each for of in (shadow.readers, shadow.updaters) for each in (of.lanes, of.epoch, of.access)]
    return (
        shadow.order.clock, shadow.order.now, shadow.order.floor, shadow.writer, shadow.epoch, shadow.access, shadow.copy_writes,
        shadow.copy_reads, shadow.mbarriers, *readers, shadow.has_updates,
        *shadow.counters(),
    )  # fmt: skip
