"""Races between threads of a block: a shadow of shared memory with the last access to each cell.

A cell has as many bytes as the narrowest access of the kernel. A tag holds, from the top, an epoch, the number of the
access and an agent. The epoch of a block counts its synchronisations, so that "since the last barrier" is one
comparison. Threads are ordered by barriers of their block and, within a warp, by `bar.warp.sync`, shuffles and votes.

Two accesses race if they touch one cell, come from different threads, are not ordered, and one writes; two atomics do
not. Storing the same value twice is a race. One tag is kept for the readers of a cell: a thread, or several of one
warp, or several warps, which is enough to check a later write.

The compiled interpreter applies the same rules to the same tags (`harness.emulator.compiled.shared_access`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np

from harness.emulator.compiled.layout import ACCESS_BITS, AGENT_BITS, IN_ONE_WARP, IN_SEVERAL_WARPS
from harness.emulator.memory import Access
from harness.emulator.registers import U64, Bits

AGENT_MASK = U64((1 << AGENT_BITS) - 1)
ACCESS_MASK = (1 << ACCESS_BITS) - 1
EPOCH_SHIFT = U64(AGENT_BITS + ACCESS_BITS)
WARP_OF = np.concatenate([np.arange(1024) // 32, np.arange(32), [99]]).astype(U64)

# Raises the fault: the access, its active lane, the number of the earlier access, and its thread if known.
Report = Callable[[Access, int, int, "int | None"], NoReturn]


def in_rows(shadow: np.ndarray, width: int) -> np.ndarray:
    """A shadow as rows of the `width` cells of one access."""
    return shadow.reshape(-1, width) if width > 1 else shadow


def as_column(values: np.ndarray, width: int) -> np.ndarray:
    """Values by access, shaped to compare with rows of `width` cells."""
    return values[..., None] if width > 1 else values


class SharedShadow:
    """The shadow of one batch's shared memory.

    blocks, threads: of the batch; stride: bytes of shared memory per block; cell: bytes of the narrowest access
    epoch, last_block_barrier: (blocks,); last_warp_barrier: (blocks, warps), epochs
    """

    report: Report

    def __init__(self, blocks: int, threads: int, stride: int, cell: int):
        self.blocks, self.threads, self.cell = blocks, threads, cell
        self.cells_of_block = stride // cell
        self.writes, self.reads, self.updates = (np.zeros(blocks * self.cells_of_block, U64) for _ in range(3))
        self.thread = np.arange(threads, dtype=U64)[None, :]
        # Epochs start at 1, so that a tag of 0 is older than any barrier.
        self.epoch, self.last_block_barrier = (np.ones(blocks, U64) for _ in range(2))
        self.last_warp_barrier = np.ones((blocks, threads // 32), U64)
        self.has_updates = False

    def block_barrier(self, blocks: np.ndarray | None) -> None:
        """All threads of these blocks passed a barrier. blocks: (blocks,) bool, None for all"""
        chosen = slice(None) if blocks is None else blocks
        self.epoch[chosen] += U64(1)
        self.last_block_barrier[chosen] = self.epoch[chosen]

    def warp_barrier(self, lanes: np.ndarray | None) -> None:
        """The warps of these lanes converged. lanes: (blocks, threads) bool, None for all"""
        if lanes is None:
            self.epoch += U64(1)
            self.last_warp_barrier[:] = self.epoch[:, None]
            return
        warps = lanes.reshape(self.blocks, -1, 32).any(axis=2)
        self.epoch[warps.any(axis=1)] += U64(1)
        np.copyto(self.last_warp_barrier, self.epoch[:, None], where=warps)

    def tag(self, access: Access, block: np.ndarray) -> Bits:
        """A tag without an agent, for an access of these blocks now."""
        return self.epoch[block] << EPOCH_SHIFT | U64(access.number << AGENT_BITS)

    def record(self, access: Access, index: np.ndarray, positions: np.ndarray | None) -> None:
        """Check one instruction, then store its tags.

        index: rows of the access's width, (blocks, threads) by broadcasting, or (n,) for the lanes at `positions`
        """
        width = access.bytes // self.cell
        if positions is None:
            index = np.broadcast_to(index, (self.blocks, self.threads))
            block, thread = np.arange(self.blocks)[:, None], self.thread
        else:
            block, thread = np.divmod(positions, self.threads)
        agent = Agent(self, block, thread.astype(U64), width)
        time = as_column(self.tag(access, block), width)
        mine = np.broadcast_to(time | agent.column, (*index.shape, width) if width > 1 else index.shape)
        writes, reads, updates = (in_rows(shadow, width) for shadow in (self.writes, self.reads, self.updates))
        for other in self._conflicting(access):
            self._check(in_rows(other, width)[index], agent, access)
        if access.kind == "reads":
            self._add_readers(reads, index, mine, agent)
        elif access.kind == "updates":
            self.has_updates = True
            self._add_readers(updates, index, mine, agent)
        else:
            writes[index] = mine
            self._check_stores(writes[index], mine, access)

    def _conflicting(self, access: Access) -> Iterator[np.ndarray]:
        """The shadows of accesses that this one may race with."""
        yield self.writes
        if access.kind != "reads":
            yield self.reads
        if self.has_updates and access.kind != "updates":
            yield self.updates

    def _check_stores(self, back: Bits, mine: Bits, access: Access) -> None:
        """Report two lanes of one instruction that store to one cell."""
        lost = back != mine
        if lost.any():
            first = int(np.argmax(lost))
            other = int(back.flat[first] & AGENT_MASK)
            self.report(access, first // (access.bytes // self.cell), access.number, other)

    def _check(self, prior: Bits, agent: Agent, access: Access) -> None:
        recent = prior >> EPOCH_SHIFT >= agent.last_block_barrier
        if not recent.any():
            return
        who = prior & AGENT_MASK
        elsewhere = WARP_OF[who] != agent.warp
        clash = recent & (elsewhere | ((prior >> EPOCH_SHIFT >= agent.last_warp_barrier) & (who != agent.column)))
        if clash.any():
            first = int(np.argmax(clash))
            tag = int(prior.flat[first])
            who = tag & int(AGENT_MASK)
            known = who if who < IN_ONE_WARP else None
            self.report(access, first // agent.width, tag >> AGENT_BITS & ACCESS_MASK, known)

    def _add_readers(self, shadow: np.ndarray, index: np.ndarray, mine: Bits, agent: Agent) -> None:
        """Add readers (or atomics) to cells that may have others since the last barrier."""
        prior = shadow[index]
        recent = prior >> EPOCH_SHIFT >= agent.last_block_barrier
        new, time = mine, mine & ~AGENT_MASK
        if recent.any():
            who = prior & AGENT_MASK
            here = WARP_OF[who] == agent.warp
            shared = recent & here & (prior >> EPOCH_SHIFT >= agent.last_warp_barrier) & (who != agent.column)
            new = np.where(shared, time | U64(IN_ONE_WARP) + agent.warp, new)
            new = np.where(recent & ~here, time | U64(IN_SEVERAL_WARPS), new)
        shadow[index] = new
        back = shadow[index]
        lost = back != new
        if not lost.any():
            return
        same = (WARP_OF[back & AGENT_MASK] == agent.warp) & (WARP_OF[new & AGENT_MASK] == agent.warp)
        cells = index * agent.width if agent.width == 1 else index[..., None] * agent.width + np.arange(agent.width)
        flat = shadow.reshape(-1)
        in_one = lost & same
        flat[cells[in_one]] = (time | U64(IN_ONE_WARP) + agent.warp)[in_one]
        in_several = lost & ~same
        flat[cells[in_several]] = (time | U64(IN_SEVERAL_WARPS))[in_several]


class Agent:
    """The threads of one access, and their last barriers; shaped to compare with rows of `width` cells."""

    def __init__(self, shadow: SharedShadow, block: np.ndarray, thread: Bits, width: int):
        self.width = width
        self.column = as_column(thread, width)
        self.warp = self.column >> U64(5)
        self.last_block_barrier = as_column(shadow.last_block_barrier[block], width)
        warps = np.minimum(thread >> U64(5), U64(shadow.last_warp_barrier.shape[1] - 1)).astype(int)
        self.last_warp_barrier = as_column(shadow.last_warp_barrier[block, warps], width)
