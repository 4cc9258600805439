"""The shadows of shared memory in kernels with `wgmma`, which reads it asynchronously.

A `wgmma` may read until it is waited for, so its reads are renewed after every barrier until then. It reads through the
async proxy: a write needs a barrier before the `wgmma`, and a `fence.proxy.async`, by the thread that wrote before the
barrier, or by all threads of the warpgroup after it. In kernels that have mbarriers as well, it reads like a bulk copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ptx_emulator.compiled.layout import IN_SEVERAL_WARPS
from ptx_emulator.memory import Access
from ptx_emulator.races.async_agents import Copy
from ptx_emulator.races.async_order import AsyncOrder
from ptx_emulator.races.async_shadow import AsyncShadow
from ptx_emulator.races.block_order import AGENT_MASK, AGENTS, BlockOrder
from ptx_emulator.races.shared_memory import (
    ACCESS_MASK,
    AGENT_BITS,
    EPOCH_SHIFT,
    Agent,
    SharedShadow,
    as_column,
    in_rows,
)
from ptx_emulator.registers import U64, WARP, WARPGROUP, Bits

# Raises the fault of a missing proxy fence, given the access, its row, the earlier write's number and its thread.
Unfenced = Callable[[Access, int, int, int], NoReturn]


@dataclass
class OperandRead:
    """An operand of a `wgmma`, for the warpgroups that have not waited for it.

    index: (n, chunks) rows of 16 bytes; group: (n,) warpgroup in the batch
    reader: (n, chunks) uint64, agents: a warp or the warpgroup
    """

    access: Access
    index: np.ndarray
    group: np.ndarray
    reader: np.ndarray


class WgmmaShadow(SharedShadow):
    """The shadow of one batch's shared memory, with the reads of `wgmma`.

    fenced: (blocks, threads), epoch of a thread's last proxy fence; seen: epoch of its block's last barrier before that
    """

    unfenced: Unfenced

    def __init__(self, order: BlockOrder, threads: int, stride: int, cell: int):
        super().__init__(order, threads, stride, cell)
        self.wgmma_reads = np.zeros(self.blocks * self.cells_of_block, U64)
        self.in_flight: list[OperandRead] = []
        self.fenced, self.seen = (np.ones((self.blocks, threads), U64) for _ in range(2))

    def renew(self) -> None:
        """Renew the tags of reads in flight after a barrier, because a barrier does not wait for a `wgmma`."""
        for read in self.in_flight:
            tags = self.tag(read.access, self._block(read)) | U64(IN_SEVERAL_WARPS)
            width = self._width(read.access)
            in_rows(self.wgmma_reads, width)[read.index] = as_column(tags[:, None], width)

    def _block(self, read: OperandRead) -> np.ndarray:
        return read.group // (self.threads // WARPGROUP)

    def _width(self, access: Access) -> int:
        return access.bytes // self.cell

    def _conflicting(self, access: Access) -> Iterator[np.ndarray]:
        yield from super()._conflicting(access)
        if access.kind != "reads":
            yield self.wgmma_reads

    def fence_proxy(self, lanes: np.ndarray) -> None:
        """Record a `fence.proxy.async`. lanes: (blocks, threads) bool"""
        self.order.advance(lanes.any(axis=1))
        self.fenced = np.where(lanes, self.order.epoch[:, None], self.fenced)
        self.seen = np.where(lanes, self.order.last_barrier[:, None], self.seen)

    def start(self, read: OperandRead, lanes: np.ndarray) -> None:
        """Check the reads of a `wgmma`, and tag them. lanes: (n, chunks), a thread of each reader"""
        access, width = read.access, self._width(read.access)
        index, reader = read.index.reshape(-1), read.reader.reshape(-1)
        block, thread = np.divmod(lanes.reshape(-1), self.threads)
        agent = _Reader(self, block, thread.astype(U64), width, reader)
        for other in self._conflicting(access):
            prior = in_rows(other, width)[index]
            self._check(prior, agent, access)
            if int(prior.max() >> EPOCH_SHIFT) >= int(self.fenced.min()):
                self._require_fence(prior.reshape(len(index), -1), block, read)
        tags = self.tag(access, block) | U64(IN_SEVERAL_WARPS)
        in_rows(self.wgmma_reads, width)[index] = as_column(tags, width)

    def _require_fence(self, prior: np.ndarray, block: np.ndarray, read: OperandRead) -> None:
        groups = self.threads // WARPGROUP
        seen = self.seen[:, : groups * WARPGROUP].reshape(-1, WARPGROUP).min(axis=1)
        who = prior & AGENT_MASK
        known = who < self.threads  # atomics of several threads are left out, because their fences are unknown
        epoch = prior >> EPOCH_SHIFT
        wrong = known & (epoch >= np.repeat(seen[read.group], read.index.shape[1])[:, None])
        wrong &= epoch >= self.fenced[block[:, None], np.where(known, who, U64(0)).astype(int)]
        if wrong.any():
            row, cell = divmod(int(np.argmax(wrong)), prior.shape[1])
            tag = int(prior[row, cell])
            self.unfenced(read.access, row, tag >> AGENT_BITS & ACCESS_MASK, tag & int(AGENT_MASK))

    def complete_read(self, read: OperandRead, groups: np.ndarray) -> None:
        """Record that these warpgroups waited for their reads. groups: (blocks * warpgroups,) bool"""
        completed = groups[read.group]
        if completed.any():
            tags = self.tag(read.access, self._block(read)[completed])[:, None] | read.reader[completed]
            width = self._width(read.access)
            in_rows(self.wgmma_reads, width)[read.index[completed]] = as_column(tags, width)
            for name in ("index", "group", "reader"):
                setattr(read, name, getattr(read, name)[~completed])
        if not len(read.index):
            self.in_flight = [other for other in self.in_flight if other is not read]


class _Reader(Agent):
    """The warp or warpgroup that reads an operand. reader: (n,), its agents"""

    def __init__(self, shadow: WgmmaShadow, block: np.ndarray, thread: Bits, width: int, reader: Bits):
        super().__init__(shadow, block, thread, width)
        self.column = as_column(np.full(len(reader), AGENTS, U64), width)  # no tag counts as the reader's own access
        self.common = as_column(shadow.order.common[block].min(axis=1), width)
        self.of_group = as_column(reader >= U64(IN_SEVERAL_WARPS), width)

    def known(self, chosen: np.ndarray) -> np.ndarray:
        """The epochs that all reading threads know of each warp."""
        block, warp, of_group = (
            np.broadcast_to(each, chosen.shape)[chosen] for each in (self.block, self.warp, self.of_group)
        )
        warps = WARPGROUP // WARP
        group = warp[:, None] // warps * warps + np.arange(warps)
        return self.order.known[block[:, None], np.where(of_group[:, None], group, warp[:, None])].min(axis=1)


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
