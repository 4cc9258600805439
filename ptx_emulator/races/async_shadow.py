"""The shadow of shared memory in kernels that use mbarriers, bulk copies or clusters (compare `shared_memory`).

Threads are told apart, not warps alone, because an mbarrier lets one thread wait for another: a release by one lane
covers what that lane did and knew, and nothing of its neighbours. An asynchronous copy in flight is an agent of its
own, which reads or writes its bytes at any time until a thread knows it to be complete. Between what threads write and
what a copy reads or overwrites there has to be a proxy fence, of the thread that wrote before it releases, or of the
thread that copies after it acquires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from ptx_emulator.memory import Access
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_agents import BITS, CompiledChecks, Copy, Fault, Readers, unfinished
from ptx_emulator.races.async_order import AsyncOrder
from ptx_emulator.races.borne import ALLOC_FENCE, EQUAL_STORES, other_than_now
from ptx_emulator.races.shared_memory import SharedShadow
from ptx_emulator.registers import U32, WARP

PAST = {"reads": "read", "writes": "wrote", "updates": "updated"}


class AsyncShadow(SharedShadow):
    """The shadow of one batch's shared memory. The compiled interpreter leaves such kernels' memory to NumPy.

    compiled: handles the accesses and copies that are plainly fine, if it is not None

    fault: the batch's; writer, epoch, access: (cells,), row + 1 of the last writing thread, its epoch and its access
    copy_writes, copy_reads: (cells,), number of the copy that writes or reads it, or 0
    mbarriers: (cells,) bool, where one is initialised; ends: whether the kernel ends some by mbarrier.inval
    """

    order: AsyncOrder

    def __init__(self, order: AsyncOrder, threads: int, stride: int, cell: int):
        super().__init__(order, threads, stride, cell)
        cells, warps = len(self.writes), order.rows // WARP
        self.writer, self.epoch, self.access = (np.zeros(cells, U32) for _ in range(3))
        self.copy_writes, self.copy_reads = np.zeros(cells, U32), np.zeros(cells, U32)
        self.mbarriers, self.ends = np.zeros(cells, bool), False
        self.readers, self.updaters = Readers(cells, warps), Readers(cells, warps)
        self.copies: list[Copy | None] = [None]
        self._counter, self._number = np.zeros(64, np.int64), np.zeros(64, U32)
        self._several = np.zeros(64, bool)  # whether a copy took the place of others
        self.compiled: CompiledChecks | None = None
        self.fault: Fault | None = None
        self.accesses: dict[int, Access] = {}
        self.name: Callable[[int, int], str] = lambda cluster, row: f"thread {row}"

    def record(self, access: Access, index: np.ndarray, positions: np.ndarray | None) -> None:
        if positions is None:
            positions = np.arange(self.blocks * self.threads)
            index = np.broadcast_to(index, (self.blocks, self.threads))
        width = max(1, access.bytes // self.cell)
        cells = index.reshape(-1)[:, None] * access.bytes // self.cell + np.arange(width)
        cluster, row = self.order.row(*np.divmod(positions, self.threads))
        self.order.activity += 1
        self.has_updates |= access.kind == "updates"
        if access.strong and self.ends:
            for cell, *at in zip(cells[:, 0].tolist(), cluster.tolist(), row.tolist(), strict=True):
                self.order.pass_gate(cell, *at, access.kind)
        if self.compiled and self.compiled.record(self._arrays(), access, cells[:, 0], width, cluster, row):
            self._require_begun(access.instruction, access.kind, cells[:, 0], cluster, row, positions)
            return
        self._check_writers(access, cells, cluster, row, positions)
        self._check_copies(access, cells, cluster, row, positions)
        others = [] if access.kind == "updates" else [self.updaters]
        for readers in [*others, *([self.readers] if access.kind != "reads" else [])]:
            found = readers.unordered(self.order, cells, cluster, row)
            if found:
                which, cell, reader = found
                self._race(access, int(positions[which]), int(cluster[which]), reader, int(readers.access[cell]))
        self._require_begun(access.instruction, access.kind, cells[:, 0], cluster, row, positions)
        if access.kind != "writes":
            readers = self.readers if access.kind == "reads" else self.updaters
            readers.add(self.order, access.number, cells, cluster, row)
            return
        if self.mbarriers[cells].any():
            which = int(np.argmax(self.mbarriers[cells].any(axis=1)))
            sentence = f"{access.what} of shared memory where an mbarrier is, with no mbarrier.inval before"
            self.fault("mbarrier", access.instruction, int(positions[which]), sentence)
        self._forget(cells)
        mine = np.broadcast_to((row + 1).astype(U32)[:, None], cells.shape)
        self.writer[cells], self.access[cells] = mine, access.number
        self.epoch[cells] = self.order.now[cluster][:, None]
        lost = self.writer[cells] != mine
        if lost.any() and EQUAL_STORES not in self.strict:
            self.equal.add(None, None)
        elif lost.any():
            which, column = (int(each) for each in np.argwhere(lost)[0])
            other = int(self.writer[cells[which, column]]) - 1
            self._race(access, int(positions[which]), int(cluster[which]), other, access.number)

    def _require_begun(
        self, instruction: Instruction, verb: str, cells: np.ndarray, cluster: np.ndarray, row: np.ndarray,
        positions: np.ndarray,
    ) -> None:  # fmt: skip
        """Raise Fault for a thread that accesses a block of its cluster which may not have begun. All (n,)"""
        if self.order.cluster == 1:
            return
        rank = cells // self.cells_of_block % self.order.cluster
        late = (rank != row // self.threads) & self.order.not_begun(cluster, row, rank)
        if late.any():
            which = int(np.argmax(late))
            _, _, block = self.name(int(cluster[which]), int(rank[which]) * self.threads).partition(" of ")
            sentence = f"{verb} shared memory of {block} of its cluster, which may not have begun: no barrier.cluster, "
            sentence += "and nothing else that tells this thread, comes before"
            self.fault("race", instruction, int(positions[which]), sentence)

    def _forget(self, cells: np.ndarray) -> None:
        """Forget earlier accesses to cells, because a later write is ordered behind all of them."""
        self.writer[cells] = 0
        self.readers.lanes[:, cells], self.updaters.lanes[:, cells] = 0, 0
        self.copy_writes[cells], self.copy_reads[cells] = 0, 0

    def _check_writers(
        self, access: Access, cells: np.ndarray, cluster: np.ndarray, row: np.ndarray, positions: np.ndarray
    ) -> None:
        writer = self.writer[cells].astype(np.int64) - 1
        clash = (writer >= 0) & (writer != row[:, None])
        if clash.any():
            clash &= self.order.clock[cluster[:, None], row[:, None], writer] <= self.epoch[cells]
            if access.kind == "writes" and EQUAL_STORES not in self.strict:
                same = clash & (self.access[cells] == access.number)
                if same.any():
                    rows = np.broadcast_to(row[:, None], cells.shape)
                    same_time = other_than_now(cells, writer, cells, rows)
                    self.equal.add(None, (same & same_time).any(axis=1))
                    clash &= ~same
            if clash.any():
                which, column = (int(each) for each in np.argwhere(clash)[0])
                number = int(self.access[cells[which, column]])
                self._race(access, int(positions[which]), int(cluster[which]), int(writer[which, column]), number)

    def _race(self, access: Access, lane: int, cluster: int, other: int, number: int) -> NoReturn:
        earlier, who = self.accesses[number], self.name(cluster, other)
        what = f"{access.kind} {access.bytes} shared bytes"
        if number == access.number and access.kind == "writes":
            self.fault("race", access.instruction, lane, f"{what} while {who} writes the same in the same instruction")
        at = earlier.instruction.location.in_full()
        sentence = f"{what} while {who} {PAST[earlier.kind]} the same at {at} with no barrier, __syncwarp or mbarrier "
        sentence += "between that covers that thread"
        if lane // self.threads % self.order.cluster != other // self.threads and cluster in self.order.narrow:
            sentence += f"; {self.order.narrow[cluster]}"
        self.fault("race", access.instruction, lane, sentence)

    def used_by_others(self, block: int) -> tuple[Access, int] | None:
        """An access to a block's memory from another block of the cluster that the block's threads do not know of."""
        order = self.order
        cluster, first = (int(each) for each in order.row(block, 0))
        clock = order.clock[cluster, first : first + self.threads, : order.rows].max(axis=0)
        cells = slice(block * self.cells_of_block, (block + 1) * self.cells_of_block)
        own = (np.arange(order.rows) >= first) & (np.arange(order.rows) < first + self.threads)
        writer = self.writer[cells].astype(np.int64) - 1
        late = (writer >= 0) & ~own[writer] & (clock[writer] <= self.epoch[cells])
        if late.any():
            at = int(np.argmax(late))
            return self.accesses[int(self.access[cells][at])], self._lane(cluster, int(writer[at]))
        others = ~own.reshape(-1, WARP).any(axis=1)
        for readers in (self.readers, self.updaters):
            for warp in np.flatnonzero(others).tolist():
                lanes, epoch = readers.lanes[warp, cells], readers.epoch[warp, cells]
                known = clock[warp * WARP : (warp + 1) * WARP]
                late = (lanes[:, None] & BITS != 0) & (known <= epoch[:, None])
                if late.any():
                    at, lane = (int(each) for each in np.argwhere(late)[0])
                    return self.accesses[int(readers.access[cells][at])], self._lane(cluster, warp * WARP + lane)
        return None

    def _lane(self, cluster: int, row: int) -> int:
        block, thread = self.order.place(cluster, row)
        return block * self.threads + thread

    def new_copy(self, copy: Copy) -> int:
        """Register a new copy and return its number."""
        number = len(self.copies)
        self.copies.append(copy)
        if number == len(self._counter):
            every = self._counter, self._number, self._several
            self._counter, self._number, self._several = (np.concatenate([each, np.zeros_like(each)]) for each in every)
        self._counter[number], self._number[number] = copy.counter, copy.number
        return number

    def _arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays for `CompiledChecks`: of the order, of cells, of their readers, and of copies by number."""
        order, readers = self.order, (self.readers, self.updaters)
        of_readers = [each for of in readers for each in (of.lanes, of.epoch, of.access)]
        return (
            order.clock, order.now, order.floor, self.writer, self.epoch, self.access, self.copy_writes,
            self.copy_reads, self.mbarriers, *of_readers, self.has_updates, self._counter, self._number, self._several,
        )  # fmt: skip

    def complete(self, number: int, cluster: int, row: int) -> bool:
        """Whether a thread knows that a copy is complete."""
        copy = self.copies[number]
        return bool(self.order.clock[cluster, row, copy.counter] > copy.number)

    def _incomplete(self, numbers: np.ndarray, cluster: np.ndarray, row: np.ndarray) -> tuple[int, int] | None:
        """The first of (n, width) copies that its thread does not know to be complete: n, and the copy's number."""
        if not numbers.any():
            return None
        counter, number = self._counter[numbers], self._number[numbers]
        known = self.order.clock[cluster[:, None], row[:, None], counter] > number
        late = (numbers != 0) & ~known
        if late.any():
            which, column = (int(each) for each in np.argwhere(late)[0])
            return which, int(numbers[which, column])
        for each in np.unique(numbers).tolist():
            for other in self.copies[each].also if each else ():
                which = int(np.argmax((numbers == each).any(axis=1)))
                if not self.complete(other, int(cluster[which]), int(row[which])):
                    return which, other
        return None

    def _check_copies(
        self, access: Access, cells: np.ndarray, cluster: np.ndarray, row: np.ndarray, positions: np.ndarray
    ) -> None:
        for copies in (self.copy_writes, *([self.copy_reads] if access.kind != "reads" else [])):
            found = self._incomplete(copies[cells], cluster, row)
            if found:
                which, number = found
                what = f"{access.kind} {access.bytes} shared bytes"
                self.fault("race", access.instruction, int(positions[which]), f"{what} {self.unfinished(number)}")

    def unfinished(self, number: int) -> str:
        """The sentence on why a copy may still be accessing memory."""
        copy = self.copies[number]
        return unfinished(copy, self.name(copy.cluster, copy.row))

    def _of_all(self, cluster: int, rows: np.ndarray) -> np.ndarray:
        """The clock of what every one of these rows knows; each counts as knowing what it did itself."""
        clocks = self.order.clock[cluster, rows]
        clocks[np.arange(len(rows)), rows] = self.order.now[cluster] + U32(1)
        return clocks.min(axis=0)

    def _unfenced(self) -> list[int]:
        """The numbers of accesses that need no proxy fence: of `mbarrier.inval`, and `tcgen05.alloc` (see `borne`)."""
        borne = ("mbarrier.inval.", *(() if ALLOC_FENCE in self.strict else ("tcgen05.alloc.",)))
        return [number for number, each in self.accesses.items() if each.instruction.mnemonic.startswith(borne)]

    def start_copy(
        self, number: int, cells: np.ndarray, lane: int, fenced: bool = False, rows: np.ndarray | None = None
    ) -> None:
        """Check and tag the (n,) cells that a copy will read or write.

        cells: each once, but possibly more often if several threads issue it
        lane: the issuing thread's; fenced: whether it needs no proxy fence; rows: given if several threads issue it
        """
        copy, order = self.copies[number], self.order
        cluster, row = copy.cluster, copy.row
        reads = copy.kind == "reads"
        if order.cluster > 1 and len(cells):
            many = (np.full(len(cells), each) for each in (cluster, row, lane))
            self._require_begun(copy.instruction, f"{copy.kind} by a copy", cells, *many)
        if rows is None and self.compiled and self.compiled.start(
            self._arrays(), number, reads, (cluster, row), cells, fenced
        ):  # fmt: skip
            order.activity += copy.kind == "reads"
            return
        cells = (cells if rows is None else np.unique(cells))[None, :]
        at = np.array([cluster]), np.array([row])
        verb = "reads" if copy.instruction.mnemonic.startswith("wgmma") else "copies"
        what = f"{verb} {'' if verb == 'reads' else 'from ' if copy.kind == 'reads' else 'to '}shared bytes"
        clock = self._of_all(cluster, np.array([row]) if rows is None else rows)
        writer = self.writer[cells[0]].astype(np.int64) - 1
        unordered = {0: "with no barrier between that covers that thread"}
        if not fenced:
            unordered[order.rows] = "with no fence.proxy.async between"
        for offset, problem in unordered.items():
            late = (writer >= 0) & (clock[offset + writer] <= self.epoch[cells[0]])
            if offset and late.any():
                late &= ~np.isin(self.access[cells[0]], self._unfenced())
            if late.any():
                first = int(np.argmax(late))
                earlier = self.accesses[int(self.access[cells[0, first]])].instruction.location.in_full()
                sentence = f"{what} that {self.name(cluster, int(writer[first]))} wrote at {earlier} {problem}"
                self.fault("race", copy.instruction, lane, sentence)
        copies = [self.copy_writes] if copy.kind == "reads" else [self.copy_writes, self.copy_reads]
        for each in copies:
            numbers = each[cells]
            numbers = np.unique(numbers[numbers != 0])
            for other in [one for first in numbers.tolist() for one in (first, *self.copies[first].also)]:
                if clock[self.copies[other].counter] <= self.copies[other].number:
                    self.fault("race", copy.instruction, lane, f"{what} {self.unfinished(other)}")
        for readers in [self.updaters, *([self.readers] if copy.kind == "writes" else [])]:
            found = readers.unordered(order, cells, *at)
            if found:
                earlier = self.accesses[int(readers.access[found[1]])]
                who = self.name(cluster, found[2])
                sentence = f"{what} that {who} {PAST[earlier.kind]} at {earlier.instruction.location.in_full()}"
                self.fault(
                    "race", copy.instruction, lane, f"{sentence} with no barrier between that covers that thread"
                )
        if copy.kind == "writes":
            self._forget(cells)
            self.copy_writes[cells] = number
            return
        replaced = self.copy_reads[cells]
        for other in np.unique(replaced[replaced != 0]).tolist():
            if not self.complete(other, cluster, row):
                # A thread that knows this one to be complete knows the same of earlier ones of its counter.
                own = self.copies[other].counter == copy.counter
                copy.also += [*([] if own else [other]), *self.copies[other].also]
                self._several[number] = bool(copy.also)
        self.copy_reads[cells] = number
        order.activity += 1
