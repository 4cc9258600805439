"""Races in tensor memory: which uses of a cell may be in flight, and whether the next user knows that they are done.

Each use is asynchronous. A thread knows that a `tcgen05.ld` or `st` is done once it knows of a `tcgen05.wait` by the
same warp. It knows that work of the matrix unit (`mma`, `cp`) is done once it, or a thread that it knows of, has waited
for the mbarrier of a later `tcgen05.commit` by the issuing thread. The unit keeps the order of one thread, so one
thread's uses are not checked against each other. `tcgen05.fence` is not required: neither Triton's compiler nor
CUTLASS's first examples have it behind a commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_order import AsyncOrder, larger
from ptx_emulator.races.async_shadow import AsyncShadow
from ptx_emulator.registers import U32, WARP, Bits

UNIT, LOADS, STORES = "unit", "loads", "stores"
_WAITS = {
    UNIT: "no thread that waited for the mbarrier of a tcgen05.commit behind it let this one know",
    LOADS: "no tcgen05.wait::ld of its warp, and then a barrier for other warps, comes between",
    STORES: "no tcgen05.wait::st of its warp, and then a barrier for other warps, comes between",
}
_SHAPE = 128, 512

# Lanes and columns that index one block's tensor memory by broadcasting.
Region = tuple[np.ndarray, np.ndarray]


@dataclass
class Use:
    """A use of tensor memory, or several that one instruction makes.

    counter, number: a thread whose clock has more than `number` in the column `counter` knows that it is done
    rows: the issuing threads'; also: reads of the same cells that this one replaced
    """

    instruction: Instruction
    lane: int
    how: str
    cluster: int
    rows: np.ndarray
    counter: int
    number: int
    also: list[int] = field(default_factory=list)


class TensorShadow:
    """writer, reader: by block, the number of the last use of each cell, or 0; uses: by number

    queues: by thread, or by warp and LOADS or STORES: a counter of the clock, and how many uses were issued
    released: by thread, the clock of what it knew and did before its last use of the unit
    """

    def __init__(self, order: AsyncOrder, shadow: AsyncShadow):
        self.order, self.shadow = order, shadow
        self.writer: dict[int, np.ndarray] = {}
        self.reader: dict[int, np.ndarray] = {}
        self.uses: list[Use | None] = [None]
        self.queues: dict[tuple[str, int], list[int]] = {}
        self.released: dict[int, Bits] = {}

    def _queue(self, how: str, number: int) -> list[int]:
        key = how, number
        if key not in self.queues:
            self.queues[key] = [self.order.counter(), 0]
        return self.queues[key]

    def issue(self, instruction: Instruction, lane: int, how: str, lanes: np.ndarray) -> Use:
        """Make a new use. lanes: (n,) lanes of the batch that issue it"""
        queue = self._queue(how, lane if how == UNIT else lane // WARP)
        cluster, rows = self.order.row(*np.divmod(lanes, self.order.threads))
        use = Use(instruction, lane, how, int(cluster[0]), rows, queue[0], queue[1])
        queue[1] += 1
        if how == UNIT:
            self.released[lane] = self.order.publish(use.cluster, rows)
        return use

    def start(self, use: Use, block: int, reads: list[Region], writes: list[Region]) -> None:
        """Check a use against those in flight, and remember it."""
        writer, reader = (each.setdefault(block, np.zeros(_SHAPE, U32)) for each in (self.writer, self.reader))
        for region in reads:
            self._check(use, "reads", writer[region], region)
        for region in writes:
            self._check(use, "writes", writer[region], region)
            self._check(use, "writes", reader[region], region)
        number = len(self.uses)
        self.uses.append(use)
        self.order.activity += 1
        for region in reads:
            for other in _numbers(reader[region]):
                if not self._over(other, use):
                    own = self.uses[other].counter == use.counter
                    use.also += [*([] if own else [other]), *self.uses[other].also]
            reader[region] = number
        for region in writes:
            writer[region], reader[region] = number, 0

    def _over(self, number: int, use: Use) -> bool:
        """Whether an earlier use is known to be done before a later one begins."""
        earlier = self.uses[number]
        if earlier.how == use.how == UNIT and earlier.counter == use.counter:
            return True
        known = self.order.clock[use.cluster, use.rows, earlier.counter]
        return bool((known > earlier.number).all())

    def _check(self, use: Use, verb: str, cells: np.ndarray, region: Region) -> None:
        for number in _numbers(cells):
            for other in (number, *self.uses[number].also):
                if not self._over(other, use):
                    at = tuple(int(each) for each in np.argwhere(cells == number)[0])
                    lane, column = (int(np.broadcast_to(each, cells.shape)[at]) for each in region)
                    self._race(use.instruction, use.lane, f"{verb} lane {lane}, column {column} of", other, number)

    def _race(self, instruction: Instruction, lane: int, does: str, other: int, replaced_by: int) -> None:
        earlier = self.uses[other]
        verb = "read" if other != replaced_by else {LOADS: "read", STORES: "write", UNIT: "use"}[earlier.how]
        block, thread = divmod(earlier.lane, self.order.threads)
        who = self.shadow.name(*(int(each) for each in self.order.row(block, thread)))
        if earlier.how != UNIT:
            who = f"the warp of {who}"
        name = ".".join(earlier.instruction.mnemonic.split(".")[:2])
        sentence = f"{does} tensor memory that the {name} of {who} at {earlier.instruction.location.in_full()} may "
        self.shadow.fault("race", instruction, lane, f"{sentence}still {verb}: {_WAITS[earlier.how]}")

    def free(self, instruction: Instruction, lane: int, block: int, columns: np.ndarray, forget: bool = True) -> None:
        """Check a warp's `tcgen05.dealloc` like a write to all lanes of its columns. forget: what was there"""
        every = np.arange(lane // WARP * WARP, lane // WARP * WARP + WARP)
        cluster, rows = self.order.row(*np.divmod(every, self.order.threads))
        use = Use(instruction, lane, "frees", int(cluster[0]), rows, 0, 0)
        region = np.arange(_SHAPE[0])[:, None], columns[None, :]
        for cells in (self.writer.get(block), self.reader.get(block)):
            if cells is not None:
                self._check(use, "frees", cells[region], region)
                if forget:
                    cells[region] = 0

    def wait(self, warp: int, how: str) -> None:
        """Record a `tcgen05.wait` by a warp of the batch."""
        counter, count = self._queue(how, warp)
        if count:
            lanes = np.arange(warp * WARP, (warp + 1) * WARP)
            cluster, rows = self.order.row(*np.divmod(lanes, self.order.threads))
            self.order.reach(int(cluster[0]), rows, counter, count)

    def commit(self, lane: int) -> Bits:
        """The clock that a `tcgen05.commit`'s arrival releases: its thread's uses, and all before them, are done.

        The thread's later stores are not included, because the matrix unit arrives, not the thread.
        """
        cluster, row = self.order.row(*divmod(lane, self.order.threads))
        counter, count = self._queue(UNIT, lane)
        clock = self.order.clock[cluster, row].copy()
        before = self.released.get(lane)
        if before is not None:
            clock = larger(clock, before)
        clock[counter] = max(int(clock[counter]), count)
        self.order.activity += 1
        return clock


def _numbers(cells: np.ndarray) -> list[int]:
    """The non-zero numbers in these cells."""
    first = int(cells.flat[0])
    if (cells == first).all():
        return [first] if first else []
    return [number for number in np.unique(cells).tolist() if number]
