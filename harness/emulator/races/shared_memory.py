"""Races between threads of a block: a shadow of shared memory with the last access to each cell.

A cell has as many bytes as the narrowest access of the kernel. Time counts memory instructions and synchronisations. A
tag is one integer, time above thread, so that "since the last barrier" is one comparison, and `events` gives the access
of a time. Threads are ordered by barriers of their block and, within a warp, by `bar.warp.sync`, shuffles and votes.

Two accesses race if they touch one cell, come from different threads, are not ordered, and one writes; two atomics do
not. Storing the same value twice is a race. One tag is kept for the readers of a cell: a thread, or several of one
warp, or several warps, which is enough to check a later write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np

from harness.emulator.memory import Access
from harness.emulator.registers import U32, Bits

AGENT_BITS = 11
AGENT_MASK = U32((1 << AGENT_BITS) - 1)
IN_ONE_WARP = 1024  # plus the warp: several threads of it
IN_SEVERAL_WARPS = 1024 + 32
WARP_OF = np.concatenate([np.arange(1024) // 32, np.arange(32), [99]]).astype(U32)
LAST_TICK = (1 << 32 - AGENT_BITS) - 2

# Raises the fault: the access, its active lane, the earlier access, and its thread if known.
Report = Callable[[Access, int, Access, "int | None"], NoReturn]


def in_rows(shadow: np.ndarray, width: int) -> np.ndarray:
    """A shadow as rows of the `width` cells of one access."""
    return shadow.reshape(-1, width) if width > 1 else shadow


def as_column(values: np.ndarray, width: int) -> np.ndarray:
    """Values by access, shaped to compare with rows of `width` cells."""
    return values[..., None] if width > 1 else values


class SharedShadow:
    """The shadow of one batch's shared memory.

    blocks, threads: of the batch; stride: bytes of shared memory per block; cell: bytes of the narrowest access
    """

    report: Report

    def __init__(self, blocks: int, threads: int, stride: int, cell: int):
        self.blocks, self.threads, self.cell = blocks, threads, cell
        count = blocks * stride // cell
        self.writes, self.reads, self.updates = (np.zeros(count, U32) for _ in range(3))
        self.thread = np.arange(threads, dtype=U32)[None, :]
        self.restart()

    def restart(self) -> None:
        """Forget every access. Time restarts at 1, so that a tag of 0 is older than any barrier."""
        for shadow in (self.writes, self.reads, self.updates):
            shadow[:] = 0
        self.now, self.events, self.has_updates = 1, [None, None], False
        self.last_block_barrier = np.full((self.blocks, 1), 1 << AGENT_BITS, U32)
        self.last_warp_barrier = np.full((self.blocks, self.threads), 1 << AGENT_BITS, U32)

    def _tick(self, event: Access | None) -> int:
        if self.now >= LAST_TICK:
            self.restart()
        self.now += 1
        self.events.append(event)
        return self.now << AGENT_BITS

    def block_barrier(self, blocks: np.ndarray | None) -> None:
        """All threads of these blocks passed a barrier. blocks: (blocks,) bool, None for all"""
        now = U32(self._tick(None))
        if blocks is None:
            self.last_block_barrier[:] = now
        else:
            self.last_block_barrier[blocks] = now

    def warp_barrier(self, lanes: np.ndarray | None) -> None:
        """The warps of these lanes converged. lanes: (blocks, threads) bool, None for all"""
        now = U32(self._tick(None))
        if lanes is None:
            self.last_warp_barrier[:] = now
        else:
            warps = lanes.reshape(self.blocks, -1, 32).any(axis=2)
            self.last_warp_barrier[np.repeat(warps, 32, axis=1)] = now

    def record(self, access: Access, index: np.ndarray, positions: np.ndarray | None) -> None:
        """Check one instruction, then store its tags.

        index: rows of the access's width, (blocks, threads) by broadcasting, or (n,) for the lanes at `positions`
        """
        time = U32(self._tick(access))
        width = access.bytes // self.cell
        if positions is None:
            index = np.broadcast_to(index, (self.blocks, self.threads))
            agent = Agent(self.thread, self.last_block_barrier, self.last_warp_barrier, width)
        else:
            block, thread = np.divmod(positions, self.threads)
            last_warp_barrier = self.last_warp_barrier.reshape(-1)[positions]
            agent = Agent(thread.astype(U32), self.last_block_barrier[block, 0], last_warp_barrier, width)
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
            self.report(access, first // (access.bytes // self.cell), access, int(back.flat[first] & AGENT_MASK))

    def _check(self, prior: Bits, agent: Agent, access: Access) -> None:
        recent = prior >= agent.last_block_barrier
        if not recent.any():
            return
        who = prior & AGENT_MASK
        elsewhere = WARP_OF[who] != agent.warp
        clash = recent & (elsewhere | ((prior >= agent.last_warp_barrier) & (who != agent.column)))
        if clash.any():
            first = int(np.argmax(clash))
            tag = int(prior.flat[first])
            who = tag & int(AGENT_MASK)
            known = who if who < IN_ONE_WARP else None
            self.report(access, first // agent.width, self.events[tag >> AGENT_BITS], known)

    def _add_readers(self, shadow: np.ndarray, index: np.ndarray, mine: Bits, agent: Agent) -> None:
        """Add readers (or atomics) to cells that may have others since the last barrier."""
        prior = shadow[index]
        recent = prior >= agent.last_block_barrier
        new = mine
        if recent.any():
            who = prior & AGENT_MASK
            time = mine & ~AGENT_MASK
            here = WARP_OF[who] == agent.warp
            shared = recent & here & (prior >= agent.last_warp_barrier) & (who != agent.column)
            new = np.where(shared, time | U32(IN_ONE_WARP) + agent.warp, new)
            new = np.where(recent & ~here, time | U32(IN_SEVERAL_WARPS), new)
        shadow[index] = new
        back = shadow[index]
        lost = back != new
        if not lost.any():
            return
        time = mine & ~AGENT_MASK
        same = (WARP_OF[back & AGENT_MASK] == agent.warp) & (WARP_OF[new & AGENT_MASK] == agent.warp)
        cells = index * agent.width if agent.width == 1 else index[..., None] * agent.width + np.arange(agent.width)
        flat = shadow.reshape(-1)
        in_one = lost & same
        flat[cells[in_one]] = (time | U32(IN_ONE_WARP) + agent.warp)[in_one]
        in_several = lost & ~same
        flat[cells[in_several]] = (time | U32(IN_SEVERAL_WARPS))[in_several]


class Agent:
    """The threads of one access, and their last barriers; shaped to compare with rows of `width` cells."""

    def __init__(self, thread: Bits, last_block_barrier: Bits, last_warp_barrier: Bits, width: int):
        self.width = width
        self.column = as_column(thread, width)
        self.warp = self.column >> U32(5)
        self.last_block_barrier = as_column(last_block_barrier, width)
        self.last_warp_barrier = as_column(last_warp_barrier, width)
