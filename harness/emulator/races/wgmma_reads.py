"""The shadow of shared memory in kernels with `wgmma`, which reads it behind the threads' backs.

What a `wgmma` reads it may read until it is waited for, so while it flies its reads are as good as new after every
barrier. It reads through the async proxy: a write must be ordered before it by a barrier, and must be followed by a
`fence.proxy.async`, of the thread that wrote before the barrier, or of all threads of the warpgroup after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from harness.emulator.memory import Access
from harness.emulator.races.shared_memory import (
    AGENT_BITS,
    AGENT_MASK,
    IN_SEVERAL_WARPS,
    WARP_OF,
    Agent,
    SharedShadow,
    in_rows,
)
from harness.emulator.registers import U32, WARPGROUP

# Raises the fault of a missing fence: the access, its row participants those it reads, the write, and its thread.
Unfenced = Callable[[Access, int, Access, int], NoReturn]


@dataclass
class OperandRead:
    """One operand of a `wgmma`, for the warpgroups that have not waited for it.

    index: (n,) rows of 16 bytes; group: (n,) number of the warpgroup in the batch; reader: (n,) uint32 agents, a warp
    or several
    """

    access: Access
    index: np.ndarray
    group: np.ndarray
    reader: np.ndarray


class WgmmaShadow(SharedShadow):
    """The shadow of one batch's shared memory, with what `wgmma` reads of it.

    fenced: (blocks, threads), when a thread last fenced its proxies; seen: the barrier of its block before that
    """

    unfenced: Unfenced

    def __init__(self, blocks: int, threads: int, stride: int, cell: int):
        self.wgmma_reads = np.zeros(blocks * stride // cell, U32)
        self.in_flight: list[OperandRead] = []
        super().__init__(blocks, threads, stride, cell)

    def restart(self) -> None:
        """Forget every access but those in flight."""
        super().restart()
        self.wgmma_reads[:] = 0
        self.fenced, self.seen = (np.full((self.blocks, self.threads), 1 << AGENT_BITS, U32) for _ in range(2))
        self._renew()

    def block_barrier(self, blocks: np.ndarray | None) -> None:
        """All threads of these blocks met, while what flies goes on. blocks: (blocks,) bool, None for all"""
        super().block_barrier(blocks)
        self._renew()

    def _renew(self) -> None:
        for reading in self.in_flight:
            time = U32(self._tick(reading.access))
            in_rows(self.wgmma_reads, self._width(reading.access))[reading.index] = time | U32(IN_SEVERAL_WARPS)

    def _width(self, access: Access) -> int:
        return access.bytes // self.cell

    def _conflicting(self, access: Access) -> Iterator[np.ndarray]:
        yield from super()._conflicting(access)
        if access.kind != "reads":
            yield self.wgmma_reads

    def fence_proxy(self, lanes: np.ndarray) -> None:
        """`fence.proxy.async` of these lanes. lanes: (blocks, threads) bool"""
        now = U32(self._tick(None))
        self.fenced[lanes] = now
        self.seen = np.where(lanes, self.block_floor, self.seen)

    def begin(self, reading: OperandRead, lanes: np.ndarray) -> None:
        """Check the reads of a `wgmma`, and remember them until they land. lanes: (n,), one thread of each reader"""
        access, width = reading.access, self._width(reading.access)
        time = U32(self._tick(access))
        block = lanes // self.threads
        agent = Agent(reading.reader, self.block_floor[block, 0], self.warp_floor.reshape(-1)[lanes], width)
        agent.warp = WARP_OF[agent.column]
        for rival in self._conflicting(access):
            prior = in_rows(rival, width)[reading.index]
            self._check(prior, agent, access)
            if int(prior.max()) >= int(self.fenced.min()):
                self._require_fence(prior.reshape(len(lanes), -1), block, reading)
        in_rows(self.wgmma_reads, width)[reading.index] = time | U32(IN_SEVERAL_WARPS)
        self.in_flight.append(reading)

    def _require_fence(self, prior: np.ndarray, block: np.ndarray, reading: OperandRead) -> None:
        groups = self.threads // WARPGROUP
        seen = self.seen[:, : groups * WARPGROUP].reshape(-1, WARPGROUP).min(axis=1)
        who = prior & AGENT_MASK
        known = who < self.threads  # of atomics there may be several, and whether they fenced is not
        wrong = known & (prior >= seen[reading.group][:, None])
        wrong &= prior >= self.fenced[block[:, None], np.where(known, who, U32(0))]
        if wrong.any():
            row, cell = divmod(int(np.argmax(wrong)), prior.shape[1])
            tag = int(prior[row, cell])
            self.unfenced(reading.access, row, self.events[tag >> AGENT_BITS], tag & int(AGENT_MASK))

    def land(self, reading: OperandRead, groups: np.ndarray) -> None:
        """These warpgroups waited for what they read. groups: (blocks * warpgroups,) bool"""
        landed = groups[reading.group]
        if landed.any():
            tags = U32(self._tick(reading.access)) | reading.reader[landed]
            width = self._width(reading.access)
            in_rows(self.wgmma_reads, width)[reading.index[landed]] = tags[:, None] if width > 1 else tags
            for name in ("index", "group", "reader"):
                setattr(reading, name, getattr(reading, name)[~landed])
        if not len(reading.index):
            self.in_flight = [other for other in self.in_flight if other is not reading]
