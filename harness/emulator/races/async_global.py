"""Races of bulk copies in global memory (beside `global_memory`, which checks the issuing threads and blocks).

A copy to global memory may write until the thread that issued it has waited for its group, one from there may read
until its mbarrier phase is complete, and a tensor map may be read as long as the copy that uses it is in flight. What
threads write, a copy sees behind a proxy fence. Reductions and atomics may update the same bytes at once.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.memory import Access, Buffer
from harness.emulator.races.async_order import AsyncOrder
from harness.emulator.races.async_shadow import AsyncShadow, Copy, Fault
from harness.emulator.races.met_cells import MetCells


class AsyncGlobal:
    """The shadow for one batch; earlier batches have ended. kept: cells by buffer, passed from batch to batch"""

    shadow: AsyncShadow
    fault: Fault

    def __init__(self, order: AsyncOrder, cell: int, kept: dict[int, MetCells]):
        self.order, self.cell, self._kept = order, cell, kept
        self._buffers: dict[int, MetCells] = {}

    def _of(self, buffer: Buffer) -> MetCells:
        if id(buffer) not in self._buffers:
            if id(buffer) not in self._kept:
                self._kept[id(buffer)] = MetCells(-(-len(buffer.data) // self.cell))
            self._kept[id(buffer)].clear()
            self._buffers[id(buffer)] = self._kept[id(buffer)]
        return self._buffers[id(buffer)]

    def _places(self, found: MetCells, offsets: np.ndarray, size: int, adds: bool) -> np.ndarray:
        """The places of the cells for accesses of `size` bytes, (n, width)."""
        return found.at(offsets // self.cell, max(1, size // self.cell), adds)

    # ---- threads ----------------------------------------------------------------------------------------------------

    def record(self, access: Access, buffer: Buffer, offsets: np.ndarray, lanes: np.ndarray) -> None:
        """Check and record accesses by lanes of the batch to bytes of a buffer; both (n,)."""
        if access.kind == "reads" and id(buffer) not in self._buffers:
            return
        found = self._of(buffer)
        cells = self._places(found, offsets, access.bytes, adds=access.kind != "reads")
        cluster, row = self.order.row(*np.divmod(lanes, self.order.threads))
        for copies in (found.writes, *([found.reads] if access.kind != "reads" else [])):
            numbers = copies[cells]
            for each in np.unique(numbers).tolist() if numbers.any() else ():
                for which in np.flatnonzero((numbers == each).any(axis=1)).tolist() if each else ():
                    late = self._incomplete(each, access.kind, int(cluster[which]), int(row[which]))
                    if late:
                        what = f"{access.kind} {access.bytes} global bytes {self.shadow.unfinished(late)}"
                        self.fault("race", access.instruction, int(lanes[which]), what)
        if access.kind != "reads":
            found.writer[cells], found.cluster[cells] = (row + 1)[:, None], cluster[:, None]
            found.epoch[cells], found.access[cells] = self.order.now[cluster][:, None], access.number
            found.reads[cells] = 0
            if access.kind == "writes":
                found.writes[cells] = 0

    def _incomplete(self, number: int, kind: str, cluster: int, row: int) -> int:
        """The first copy that conflicts with an access of this kind and that a thread does not know to be complete.

        Looks at a copy and at the ones that it replaced; 0 if there is none.
        """
        for each in (number, *self.shadow.copies[number].also):
            both_update = kind == self.shadow.copies[each].kind == "updates"
            if not both_update and not self._complete(each, cluster, row):
                return each
        return 0

    def _complete(self, number: int, cluster: int, row: int) -> bool:
        """Whether a thread knows that a copy is complete; for another cluster's copy, whether its issuer does."""
        copy = self.shadow.copies[number]
        return self.shadow.complete(number, copy.cluster, row if cluster == copy.cluster else copy.row)

    # ---- copies -----------------------------------------------------------------------------------------------------

    def start(self, number: int, buffer: Buffer, offsets: np.ndarray, size: int, lane: int, what: str = "") -> None:
        """Check and tag the units of `size` bytes that a copy will read or write."""
        copy, found = self.shadow.copies[number], self._of(buffer)
        cells = self._places(found, offsets, size, adds=True).reshape(-1)
        what = what or f"copies {'from' if copy.kind == 'reads' else 'to'} global bytes"
        self._require_fence(copy, found, cells, lane, what)
        for copies in (found.writes, *([found.reads] if copy.kind != "reads" else [])):
            numbers = copies[cells]
            for each in np.unique(numbers[numbers != 0]).tolist():
                late = each != number and self._incomplete(each, copy.kind, copy.cluster, copy.row)
                if late:
                    self.fault("race", copy.instruction, lane, f"{what} {self.shadow.unfinished(late)}")
        if copy.kind == "writes":
            found.writer[cells], found.writes[cells], found.reads[cells] = 0, number, 0
            return
        mine = found.reads if copy.kind == "reads" else found.writes
        self._take_place(number, mine[cells])
        mine[cells] = number

    def repeats(self, buffer: Buffer, offsets: np.ndarray, size: int, block: int) -> bool:
        """Whether copies of this block were the last that wrote these units of `size` bytes."""
        cells = self._places(self._of(buffer), offsets, size, adds=True)
        copies = [self.shadow.copies[each] for each in np.unique(self._of(buffer).writes[cells]).tolist()]
        return all(each and self.order.place(each.cluster, each.row)[0] == block for each in copies)

    def _take_place(self, number: int, replaced: np.ndarray) -> None:
        """Let a copy that may run beside others also stand for the ones that are not known to be complete."""
        copy = self.shadow.copies[number]
        for other in np.unique(replaced[(replaced != 0) & (replaced != number)]).tolist():
            for each in (other, *self.shadow.copies[other].also):
                # A thread that knows this one to be complete knows the same of earlier ones of its counter.
                own = self.shadow.copies[each].counter == copy.counter
                if not own and each not in copy.also and not self._complete(each, copy.cluster, copy.row):
                    copy.also.append(each)

    def _require_fence(self, copy: Copy, found: MetCells, cells: np.ndarray, lane: int, what: str) -> None:
        cells = cells[found.writer[cells] != 0]
        if copy.kind == "updates":
            accesses, which = np.unique(found.access[cells], return_inverse=True)
            atomic = [self.shadow.accesses[each].kind == "updates" for each in accesses.tolist()]
            cells = cells[~np.array(atomic, bool)[which]]
        if not cells.size:
            return
        clock, rows, cluster, row = self.order.clock, self.order.rows, copy.cluster, copy.row
        writer, of = found.writer[cells].astype(np.int64) - 1, found.cluster[cells].astype(np.int64)
        fenced = clock[of, writer, 2 * rows + writer] > found.epoch[cells]
        fenced |= np.where(of == cluster, clock[cluster, row, 2 * rows + writer] > found.epoch[cells],
                           clock[cluster, row, 2 * rows + row] > 0)  # fmt: skip
        if not fenced.all():
            first = int(np.argmin(fenced))
            at = self.shadow.accesses[int(found.access[cells[first]])].instruction.location.in_full()
            who = self.shadow.name(int(of[first]), int(writer[first]))
            sentence = f"{what} that {who} wrote at {at} with no fence.proxy.async between"
            self.fault("race", copy.instruction, lane, sentence)
