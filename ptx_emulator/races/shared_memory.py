"""Races between threads of a block: a shadow of shared memory with the last access to each cell.

A cell has as many bytes as the narrowest access of the kernel. A tag holds, from the top, the epoch of the block, the
number of the access and an agent (see `agents`). What orders threads are barriers, of the whole block or of some warps,
and, within a warp, `bar.warp.sync`, shuffles and votes; `block_order` knows which did.

Two accesses race if they touch one cell, come from different threads, are not ordered, and one writes; two atomics do
not. Storing the same value twice is a race, but by one instruction (see `borne`). One tag is kept for the readers of a
cell that are not ordered among each other, with the epoch of the first, which is enough to check a later write.

The compiled interpreter applies the same rules to the same tags (`ptx_emulator.compiled.shared_access`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np

from ptx_emulator.compiled.layout import ACCESS_BITS, AGENT_BITS, IN_ONE_WARP
from ptx_emulator.memory import Access
from ptx_emulator.races.block_order import AGENT_MASK, WARPS_OF, BlockOrder, agents_of, ordered
from ptx_emulator.races.borne import EQUAL_STORES, EqualStores, other_than_now
from ptx_emulator.registers import U32, U64, Bits

ACCESS_MASK = (1 << ACCESS_BITS) - 1
EPOCH_SHIFT = U64(AGENT_BITS + ACCESS_BITS)

# Raises the fault, given the access, its active lane, the number of the earlier access, and its thread if known.
Report = Callable[[Access, int, int, "int | None"], NoReturn]


def in_rows(shadow: np.ndarray, width: int) -> np.ndarray:
    """A shadow as rows of the `width` cells of one access."""
    return shadow.reshape(-1, width) if width > 1 else shadow


def as_column(values: np.ndarray, width: int) -> np.ndarray:
    """Values by access, shaped to compare with rows of `width` cells."""
    return values[..., None] if width > 1 else values


class SharedShadow:
    """The shadow of one batch's shared memory.

    order, threads: of the batch; stride: bytes of shared memory per block; cell: bytes of the narrowest access
    """

    report: Report
    strict: frozenset[str] = frozenset()  # see `borne`

    def __init__(self, order: BlockOrder, threads: int, stride: int, cell: int):
        self.order, self.blocks, self.threads, self.cell = order, order.blocks, threads, cell
        self.cells_of_block = stride // cell
        self.writes, self.reads, self.updates = (np.zeros(self.blocks * self.cells_of_block, U64) for _ in range(3))
        self.thread = np.arange(threads, dtype=U64)[None, :]
        self.has_updates = False
        self.equal = EqualStores()  # the batch, which has the values, checks them

    def tag(self, access: Access, block: np.ndarray) -> Bits:
        """A tag without an agent, for an access of these blocks now."""
        return self.order.epoch[block] << EPOCH_SHIFT | U64(access.number << AGENT_BITS)

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
        agent.places = np.broadcast_to(as_column(index, width), (*index.shape, width) if width > 1 else index.shape)
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
        if lost.any() and EQUAL_STORES not in self.strict:
            self.equal.add(None, None)
        elif lost.any():
            first = int(np.argmax(lost))
            other = int(back.flat[first] & AGENT_MASK)
            self.report(access, first // (access.bytes // self.cell), access.number, other)

    def _check(self, prior: Bits, agent: Agent, access: Access) -> None:
        clash = agent.unordered(prior)
        if access.kind == "writes" and EQUAL_STORES not in self.strict and clash.any():
            same = clash & (prior >> U64(AGENT_BITS) & U64(ACCESS_MASK) == U64(access.number))
            if same.any():
                threads = np.broadcast_to(agent.column, prior.shape)
                later = other_than_now(agent.places, prior & AGENT_MASK, agent.places, threads)
                self.equal.add(None, (same & later).reshape(-1, agent.width).any(axis=1))
                clash &= ~same
        if clash.any():
            first = int(np.argmax(clash))
            tag = int(prior.flat[first])
            who = tag & int(AGENT_MASK)
            known = who if who < IN_ONE_WARP else None
            self.report(access, first // agent.width, tag >> AGENT_BITS & ACCESS_MASK, known)

    def _add_readers(self, shadow: np.ndarray, index: np.ndarray, mine: Bits, agent: Agent) -> None:
        """Add readers (or atomics) to cells, beside earlier ones that are not ordered before them."""
        prior = shadow[index]
        joins = agent.unordered(prior)
        new = mine
        if joins.any():
            new = mine.copy()
            warps = WARPS_OF[prior[joins] & AGENT_MASK] | WARPS_OF[mine[joins] & AGENT_MASK]
            new[joins] = np.minimum(prior[joins], mine[joins]) >> EPOCH_SHIFT << EPOCH_SHIFT | agents_of(warps)
            new[joins] |= mine[joins] & U64(ACCESS_MASK << AGENT_BITS)
        shadow[index] = new
        if (shadow[index] != new).any():
            cells = index if agent.width == 1 else index[..., None] * agent.width + np.arange(agent.width)
            join_in_one_instruction(shadow.reshape(-1), cells.reshape(-1), new.reshape(-1))


def join_in_one_instruction(shadow: np.ndarray, cells: np.ndarray, tags: Bits) -> None:
    """Give cells on which lanes of one instruction left different tags the agent of all. cells, tags: (n,)"""
    shared = np.unique(cells[shadow[cells] != tags])
    chosen = np.flatnonzero(np.isin(cells, shared))
    number = np.searchsorted(shared, cells[chosen])
    warps = np.zeros(len(shared), U32)
    np.bitwise_or.at(warps, number, WARPS_OF[tags[chosen] & AGENT_MASK])
    np.minimum.at(shadow, cells[chosen], tags[chosen])
    shadow[shared] = shadow[shared] & ~AGENT_MASK | agents_of(warps)


class Agent:
    """The threads of one access, shaped to compare with rows of `width` cells. block, thread: each row's

    places: the row of shared memory of each cell
    """

    places: np.ndarray

    def __init__(self, shadow: SharedShadow, block: np.ndarray, thread: Bits, width: int):
        self.order, self.width = shadow.order, width
        self.column = as_column(thread, width)
        warp = np.minimum(thread >> U64(5), U64(shadow.order.warps - 1)).astype(int)
        self.block, self.warp = as_column(block, width), as_column(warp, width)
        self.common = as_column(shadow.order.common[block, warp], width)

    def unordered(self, prior: Bits) -> np.ndarray:
        """A mask of the tags that other threads left and that no barrier orders before now."""
        clash = (prior >> EPOCH_SHIFT >= self.common) & (prior & AGENT_MASK != self.column)
        if clash.any():
            tags = prior[clash]
            clash[clash] = ~ordered(tags >> EPOCH_SHIFT, tags & AGENT_MASK, self.known(clash))
        return clash

    def known(self, chosen: np.ndarray) -> np.ndarray:
        """The epochs that the threads at chosen places know of each warp, (n, warps)."""
        block, warp = (np.broadcast_to(each, chosen.shape)[chosen] for each in (self.block, self.warp))
        return self.order.known[block, warp]
