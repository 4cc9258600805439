"""The shadow of shared memory in kernels with both mbarriers and `wgmma` (compare `wgmma_reads`).

A `wgmma` reads like a bulk copy, until its warpgroup has waited for it.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.races.async_order import AsyncOrder
from ptx_emulator.races.async_shadow import AsyncShadow, Copy
from ptx_emulator.races.wgmma_reads import OperandRead
from ptx_emulator.registers import WARPGROUP

_WAIT = "no wgmma.wait_group of its warpgroup, and then a barrier or mbarrier, comes between"


class AsyncWgmmaShadow(AsyncShadow):
    """counters: one for each warpgroup of the batch; started: how many reads each has started

    numbers: by warpgroup, the number of the copy that each read in flight started
    """

    def __init__(self, order: AsyncOrder, threads: int, stride: int, cell: int):
        super().__init__(order, threads, stride, cell)
        self.counters: dict[int, int] = {}
        self.started: dict[int, int] = {}
        self.in_flight: list[OperandRead] = []
        self._numbers: dict[int, dict[int, int]] = {}

    def _rows(self, group: int) -> tuple[int, np.ndarray]:
        """The cluster and the rows of a warpgroup of the batch."""
        block, number = divmod(group, self.threads // WARPGROUP)
        cluster, first = self.order.row(block, number * WARPGROUP)
        return int(cluster), first + np.arange(WARPGROUP)

    def renew(self) -> None:
        """Do nothing after a barrier: the counters already say which reads are still in flight."""

    def start(self, read: OperandRead, lanes: np.ndarray) -> None:
        """Check the reads of an operand, and tag them. lanes: (n, chunks), a thread of each reader"""
        of_read = self._numbers.setdefault(id(read), {})
        width = max(1, read.access.bytes // self.cell)
        for i, group in enumerate(read.group.tolist()):
            cluster, rows = self._rows(group)
            if group not in self.counters:
                self.counters[group], self.started[group] = self.order.counter(), 0
            number = self.started[group]
            self.started[group] += 1
            of_read[group] = number
            made = Copy(read.access.instruction, "reads", cluster, int(rows[0]), self.counters[group], number, _WAIT)
            cells = read.index[i][:, None] * read.access.bytes // self.cell + np.arange(width)
            self.start_copy(self.new_copy(made), cells.reshape(-1), int(lanes[i, 0]), rows=rows)

    def complete_read(self, read: OperandRead, groups: np.ndarray) -> None:
        """Record that these warpgroups waited for their reads. groups: (blocks * warpgroups,) bool"""
        for group, number in self._numbers.get(id(read), {}).items():
            if groups[group]:
                cluster, rows = self._rows(group)
                self.order.reach(cluster, rows, self.counters[group], number + 1)
        keep = ~groups[read.group]
        for name in ("index", "group", "reader"):
            setattr(read, name, getattr(read, name)[keep])
        if not len(read.index):
            self._numbers.pop(id(read), None)
            self.in_flight = [other for other in self.in_flight if other is not read]
