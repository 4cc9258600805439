"""The agents of `async_shadow`: copies in flight, readers of a cell, and what is checked of them in compiled form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import NoReturn

import numpy as np

from ptx_emulator.memory import Access
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_order import AsyncOrder
from ptx_emulator.registers import U32, WARP

BITS = U32(1) << np.arange(WARP, dtype=U32)
Arrays = tuple[np.ndarray, ...]  # fields of an `AsyncShadow`, in the order in which the compiled functions take them

_KINDS = ("reads", "writes", "updates")

# Raises a fault of kind `race`, given the instruction, the lane of the batch, and the sentence.
Fault = Callable[[str, Instruction, int, str], NoReturn]


@dataclass
class Copy:
    """One side of an asynchronous copy: what it does to one memory.

    counter, number: a thread whose clock has more than `number` in the column `counter` knows that it is complete
    also: copies that read the same bytes, which this one replaced in the shadow
    wait: the sentence on how a thread gets to know that
    """

    instruction: Instruction
    kind: str
    cluster: int
    row: int
    counter: int
    number: int
    wait: str
    also: list[int] = field(default_factory=list)


def unfinished(copy: Copy, who: str) -> str:
    """The sentence on why a copy may still be accessing memory. who: the thread that issued it"""
    verb = {"reads": "still read", "writes": "still write", "updates": "still update"}[copy.kind]
    return f"that the copy of {who} at {copy.instruction.location.in_full()} may {verb}: {copy.wait}"


class Readers:
    """The last readers of each cell that nothing orders before a later one: by warp, an epoch and which lanes.

    epoch, lanes: (warps, cells)
    """

    def __init__(self, cells: int, warps: int):
        self.epoch, self.lanes = np.zeros((warps, cells), U32), np.zeros((warps, cells), U32)
        self.access = np.zeros(cells, U32)

    def add(self, order: AsyncOrder, number: int, cells: np.ndarray, cluster: np.ndarray, row: np.ndarray) -> None:
        """Record that threads access cells, (n, width)."""
        keys = (cells + (row // WARP)[:, None] * self.lanes.shape[1]).reshape(-1)
        found, inverse = np.unique(keys, return_inverse=True)
        lanes, stale = np.zeros(len(found), U32), np.ones(len(found), bool)
        np.bitwise_or.at(lanes, inverse, np.repeat(U32(1) << (row % WARP).astype(U32), cells.shape[1]))
        of_lanes, of_epochs = self.lanes.reshape(-1), self.epoch.reshape(-1)
        prior, epoch = of_lanes[keys].reshape(cells.shape), of_epochs[keys].reshape(cells.shape)
        known = order.clock[cluster[:, None], row[:, None], row[:, None] // WARP * WARP + np.arange(WARP)]
        seen = ((known[:, None, :] > epoch[..., None]) * BITS).sum(axis=2, dtype=U32)
        # A thread that reads again now is remembered by this read, so the earlier one is dropped.
        np.logical_and.at(stale, inverse, (prior & ~(seen | lanes[inverse].reshape(cells.shape)) == 0).reshape(-1))
        now = np.zeros(len(found), U32)
        now[inverse] = np.repeat(order.now[cluster], cells.shape[1])
        of_epochs[found] = np.where(stale, now, of_epochs[found])
        of_lanes[found] = np.where(stale, lanes, of_lanes[found] | lanes)
        self.access[cells] = number

    def unordered(
        self, order: AsyncOrder, cells: np.ndarray, cluster: np.ndarray, row: np.ndarray
    ) -> tuple[int, int, int] | None:
        """The first of (n, width) cells with a reader unknown to its thread: n, the cell, the reader's row."""
        some = np.flatnonzero(self.lanes.T[cells].any(axis=(1, 2)))
        if not some.size:
            return None
        lanes, epoch = self.lanes.T[cells[some]], self.epoch.T[cells[some]]
        known = order.clock[cluster[some], row[some], : order.rows].reshape(len(some), 1, -1, WARP)
        late = (known <= epoch[..., None]) & (lanes[..., None] & BITS != 0)
        late = late.reshape(*late.shape[:2], -1)
        late[np.arange(len(some)), :, row[some]] = False
        if not late.any():
            return None
        which, column, reader = (int(each) for each in np.argwhere(late)[0])
        return int(some[which]), int(cells[some[which], column]), reader


class CompiledChecks:
    """The checks of `async_shadow` by `compiled.async_shared`, for accesses that are plainly fine.

    record, start: these functions; cells: of the shadow
    """

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
