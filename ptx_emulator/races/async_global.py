"""Races of bulk copies in global memory (beside `global_memory`, which checks the issuing threads and blocks).

A copy to global memory may write until the thread that issued it has waited for its group, one from there may read
until its mbarrier phase is complete, and a tensor map may be read as long as the copy that uses it is in flight. What
threads write, a copy sees behind a proxy fence. Reductions and atomics may update the same bytes at once.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable

import numpy as np

from ptx_emulator.memory import Access, Buffer
from ptx_emulator.races.async_agents import Copy, Fault, unfinished
from ptx_emulator.races.async_order import AsyncOrder
from ptx_emulator.races.async_shadow import AsyncShadow
from ptx_emulator.registers import U32, Bits

_PAGE = 64  # cells
_NAMES = ("cluster", "writer", "epoch", "access", "writes", "reads")


class TouchedCells:
    """The last writer of each cell (cluster, row + 1, epoch, access), and the copies that write and read it; 0 for none

    A batch touches a small part of a large buffer. With an entry for each byte, every batch would touch memory that no
    other has touched, and the system would have to find it. Pages are given to the parts that are touched, and are the
    same memory in each batch, so that the next one clears only what was used.

    size: the buffer's size in cells. The arrays are (pages * 64,), and `at` says where the cells of an access lie in
    them.
    Where writer, writes and reads are 0, nothing is known of a cell. Page 0 is always empty: it stands for the parts
    that nothing accessed.
    """

    cluster: Bits
    writer: Bits
    epoch: Bits
    access: Bits
    writes: Bits
    reads: Bits

    def __init__(self, size: int):
        self._page = np.zeros(-(-size // _PAGE), U32)  # page of each part of the buffer
        self._parts: list[np.ndarray] = []  # parts that have a page
        self._used = 1
        for name in _NAMES:
            setattr(self, name, np.zeros(_PAGE, U32))

    def clear(self) -> None:
        """Begin again, with nothing known."""
        for parts in self._parts:
            self._page[parts] = 0
        self._parts.clear()
        for each in (self.writer, self.writes, self.reads):
            each[: self._used * _PAGE] = 0
        self._used = 1

    def at(self, first: np.ndarray, width: int, adds: bool) -> np.ndarray:
        """The places in the arrays for accesses of `width` cells each, (n, width). first: (n,), their first cells

        adds: whether the caller will write there, so that parts without a page get one, which may reallocate the arrays
        """
        if adds:
            self._add(first // _PAGE)
            if width > 1:
                for cell in range(_PAGE, width - 1, _PAGE):
                    self._add((first + cell) // _PAGE)
                self._add((first + (width - 1)) // _PAGE)
        if width > 1 and _PAGE % width == 0 and not (first % width).any():  # no access crosses the end of a page
            return (self._page[first // _PAGE].astype(np.int64) * _PAGE + first % _PAGE)[:, None] + np.arange(width)
        cells = first[:, None] + np.arange(width)
        return self._page[cells // _PAGE].astype(np.int64) * _PAGE + cells % _PAGE

    def _add(self, parts: np.ndarray) -> None:
        parts = parts[self._page[parts] == 0]
        if not parts.size:
            return
        parts = np.unique(parts)
        end = self._used + len(parts)
        if end * _PAGE > len(self.writer):
            for name in _NAMES:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(max(len(old), end * _PAGE - len(old)), U32)]))
        self._page[parts] = np.arange(self._used, end)
        self._parts.append(parts)
        self._used = end


class GlobalCopies:
    """Accesses of copies and threads of a launch's batches to global memory, where copies have been.

    It is forgotten when a batch begins and none before it is suspended: these have ended.
    copies: by number in the launch, the batch's shadow and the copy; parts: the batches, by their first clusters
    """

    def __init__(self) -> None:
        self.copies: list[tuple[AsyncGlobal, Copy] | None] = [None]
        self.parts: list[AsyncGlobal] = []
        self._cells: dict[int, TouchedCells] = {}
        self._touched: set[int] = set()

    def forget(self) -> None:
        """Begin again, with nothing known."""
        self.copies, self.parts = [None], []
        self._touched.clear()

    def touched(self, buffer: Buffer) -> bool:
        """Whether anything is known of a buffer."""
        return id(buffer) in self._touched

    def of(self, buffer: Buffer, cell: int) -> TouchedCells:
        """The cells of a buffer."""
        key = id(buffer)
        if key not in self._touched:
            if key not in self._cells:
                self._cells[key] = TouchedCells(-(-len(buffer.data) // cell))
            self._cells[key].clear()
            self._touched.add(key)
        return self._cells[key]

    def add(self, of: AsyncGlobal, copy: Copy) -> int:
        """Register a copy and return its number in the launch."""
        self.copies.append((of, copy))
        return len(self.copies) - 1

    def part_of(self, cluster: int) -> AsyncGlobal:
        """The batch of a cluster of the grid."""
        return self.parts[bisect([part.first for part in self.parts], cluster) - 1]


class AsyncGlobal:
    """The shadow for one batch. known: what all batches did; first: the number of its first cluster

    name: a thread, by its cluster in the grid and its row
    """

    shadow: AsyncShadow
    fault: Fault

    def __init__(self, order: AsyncOrder, cell: int, known: GlobalCopies, first: int = 0):
        self.order, self.cell, self._known, self.first = order, cell, known, first
        self.name: Callable[[int, int], str] = lambda cluster, row: f"thread {row}"
        self._fenced: np.ndarray | None = None  # once the batch has ended: (clusters, rows), own fences
        self._own: list[int] = []  # copies of this batch, by number in the launch
        self._late: set[int] = set()  # once the batch has ended: copies that their issuers did not wait for
        known.parts.append(self)

    def end(self) -> None:
        """End the batch, and keep only what those that are suspended may ask for."""
        self._late = {number for number in self._own if not self._waited(number)}
        rows = np.arange(self.order.rows)
        self._fenced = self.order.clock[:, rows, 2 * self.order.rows + rows].copy()
        del self.order, self.shadow, self.fault

    def own_fences(self, cluster: np.ndarray, row: np.ndarray) -> np.ndarray:
        """The epochs before which threads of this batch made their own writes visible to copies; all (n,)"""
        if self._fenced is not None:
            return self._fenced[cluster - self.first, row]
        return self.order.clock[cluster - self.first, row, 2 * self.order.rows + row]

    def _waited(self, number: int) -> bool:
        """Whether the thread that issued a copy of this batch knows that it is complete."""
        copy = self._known.copies[number][1]
        if self._fenced is not None:
            return number not in self._late
        return bool(self.order.clock[copy.cluster, copy.row, copy.counter] > copy.number)

    def _places(self, found: TouchedCells, offsets: np.ndarray, size: int, adds: bool) -> np.ndarray:
        """The places of the cells for accesses of `size` bytes, (n, width)."""
        return found.at(offsets // self.cell, max(1, size // self.cell), adds)

    def record(self, access: Access, buffer: Buffer, offsets: np.ndarray, lanes: np.ndarray) -> None:
        """Check and record accesses by lanes of the batch to bytes of a buffer; both (n,)."""
        if access.kind == "reads" and not self._known.touched(buffer):
            return
        found = self._known.of(buffer, self.cell)
        cells = self._places(found, offsets, access.bytes, adds=access.kind != "reads")
        cluster, row = self.order.row(*np.divmod(lanes, self.order.threads))
        for copies in (found.writes, *([found.reads] if access.kind != "reads" else [])):
            numbers = copies[cells]
            for each in np.unique(numbers).tolist() if numbers.any() else ():
                for which in np.flatnonzero((numbers == each).any(axis=1)).tolist() if each else ():
                    late = self._incomplete(each, access.kind, int(cluster[which]), int(row[which]))
                    if late:
                        what = f"{access.kind} {access.bytes} global bytes {self._unfinished(late)}"
                        self.fault("race", access.instruction, int(lanes[which]), what)
        if access.kind != "reads":
            found.writer[cells], found.cluster[cells] = (row + 1)[:, None], self.first + cluster[:, None]
            found.epoch[cells], found.access[cells] = self.order.now[cluster][:, None], access.number
            found.reads[cells] = 0
            if access.kind == "writes":
                found.writes[cells] = 0

    def _incomplete(self, number: int, kind: str, cluster: int, row: int) -> int:
        """The first copy that conflicts with an access of this kind and that a thread does not know to be complete.

        Looks at a copy and at the ones that it replaced; 0 if there is none.
        """
        for each in (number, *self._known.copies[number][1].also):
            both_update = kind == self._known.copies[each][1].kind == "updates"
            if not both_update and not self._complete(each, cluster, row):
                return each
        return 0

    def _complete(self, number: int, cluster: int, row: int) -> bool:
        """Whether a thread knows that a copy is complete; for another cluster's copy, whether its issuer does."""
        of, copy = self._known.copies[number]
        if of is self and cluster == copy.cluster:
            return bool(self.order.clock[cluster, row, copy.counter] > copy.number)
        return of._waited(number)

    def _unfinished(self, number: int) -> str:
        """The sentence on why a copy may still be accessing memory."""
        of, copy = self._known.copies[number]
        who = self.shadow.name(copy.cluster, copy.row) if of is self else of.name(of.first + copy.cluster, copy.row)
        return unfinished(copy, who)

    def start(self, number: int, buffer: Buffer, offsets: np.ndarray, size: int, lane: int, what: str = "") -> None:
        """Check and tag the units of `size` bytes that a copy will read or write."""
        copy, found = self.shadow.copies[number], self._known.of(buffer, self.cell)
        number = self._known.add(self, copy)
        self._own.append(number)
        cells = self._places(found, offsets, size, adds=True).reshape(-1)
        what = what or f"copies {'from' if copy.kind == 'reads' else 'to'} global bytes"
        self._require_fence(copy, found, cells, lane, what)
        for copies in (found.writes, *([found.reads] if copy.kind != "reads" else [])):
            numbers = copies[cells]
            for each in np.unique(numbers[numbers != 0]).tolist():
                late = each != number and self._incomplete(each, copy.kind, copy.cluster, copy.row)
                if late:
                    self.fault("race", copy.instruction, lane, f"{what} {self._unfinished(late)}")
        if copy.kind == "writes":
            found.writer[cells], found.writes[cells], found.reads[cells] = 0, number, 0
            return
        mine = found.reads if copy.kind == "reads" else found.writes
        self._take_place(number, mine[cells])
        mine[cells] = number

    def repeats(self, buffer: Buffer, offsets: np.ndarray, size: int, block: int) -> bool:
        """Whether copies of this block were the last that wrote these units of `size` bytes."""
        found = self._known.of(buffer, self.cell)
        cells = self._places(found, offsets, size, adds=True)
        copies = [self._known.copies[each] for each in np.unique(found.writes[cells]).tolist()]
        return all(
            each and each[0] is self and self.order.place(each[1].cluster, each[1].row)[0] == block for each in copies
        )

    def _take_place(self, number: int, replaced: np.ndarray) -> None:
        """Let a copy that may run beside others also stand for the ones that are not known to be complete."""
        copy = self._known.copies[number][1]
        for other in np.unique(replaced[(replaced != 0) & (replaced != number)]).tolist():
            for each in (other, *self._known.copies[other][1].also):
                # A thread that knows this one to be complete knows the same of earlier ones of its counter.
                of, earlier = self._known.copies[each]
                own = of is self and earlier.counter == copy.counter
                if not own and each not in copy.also and not self._complete(each, copy.cluster, copy.row):
                    copy.also.append(each)

    def _require_fence(self, copy: Copy, found: TouchedCells, cells: np.ndarray, lane: int, what: str) -> None:
        cells = cells[found.writer[cells] != 0]
        if copy.kind == "updates":
            accesses, which = np.unique(found.access[cells], return_inverse=True)
            atomic = [self.shadow.accesses[each].kind == "updates" for each in accesses.tolist()]
            cells = cells[~np.array(atomic, bool)[which]]
        if not cells.size:
            return
        clock, rows, cluster, row = self.order.clock, self.order.rows, copy.cluster, copy.row
        writer, of = found.writer[cells].astype(np.int64) - 1, found.cluster[cells].astype(np.int64)
        fenced = self._fences_of(of, writer) > found.epoch[cells]
        fenced |= np.where(of == self.first + cluster, clock[cluster, row, 2 * rows + writer] > found.epoch[cells],
                           clock[cluster, row, 2 * rows + row] > 0)  # fmt: skip
        if not fenced.all():
            first = int(np.argmin(fenced))
            at = self.shadow.accesses[int(found.access[cells[first]])].instruction.location.in_full()
            theirs, thread = int(of[first]), int(writer[first])
            mine = 0 <= theirs - self.first < self.order.clusters
            who = self.shadow.name(theirs - self.first, thread) if mine else self.name(theirs, thread)
            proxy = "tensormap" if what.startswith("copies with a tensor map") else "async"
            sentence = f"{what} that {who} wrote at {at} with no fence.proxy.{proxy} between"
            self.fault("race", copy.instruction, lane, sentence)

    def _fences_of(self, cluster: np.ndarray, row: np.ndarray) -> np.ndarray:
        """The epochs of the own fences of threads of any batch; all (n,). cluster: in the grid"""
        if (cluster - self.first < self.order.clusters).all() and cluster.min() >= self.first:
            return self.own_fences(cluster, row)
        out = np.zeros(len(cluster), U32)
        for each in np.unique(cluster).tolist():
            chosen = cluster == each
            out[chosen] = self._known.part_of(each).own_fences(cluster[chosen], row[chosen])
        return out
