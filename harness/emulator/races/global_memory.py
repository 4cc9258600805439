"""Races between blocks: a shadow of all writable buffers during one launch (compare `shared_memory`).

One block is ordered after another if that fenced and then updated an address with an atomic, and this one updated the
same address later. Strong accesses (atomic, volatile, acquire, release) do not race with each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from harness.emulator.compiled import layout
from harness.emulator.errors import NotEmulated
from harness.emulator.memory import Access, Buffer, Resolved
from harness.emulator.races.shared_memory import ACCESS_MASK, as_column, in_rows
from harness.emulator.registers import U64, Bits

# A tag holds, from the top, the epoch of a block, the number of the access, and the block + 1; or 0 without an access.
# The epoch of a block counts its fences and atomics.
BLOCK_BITS = layout.GLOBAL_BLOCK_BITS
BLOCK_MASK = SEVERAL_BLOCKS = U64((1 << BLOCK_BITS) - 1)
EPOCH_SHIFT = U64(BLOCK_BITS + layout.ACCESS_BITS)
LAST_EPOCH = (1 << 64 - BLOCK_BITS - layout.ACCESS_BITS) - 2
WIDEST = 32  # bytes of an access

# Raises the fault: the access, its rows, the element of their index, the number of the earlier access, and its block
# if known.
Report = Callable[[Access, Resolved, int, int, "int | None"], NoReturn]


class GlobalShadow:
    """The shadow of one launch. cell: bytes of the narrowest access; blocks: of the whole grid

    buffers: one row for each, with columns as in `compiled.layout`; the tags of buffer number n are `tags[n]`, by kind
    epoch: (blocks,)
    """

    report: Report

    def __init__(self, cell: int, blocks: int, buffers: np.ndarray, memory: list[Buffer]):
        if blocks >= int(SEVERAL_BLOCKS):
            raise NotEmulated(
                f"not emulated: a grid of {blocks} blocks with race checks; {int(SEVERAL_BLOCKS) - 1} fit"
            )
        self.cell, self.buffers = cell, buffers
        self.epoch = np.ones(blocks, U64)
        self.order = _HappensBefore(blocks)
        self.number = {id(buffer): number for number, buffer in enumerate(memory)}
        self.tags: dict[int, np.ndarray] = {}
        for number, buffer in enumerate(memory):
            if buffer.writable:
                # Rounded up, so that the widest access fits at the end of any buffer.
                cells = -(-len(buffer.data) // WIDEST) * WIDEST // cell
                self.tags[number] = np.zeros((3, cells), U64)
                for kind in range(3):
                    buffers[number, layout.WRITES + kind] = self.tags[number][kind].ctypes.data

    def fence(self, blocks: np.ndarray) -> None:
        """Fence these blocks."""
        self.order.fence(blocks, self.epoch)
        self._advance(blocks)

    def _advance(self, blocks: np.ndarray) -> None:
        self.epoch[blocks] += U64(1)
        if int(self.epoch[blocks].max()) > LAST_EPOCH:
            raise NotEmulated(f"not emulated: more than {LAST_EPOCH} fences and atomics of one block with race checks")

    def record(self, access: Access, resolved: Resolved, index: np.ndarray, block: np.ndarray) -> None:
        """Check one instruction, then store its tags.

        index: rows; block: of each, by broadcasting
        """
        number = self.number[id(resolved.storage)]
        tags, has = self.tags[number], self.buffers[number, layout.HAS_WRITES : layout.HAS_UPDATES + 1]
        width = access.bytes // self.cell
        shape = np.broadcast_shapes(index.shape, block.shape)
        agent = as_column(block.astype(U64) + U64(1), width)
        agent = np.broadcast_to(agent, (*shape, width) if width > 1 else shape)
        blocks = np.broadcast_to(block, shape).reshape(-1)
        updates = access.strong and access.kind != "reads"
        if updates:
            self._advance(np.unique(blocks))
        if access.strong:
            addresses = resolved.storage.address + np.broadcast_to(index, shape).reshape(-1) * access.bytes
            self.order.atomic(addresses, blocks, self.epoch, access.releases, access.kind == "reads")
        for kind in self._conflicting(access):
            if has[kind]:
                self._check(in_rows(tags[kind], width)[index], agent, access, resolved, index)
        time = self.epoch[block] << EPOCH_SHIFT | U64(access.number << BLOCK_BITS)
        mine = agent | as_column(time, width)
        if access.kind == "reads":
            if not access.strong:
                has[_READS] = 1
                self._add_readers(in_rows(tags[_READS], width), index, mine, agent)
        elif access.strong:
            has[_UPDATES] = 1
            self._add_readers(in_rows(tags[_UPDATES], width), index, mine, agent)
        else:
            has[_WRITES] = 1
            written = in_rows(tags[_WRITES], width)
            written[index] = mine
            self._check(written[index], agent, access, resolved, index)
        if updates:
            self._advance(np.unique(blocks))

    def _conflicting(self, access: Access) -> tuple[int, ...]:
        """Kinds of accesses that this one may race with."""
        if access.kind == "reads":
            return (_WRITES,) if access.strong else (_WRITES, _UPDATES)
        return (_WRITES, _READS) if access.strong else (_WRITES, _READS, _UPDATES)

    def _check(self, prior: Bits, agent: Bits, access: Access, resolved: Resolved, index: np.ndarray) -> None:
        clash = (prior != 0) & (prior & BLOCK_MASK != agent)
        if not clash.any():
            return
        width = access.bytes // self.cell
        rows = np.flatnonzero(clash) // width
        addresses = (
            resolved.storage.address
            + np.broadcast_to(index, clash.shape[: index.ndim]).reshape(-1)[rows] * access.bytes
        )
        conflicts = np.stack([prior[clash], agent[clash], addresses.astype(U64)])
        for tag, me, address in np.unique(conflicts, axis=1).T.tolist():
            time, other = tag >> int(EPOCH_SHIFT), tag & int(BLOCK_MASK)
            several = other == int(SEVERAL_BLOCKS)
            if several and self.order.all_ordered(address, access.bytes, me):
                continue
            if several or not self.order.ordered(time, other, me):
                here = (prior == U64(tag)) & (agent == U64(me)) & clash
                row = int(np.argmax(here)) // width
                earlier = tag >> BLOCK_BITS & ACCESS_MASK
                self.report(access, resolved, row, earlier, None if several else other - 1)

    def _add_readers(self, shadow: np.ndarray, index: np.ndarray, mine: Bits, agent: Bits) -> None:
        """Add readers (or atomics) to cells that may have those of other blocks."""
        prior = shadow[index]
        several = mine | SEVERAL_BLOCKS
        new = np.where((prior != 0) & (prior & BLOCK_MASK != agent), several, mine)
        shadow[index] = new
        lost = shadow[index] != new
        if lost.any():
            cells = index[..., None] * shadow.shape[1] + np.arange(shadow.shape[1]) if shadow.ndim > 1 else index
            shadow.reshape(-1)[cells[lost]] = several[lost]


_WRITES, _READS, _UPDATES = range(3)


class _HappensBefore:
    """The order between blocks, which count from 1 here, as in tags."""

    def __init__(self, grid_blocks: int):
        self.grid_blocks = grid_blocks
        self._now = 0  # counts strong accesses of all blocks
        self._fenced: dict[int, int] = {}  # block → its epoch when it last fenced
        # address → block → when, and the block's epochs then and at its last fence before
        self._atomics: dict[int, dict[int, tuple[int, int, int]]] = defaultdict(dict)
        self._acquired: dict[int, dict[int, int]] = defaultdict(dict)  # block → address → when

    def fence(self, blocks: np.ndarray, epoch: np.ndarray) -> None:
        for block in blocks.tolist():
            self._fenced[block + 1] = int(epoch[block])

    def atomic(self, addresses: np.ndarray, blocks: np.ndarray, epoch: np.ndarray, releases: bool, reads: bool) -> None:
        """Record strong accesses of blocks to addresses. releases: they fence, too; reads: they only acquire"""
        self._now += 1
        for block, address in dict.fromkeys(zip((blocks + 1).tolist(), addresses.tolist(), strict=True)):
            if not reads:
                own = int(epoch[block - 1])
                self._atomics[address][block] = self._now, own, own if releases else self._fenced.get(block, 0)
            self._acquired[block][address] = self._now

    def ordered(self, time: int, earlier: int, later: int) -> bool:
        """Whether what block `earlier` did in its epoch `time` happened before what `later` does now."""
        for address, since in self._acquired[later].items():
            when, own, fence = self._atomics[address].get(earlier, (0, 0, 0))
            if when and _precedes(when, earlier, since, later) and (time <= fence or time == own):
                return True
        return False

    def all_ordered(self, address: int, size: int, later: int) -> bool:
        """Whether accesses of several blocks to these bytes, of which one is stored, happened before `later`'s.

        They did if each was an atomic that did, or if `later` updated an address after all other blocks of the grid.
        """
        acquired = self._acquired[later]
        for where in range(address - address % 8, address + size):
            if where in acquired and all(
                block == later or _precedes(when, block, acquired[where], later) or self.ordered(own, block, later)
                for block, (when, own, _) in self._atomics[where].items()
            ):
                return True
        return any(
            len(self._atomics[where]) == self.grid_blocks
            and all(
                block == later or _precedes(when, block, since, later)
                for block, (when, _, _) in self._atomics[where].items()
            )
            for where, since in acquired.items()
        )


def _precedes(when: int, block: int, since: int, later: int) -> bool:
    """Whether the atomic of a block came before that of `later`; within one instruction, the lower block is first."""
    return when < since or (when == since and block < later)
