"""Global memory as bulk copies meet it (beside `global_memory`, which knows who issued them, and blocks).

A copy to global memory may write until the thread that issued it has waited for its group, one from there may read
until its mbarrier phase is complete, and a tensor map may be read as long as the copy that uses it is in flight. What
threads write, a copy sees behind a proxy fence.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.memory import Access, Buffer
from harness.emulator.ptx.syntax import Instruction
from harness.emulator.races.async_order import AsyncOrder
from harness.emulator.races.async_shadow import AsyncShadow, Fault
from harness.emulator.races.met_cells import MetCells


class AsyncGlobal:
    """The buffers of one batch. Those of earlier batches are over. kept: cells by buffer, from one batch to the next"""

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
        """Where the cells of accesses of `size` bytes lie, (n, width)."""
        return found.at(offsets // self.cell, max(1, size // self.cell), adds)

    # ---- threads ----------------------------------------------------------------------------------------------------

    def record(self, access: Access, buffer: Buffer, offsets: np.ndarray, lanes: np.ndarray) -> None:
        """Accesses of lanes of the batch to bytes of a buffer; both (n,)."""
        if access.kind == "reads" and id(buffer) not in self._buffers:
            return
        found = self._of(buffer)
        cells = self._places(found, offsets, access.bytes, adds=access.kind != "reads")
        cluster, row = self.order.row(*np.divmod(lanes, self.order.threads))
        for copies in (found.writes, *([found.reads] if access.kind != "reads" else [])):
            numbers = copies[cells]
            for each in np.unique(numbers).tolist() if numbers.any() else ():
                for which in np.flatnonzero((numbers == each).any(axis=1)).tolist() if each else ():
                    if not self._complete(each, int(cluster[which]), int(row[which])):
                        what = f"{access.kind} {access.bytes} global bytes {self.shadow.unfinished(each)}"
                        self.fault("race", access.instruction, int(lanes[which]), what)
        if access.kind != "reads":
            found.writer[cells], found.cluster[cells] = (row + 1)[:, None], cluster[:, None]
            found.epoch[cells], found.access[cells] = self.order.now[cluster][:, None], access.number
            found.writes[cells], found.reads[cells] = 0, 0

    def _complete(self, number: int, cluster: int, row: int) -> bool:
        """Whether a thread knows that a copy is complete; of another cluster's, whether its own thread does."""
        copy = self.shadow.copies[number]
        return self.shadow.complete(number, cluster, row if cluster == copy.cluster else copy.row)

    # ---- copies -----------------------------------------------------------------------------------------------------

    def start(self, number: int, buffer: Buffer, offsets: np.ndarray, size: int, lane: int, what: str = "") -> None:
        """Check what a copy is to read or write, units of `size` bytes, and tag it."""
        copy, found = self.shadow.copies[number], self._of(buffer)
        cells = self._places(found, offsets, size, adds=True).reshape(-1)
        what = what or f"copies {'from' if copy.kind == 'reads' else 'to'} global bytes"
        self._require_fence(copy.instruction, copy.cluster, copy.row, found, cells, lane, what)
        for copies in (found.writes, *([found.reads] if copy.kind == "writes" else [])):
            numbers = copies[cells]
            for each in np.unique(numbers[numbers != 0]).tolist():
                if each != number and not self._complete(each, copy.cluster, copy.row):
                    self.fault("race", copy.instruction, lane, f"{what} {self.shadow.unfinished(each)}")
        if copy.kind == "writes":
            found.writer[cells], found.writes[cells], found.reads[cells] = 0, number, 0
            return
        reads = found.reads[cells]
        copy.also += [other for other in np.unique(reads[reads != 0]).tolist() if other != number]
        found.reads[cells] = number

    def _require_fence(
        self, instruction: Instruction, cluster: int, row: int, found: MetCells, cells: np.ndarray, lane: int, what: str
    ) -> None:
        cells = cells[found.writer[cells] != 0]
        if not cells.size:
            return
        clock, rows = self.order.clock, self.order.rows
        writer, of = found.writer[cells].astype(np.int64) - 1, found.cluster[cells].astype(np.int64)
        fenced = clock[of, writer, 2 * rows + writer] > found.epoch[cells]
        fenced |= np.where(of == cluster, clock[cluster, row, 2 * rows + writer] > found.epoch[cells],
                           clock[cluster, row, 2 * rows + row] > 0)  # fmt: skip
        if not fenced.all():
            first = int(np.argmin(fenced))
            at = self.shadow.accesses[int(found.access[cells[first]])].instruction.location.in_full()
            who = self.shadow.name(int(of[first]), int(writer[first]))
            sentence = f"{what} that {who} wrote at {at} with no fence.proxy.async between"
            self.fault("race", instruction, lane, sentence)
