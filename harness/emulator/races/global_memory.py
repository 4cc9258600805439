"""Races between blocks: a shadow of all writable buffers during one launch (compare `shared_memory`).

One block is ordered after another if that fenced and then updated an address with an atomic, and this one updated the
same address later. Strong accesses (atomic, volatile, acquire, release) do not race with each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from harness.emulator.memory import Access, Resolved
from harness.emulator.races.shared_memory import as_column, in_rows
from harness.emulator.registers import U64, Bits

# A tag is time << 32 | block + 1, or 0 without an access.
BLOCK_MASK = U64(0xFFFFFFFF)
SEVERAL_BLOCKS = U64(0xFFFFFFFF)

# Raises the fault: the access, its rows, the element of their index, the earlier access, and its block if known.
Report = Callable[[Access, Resolved, int, Access, "int | None"], NoReturn]


@dataclass
class _Cells:
    """Tags of one buffer by kind of access; an array is allocated at its first use."""

    count: int
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def tags(self, kind: str) -> np.ndarray:
        if kind not in self.arrays:
            self.arrays[kind] = np.zeros(self.count, U64)
        return self.arrays[kind]


class GlobalShadow:
    """The shadow of one launch. cell: bytes of the narrowest access; blocks: of the whole grid"""

    report: Report

    def __init__(self, cell: int, blocks: int):
        self.cell = cell
        self.now = 0
        self.events: list[Access | None] = [None]
        self.buffers: dict[int, _Cells] = {}
        self.order = _HappensBefore(blocks)

    def fence(self, blocks: np.ndarray) -> None:
        """Fence these blocks."""
        self.order.fence(blocks, self.now)

    def record(self, access: Access, resolved: Resolved, index: np.ndarray, block: np.ndarray) -> None:
        """Check one instruction, then store its tags.

        index: rows; block: of each, by broadcasting
        """
        self.now += 1
        self.events.append(access)
        cells = self.buffers.get(id(resolved.storage))
        if cells is None:
            # Rounded up, so that the widest access fits at the end of any buffer.
            cells = self.buffers[id(resolved.storage)] = _Cells(-(-len(resolved.storage.data) // 32) * 32 // self.cell)
        width = access.bytes // self.cell
        shape = np.broadcast_shapes(index.shape, block.shape)
        agent = as_column(block.astype(U64) + U64(1), width)
        agent = np.broadcast_to(agent, (*shape, width) if width > 1 else shape)
        if access.strong:
            blocks = np.broadcast_to(block, shape).reshape(-1)
            addresses = resolved.storage.address + np.broadcast_to(index, shape).reshape(-1) * access.bytes
            self.order.atomic(addresses, blocks, self.now, access.releases, access.kind == "reads")
        for kind in self._conflicting(access):
            if kind in cells.arrays:
                self._check(in_rows(cells.arrays[kind], width)[index], agent, access, resolved, index)
        mine = agent | U64(self.now << 32)
        if access.kind == "reads":
            if not access.strong:
                self._add_readers(in_rows(cells.tags("reads"), width), index, mine, agent)
        elif access.strong:
            self._add_readers(in_rows(cells.tags("updates"), width), index, mine, agent)
        else:
            written = in_rows(cells.tags("writes"), width)
            written[index] = mine
            self._check(written[index], agent, access, resolved, index)

    def _conflicting(self, access: Access) -> tuple[str, ...]:
        """Kinds of accesses that this one may race with."""
        if access.kind == "reads":
            return ("writes",) if access.strong else ("writes", "updates")
        return ("writes", "reads") if access.strong else ("writes", "reads", "updates")

    def _check(self, prior: Bits, agent: Bits, access: Access, resolved: Resolved, index: np.ndarray) -> None:
        clash = (prior != 0) & (prior & BLOCK_MASK != agent)
        if not clash.any():
            return
        width = access.bytes // self.cell
        rows = np.flatnonzero(clash) // width
        addresses = resolved.storage.address + index.reshape(-1)[rows] * access.bytes
        conflicts = np.stack([prior[clash], agent[clash], addresses.astype(U64)])
        for tag, me, address in np.unique(conflicts, axis=1).T.tolist():
            time, other = tag >> 32, tag & int(BLOCK_MASK)
            several = other == int(SEVERAL_BLOCKS)
            if several and self.order.all_ordered(address, access.bytes, me):
                continue
            if several or not self.order.ordered(time, other, me):
                here = (prior == U64(tag)) & (agent == U64(me)) & clash
                row = int(np.argmax(here)) // width
                self.report(access, resolved, row, self.events[time], None if several else other - 1)

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


class _HappensBefore:
    """The order between blocks, which count from 1 here, as in tags."""

    def __init__(self, grid_blocks: int):
        self.grid_blocks = grid_blocks
        self._fenced: dict[int, int] = {}  # block → when it last fenced
        self._atomics: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)  # address → block → when, fence before
        self._acquired: dict[int, dict[int, int]] = defaultdict(dict)  # block → address → when

    def fence(self, blocks: np.ndarray, now: int) -> None:
        for block in blocks.tolist():
            self._fenced[block + 1] = now

    def atomic(self, addresses: np.ndarray, blocks: np.ndarray, now: int, releases: bool, reads: bool) -> None:
        """Record strong accesses of blocks to addresses. releases: they fence, too; reads: they only acquire"""
        for block, address in dict.fromkeys(zip((blocks + 1).tolist(), addresses.tolist(), strict=True)):
            if not reads:
                self._atomics[address][block] = now, now if releases else self._fenced.get(block, 0)
            self._acquired[block][address] = now

    def ordered(self, time: int, earlier: int, later: int) -> bool:
        """Whether what block `earlier` did at `time` happened before what `later` does now."""
        for address, since in self._acquired[later].items():
            when, fence = self._atomics[address].get(earlier, (0, 0))
            if when and _precedes(when, earlier, since, later) and (time <= fence or time == when):
                return True
        return False

    def all_ordered(self, address: int, size: int, later: int) -> bool:
        """Whether accesses of several blocks to these bytes, of which one is stored, happened before `later`'s.

        They did if each was an atomic that did, or if `later` updated an address after all other blocks of the grid.
        """
        acquired = self._acquired[later]
        for where in range(address - address % 8, address + size):
            if where in acquired and all(
                block == later or _precedes(when, block, acquired[where], later) or self.ordered(when, block, later)
                for block, (when, _) in self._atomics[where].items()
            ):
                return True
        return any(
            len(self._atomics[where]) == self.grid_blocks
            and all(
                block == later or _precedes(when, block, since, later)
                for block, (when, _) in self._atomics[where].items()
            )
            for where, since in acquired.items()
        )


def _precedes(when: int, block: int, since: int, later: int) -> bool:
    """Whether the atomic of a block came before that of `later`; within one instruction, the lower block is first."""
    return when < since or (when == since and block < later)
