"""Races in global memory, between any threads of a launch: a shadow of all writable buffers (compare `shared_memory`).

Threads of one block are ordered by its barriers, and all by fences and strong accesses (atomic, volatile, acquire,
release; see `happens_before`), which do not race with each other. A weak access is also ordered behind the strong ones
at its address that came before a strong one of its own thread. An atomic that takes what others have gathered (`exch`
of a maximum or a sum) has to be ordered behind theirs as a weak access has. What is read as constant (`ld.global.nc`)
may not be written by the same launch at all.

The compiled interpreter applies the same rules to the same tags (`ptx_emulator.compiled.global_access`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

import numpy as np

from ptx_emulator.compiled.layout import IN_ONE_WARP
from ptx_emulator.errors import Fault, NotEmulated
from ptx_emulator.memory import OF_GRID, Access, Buffer, Resolved
from ptx_emulator.races.block_order import AGENT_MASK, WARPS_OF, ordered
from ptx_emulator.races.borne import EQUAL_STORES, EqualStores, LateReads, other_than_now
from ptx_emulator.races.buffer_shadow import (
    BLOCK_MASK,
    BLOCK_SHIFT,
    EPOCH_SHIFT,
    READS,
    SEVERAL_BLOCKS,
    UPDATES,
    WHO_MASK,
    WRITES,
    BufferShadows,
    StrongAccesses,
)
from ptx_emulator.races.happens_before import HappensBefore, OfBatch, came_before
from ptx_emulator.registers import U32, U64, WARP, Bits

LAST_EPOCH = (1 << 64 - int(EPOCH_SHIFT)) - 2


class Who(NamedTuple):
    """The threads of one access. index: rows of its width; block: in the batch; thread: in the block; all (n,)"""

    index: np.ndarray
    block: np.ndarray
    thread: np.ndarray


class Earlier(NamedTuple):
    """The earlier of two accesses that race. number: of the access; block, thread: None for several"""

    number: int
    block: int | None = None
    thread: int | None = None
    as_constant: bool = False


# Raises the fault, given the access, its thread's block in the batch, the thread's number, and the earlier access.
Report = Callable[[Access, int, int, Earlier], NoReturn]


class GlobalShadow:
    """The shadow of one launch. cell: bytes of the narrowest access; blocks: of the whole grid, cluster: of a cluster

    buffers: one row for each, with columns as in `compiled.layout`
    """

    report: Report
    strict: frozenset[str] = frozenset()  # see `borne`
    late: LateReads | None = None  # takes the reads of which no byte may depend; None if none are borne

    def __init__(self, cell: int, blocks: int, buffers: np.ndarray, memory: list[Buffer], cluster: int = 1):
        if blocks >= int(SEVERAL_BLOCKS):
            raise NotEmulated(
                f"not emulated: a grid of {blocks} blocks with race checks; {int(SEVERAL_BLOCKS) - 1} fit"
            )
        self.cell = cell
        self.happens_before, self.strong = HappensBefore(), StrongAccesses(cluster)
        self.cluster = cluster
        self.shadows = BufferShadows(cell, buffers, memory)
        self.equal = EqualStores()  # the batch, which has the values, checks them

    def turn_to(self, batch: OfBatch) -> None:
        """From now on, accesses are by blocks of this batch."""
        self.order, self.first = batch.order, batch.first
        self.happens_before.turn_to(batch)

    def record(self, access: Access, resolved: Resolved, who: Who) -> None:
        """Check one instruction, then store its tags."""
        if access.scope < OF_GRID:
            within = who.block // (self.cluster if access.scope else 1)
            if (within != within[:1]).any():
                for each in np.unique(within):  # one after the other: strong only within a block or a cluster
                    self.record(access, resolved, Who(*(array[within == each] for array in who)))
                return
        updates = access.strong and access.kind != "reads"
        blocks = np.unique(who.block) if updates else who.block
        if access.releases:
            self._fence(access, who)
        if updates:
            self.order.advance(blocks)
        first_cell = who.index * access.bytes // self.cell
        cells = first_cell[:, None] + np.arange(max(1, access.bytes // self.cell))  # a cp.async may be narrower
        checked = _Checked(self, access, resolved, who, cells)
        checked.check()
        if access.strong:
            addresses = resolved.storage.address + who.index * access.bytes
            self.strong.record(access, addresses, self.first + who.block, who.thread, self.order.epoch[who.block])
            self.happens_before.access(access, addresses, who.block, who.thread)
        checked.leave_tags()
        if updates:
            self.order.advance(blocks)
        if access.acquires:
            self._fence(access, who)

    def _fence(self, access: Access, who: Who) -> None:
        lanes = np.zeros((self.order.blocks, WARP * self.order.warps), bool)
        lanes[who.block, who.thread] = True
        self.happens_before.fence(lanes, access.scope)

    def ordered(self, tags: Bits, block: np.ndarray, thread: np.ndarray, reads: bool) -> np.ndarray:
        """Whether earlier accesses are ordered before what threads do now. reads: now they read; all (n,)"""
        agent, epoch = tags & AGENT_MASK, tags >> EPOCH_SHIFT
        other = (tags >> BLOCK_SHIFT & BLOCK_MASK).astype(np.int64) - 1
        here = other == self.first + block
        out = here & (agent == thread.astype(U64))
        left = np.flatnonzero(here & ~out)
        if left.size:
            known = self.order.known[block[left], thread[left] // WARP]
            out[left] = ordered(epoch[left], agent[left], known)
        left = np.flatnonzero(~out)
        if left.size:
            out[left] = self._known(*(array[left] for array in (other, epoch, agent, block, thread)), reads)
        return out

    def _known(
        self, other: np.ndarray, epoch: Bits, agent: Bits, block: np.ndarray, thread: np.ndarray, reads: bool
    ) -> np.ndarray:
        """Whether fences and strong accesses order what agents did in an epoch before now. other: their blocks"""
        out = np.zeros(len(other), bool)
        for knowledge, chosen in self.happens_before.knowledge_of(block, thread, reads):
            for of_block in np.unique(other[chosen]).tolist():
                which = chosen[other[chosen] == of_block]
                epochs = knowledge.epochs(of_block)
                if epochs is not None:
                    out[which] = came_before(epoch[which], agent[which], epochs)
        return out


class _Checked:
    """One instruction in one buffer. cells: (n, width)"""

    def __init__(self, shadow: GlobalShadow, access: Access, resolved: Resolved, who: Who, cells: np.ndarray):
        self.all, self.access, self.resolved, self.who, self.cells = shadow, access, resolved, who, cells
        self.shadow, self.order = shadow.shadows.of(id(resolved.storage)), shadow.order
        self.reads = access.kind == "reads"
        self.known: dict[tuple[int, int], list[int]] = {}  # block, warp → the epochs that it knows of each warp

    def check(self) -> None:
        """Report a race with an earlier access."""
        if self.access.constant:
            self._check_constant()
        elif self.shadow.constant is not None and not self.reads:
            self._check_against_constant()
        for kind in (WRITES, READS):
            if self.shadow.has(kind) and not (kind == READS and self.reads):
                self._check_weak(kind)
        access = self.access
        narrow = access.scope < OF_GRID or self.all.strong.narrow
        if self.shadow.has(UPDATES) and (not access.strong or narrow or access.takes):
            self._check_strong()

    def _check_weak(self, kind: int) -> None:
        if not self.shadow.tags[kind][self.cells].any():
            return
        tags, numbers, rows = self.shadow.found(kind, self.cells)
        clash = self._not_plainly_ordered(tags, rows)
        clash = clash[
            ~self.all.ordered(tags[clash], self.who.block[rows[clash]], self.who.thread[rows[clash]], self.reads)
        ]
        if kind == READS and self.all.late and clash.size:
            clash = clash[~self._left_to_late(tags[clash], numbers[clash], rows[clash])]
        if kind == WRITES and not self.reads and not self.access.strong and EQUAL_STORES not in self.all.strict:
            same = (numbers[clash] == self.access.number) & self._of_block(tags[clash], rows[clash])
            if same.any():
                behind, at = np.zeros(len(self.cells), bool), rows[clash[same]]
                earlier = (tags[clash[same]] & AGENT_MASK).astype(np.int64)
                now = self.who.index * self.order.blocks + self.who.block
                behind[at[other_than_now(now[at], earlier, now, self.who.thread)]] = True
                self.all.equal.add(self.resolved.storage, behind)
                clash = clash[~same]
        if clash.size:
            first = clash[np.argmin(rows[clash])]
            self._report(int(rows[first]), int(numbers[first]), int(tags[first]))

    def _left_to_late(self, tags: Bits, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Mask of the readers that are left to `late`, of several threads of the block that read before one writes."""
        which = np.flatnonzero(self._read_too(tags, rows))
        if self.access.strong or not which.size:
            return np.zeros(len(tags), bool)
        late = self.all.late
        if late.fault is None:
            try:
                self._report(int(rows[which[0]]), int(numbers[which[0]]), int(tags[which[0]]))
            except Fault as fault:
                late.fault = fault
        out = np.zeros(len(tags), bool)
        out[which] = True
        for number in np.unique(numbers[which]).tolist():
            for block in np.unique(self.who.block[rows[which]]).tolist():
                chosen = rows[which[(numbers[which] == number) & (self.who.block[rows[which]] == block)]]
                chosen = np.unique(chosen)
                bytes_ = self.who.index[chosen, None] * self.access.bytes + np.arange(self.access.bytes)
                by = np.repeat(self.who.thread[chosen], self.access.bytes)
                late.add(number, self.resolved.storage, self.all.first + block, bytes_.reshape(-1), by)
        return out

    def _of_block(self, tags: Bits, rows: np.ndarray) -> np.ndarray:
        """Mask of tags of the block of each row."""
        return tags >> BLOCK_SHIFT & BLOCK_MASK == (self.all.first + self.who.block[rows] + 1).astype(U64)

    def _read_too(self, tags: Bits, rows: np.ndarray) -> np.ndarray:
        """Mask of tags that stand for several threads of the block and may include the writing thread."""
        agent, warp = tags & AGENT_MASK, (self.who.thread[rows] // WARP).astype(U32)
        here = self._of_block(tags, rows)
        return here & (agent >= U64(IN_ONE_WARP)) & (WARPS_OF[agent] >> warp & U32(1) != 0)

    def _not_plainly_ordered(self, tags: Bits, rows: np.ndarray) -> np.ndarray:
        """Indices of tags by other threads that no barrier of the whole block orders before now."""
        block, thread = self.who.block[rows], self.who.thread[rows]
        here = tags >> BLOCK_SHIFT & BLOCK_MASK == (self.all.first + block + 1).astype(U64)
        before = tags >> EPOCH_SHIFT < self.order.common[block, thread // WARP]
        before |= tags & AGENT_MASK == thread.astype(U64)
        return np.flatnonzero((tags != 0) & ~(here & before))

    def _report(self, row: int, number: int, tag: int) -> NoReturn:
        agent = tag & int(AGENT_MASK)
        block = (tag >> int(BLOCK_SHIFT) & int(BLOCK_MASK)) - 1
        thread = agent if agent < IN_ONE_WARP else None
        self._race(row, Earlier(number, block, thread))

    def _race(self, row: int, earlier: Earlier) -> NoReturn:
        self.all.report(self.access, int(self.who.block[row]), int(self.who.thread[row]), earlier)

    def _check_strong(self) -> None:
        """Check this access against atomics and strong accesses by others that it may race with, see `_may_race`."""
        tags, numbers, rows = self.shadow.found(UPDATES, self.cells)
        mine = (self.all.first + self.who.block[rows] + 1).astype(U64) << BLOCK_SHIFT
        mine |= self.who.thread[rows].astype(U64)
        suspects = np.flatnonzero((tags != 0) & (tags & WHO_MASK != mine))
        suspects = suspects[np.unique(rows[suspects], return_index=True)[1]]
        left = [(suspect, tag) for suspect in suspects.tolist() for tag in self._unseen(int(rows[suspect]))]
        if left:  # one call for all, because each call has a large overhead in NumPy
            which, tags = np.array([suspect for suspect, _ in left]), np.array([tag for _, tag in left], U64)
            place, reads = rows[which], self.reads or self.access.takes
            wrong = ~self.all.ordered(tags, self.who.block[place], self.who.thread[place], reads)
            if wrong.any():
                first = int(np.argmax(wrong))
                self._report(int(place[first]), int(numbers[which[first]]), int(tags[first]))

    def _unseen(self, row: int) -> Iterator[int]:
        """A tag for each update of an access's bytes that its thread has not seen, neither itself nor by its block."""
        block, thread = int(self.who.block[row]), int(self.who.thread[row])
        warp = block, thread // WARP
        if warp not in self.known:
            self.known[warp] = self.order.known[warp].tolist()
        address = self.resolved.storage.address + int(self.who.index[row]) * self.access.bytes
        by = self.all.first + block, thread
        for epoch, (at, other) in self.all.strong.unseen(self.access, address, by, self.known[warp]):
            yield epoch << int(EPOCH_SHIFT) | at + 1 << int(BLOCK_SHIFT) | other

    def _check_constant(self) -> None:
        for kind in (WRITES, UPDATES):
            tags = self.shadow.tags[kind][self.cells].any(axis=1)
            if tags.any():
                row = int(np.argmax(tags))
                number = int(self.shadow.numbers[kind][self.cells[row]].max())
                self._race(row, Earlier(number, as_constant=True))

    def _check_against_constant(self) -> None:
        numbers = self.shadow.constant[self.cells].max(axis=1)
        if numbers.any():
            row = int(np.argmax(numbers != 0))
            self._race(row, Earlier(int(numbers[row]) - 1, as_constant=True))

    def leave_tags(self) -> None:
        """Store the tags of the access; report two threads that store to one cell in the same instruction."""
        number, who = self.access.number, self.who
        tags = self.order.epoch[who.block] << EPOCH_SHIFT | (self.all.first + who.block + 1).astype(U64) << BLOCK_SHIFT
        tags = np.repeat(tags | who.thread.astype(U64), self.cells.shape[1])
        cells = self.cells.reshape(-1)
        if self.access.constant:
            self.shadow.read_as_constant(cells, number)
        elif not self.reads and self.access.strong:
            self.shadow.update(cells, tags, number)
        elif not self.reads:
            lost = self.shadow.write(cells, tags, number)
            if lost.any() and EQUAL_STORES not in self.all.strict:
                self.all.equal.add(self.resolved.storage, None)
                lost &= self.shadow.tags[WRITES][cells] >> BLOCK_SHIFT != tags >> BLOCK_SHIFT
            if lost.any():
                first = int(np.argmax(lost))
                self._report(first // self.cells.shape[1], number, int(self.shadow.tags[WRITES][cells[first]]))
        elif not self.access.strong:
            self._add_readers(cells, tags)

    def _add_readers(self, cells: np.ndarray, tags: Bits) -> None:
        block = np.repeat(self.who.block, self.cells.shape[1])
        warp = np.repeat(self.who.thread // WARP, self.cells.shape[1])
        for each in np.unique(block).tolist():  # block by block, because each may replace tags of others
            chosen = np.flatnonzero(block == each)
            prior = self.shadow.tags[READS][cells[chosen]]
            mine = tags[chosen]
            joins = prior >> BLOCK_SHIFT & BLOCK_MASK == mine >> BLOCK_SHIFT & BLOCK_MASK
            joins &= prior & AGENT_MASK != mine & AGENT_MASK
            if joins.any():
                old, known = prior[joins], self.order.known[each, warp[chosen][joins]]
                joins[joins] = ~ordered(old >> EPOCH_SHIFT, old & AGENT_MASK, known)
            self.shadow.read(cells[chosen], mine, self.access.number, joins)
