"""Tensor memory: 128 lanes by 512 columns of 32 bits for each block, which `tcgen05` allocates, reads and writes.

From the PTX ISA, "Tensor Memory". An address has the lane in its high and the column in its low 16 bits. Columns are
allocated by powers of two from 32, and all lanes of them. A warp reaches the 32 lanes of its rank in its warpgroup.
What two blocks do together, by `cta_group::2`, is in `tensor_pairs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ptx_emulator.machine.lanes import Lanes
from ptx_emulator.machine.tensor_pairs import TensorPairs
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_order import AsyncOrder
from ptx_emulator.races.async_shadow import AsyncShadow
from ptx_emulator.races.tensor_shadow import LOADS, STORES, UNIT, Region, TensorShadow, Use
from ptx_emulator.registers import U32, WARP, WARPGROUP

LANES, COLUMNS, LEAST = 128, 512, 32
QUARTER = 32  # tensor-memory lanes that a warp can reach
KIND = "tensor_memory"


class Allocation(NamedTuple):
    """Columns `start` to `start + count`."""

    start: int
    count: int
    instruction: Instruction


@dataclass
class BlockTensorMemory:
    """The tensor memory of one block.

    freed: the last `dealloc` of each column; relinquished: the instruction that did so
    promised: columns that the block's peer has allocated for both, and it has not yet
    withdrawn: columns that its peer has freed for both, and it has not yet, and by which instruction
    """

    data: np.ndarray = field(default_factory=lambda: np.zeros((LANES, COLUMNS), U32))
    written: np.ndarray = field(default_factory=lambda: np.zeros((LANES, COLUMNS), bool))
    allocations: list[Allocation] = field(default_factory=list)
    allocated: np.ndarray = field(default_factory=lambda: np.zeros(COLUMNS, bool))
    promised: np.ndarray = field(default_factory=lambda: np.zeros(COLUMNS, bool))
    withdrawn: dict[int, Instruction] = field(default_factory=dict)
    freed: dict[int, Instruction] = field(default_factory=dict)
    relinquished: Instruction | None = None


@dataclass
class Load:
    """A register of a `tcgen05.ld`. pending: (warps,) bool, those that have neither read it nor waited"""

    instruction: Instruction
    slot: int
    pending: np.ndarray


class TensorMemory:
    """The tensor memory of a batch. loads: registers that loads in flight write"""

    def __init__(self, lanes: Lanes, order: AsyncOrder | None, shadow: AsyncShadow | None):
        self.lanes, self.order = lanes, order
        self.memories: dict[int, BlockTensorMemory] = {}
        self.shadow = TensorShadow(order, shadow) if order and shadow else None
        self.loads: list[Load] = []
        self.pairs = TensorPairs(lanes, order)

    def of(self, block: int) -> BlockTensorMemory:
        if block not in self.memories:
            self.memories[block] = BlockTensorMemory()
        return self.memories[block]

    def allocate(self, instruction: Instruction, lane: int, count: int, paired: bool = False) -> int:
        """`tcgen05.alloc` of a warp; returns the address. lane: its first; paired: its peer does so, too"""
        block = lane // self.lanes.threads
        memory, fault = self.of(block), self.lanes.fault
        if memory.relinquished:
            at = memory.relinquished.location.in_full()
            sentence = f"allocates tensor memory after its block gave up the right to, at {at}"
            fault(KIND, instruction, lane, sentence)
        self._require_count(instruction, lane, "allocates", count)
        both = self.pairs.meet(instruction, lane, f"{count} columns") if paired else None
        # What the first block of a pair has got, its peer gets.
        places = range(0, COLUMNS, count) if both is None or both.start is None else (both.start,)
        for start in places:
            if not memory.allocated[start : start + count].any():
                memory.allocated[start : start + count] = True
                memory.allocations.append(Allocation(start, count, instruction))
                memory.promised[start : start + count] = False
                if both:
                    self.pairs.remember(instruction, lane, f"{count} columns")
                if both and both.start is None:
                    both.start = start
                    self.of(block ^ 1).promised[start : start + count] = True
                return start
        sentence = f"waits for {count} columns of tensor memory that follow one another from a multiple of {count} on: "
        return fault("deadlock", instruction, lane, f"{sentence}of {COLUMNS}, {_list(memory.allocations)}")

    def free(self, instruction: Instruction, lane: int, address: int, count: int, paired: bool = False) -> None:
        """`tcgen05.dealloc` of a warp. paired: its peer does so, too"""
        block = lane // self.lanes.threads
        memory, fault = self.of(block), self.lanes.fault
        self._require_count(instruction, lane, "frees", count)
        found = [each for each in memory.allocations if (each.start, each.count) == (address, count)]
        if not found:
            sentence = f"frees {count} columns of tensor memory at address {address:#x}, where none of that size were "
            before = memory.freed.get(address & 0xFFFF) if address < 1 << 16 else None
            had = f"allocated: {_list(memory.allocations)}"
            if before:
                had += f", and column {address} was freed at {before.location.in_full()}"
            fault(KIND, instruction, lane, sentence + had)
        columns = np.arange(address, address + count)
        if paired:
            self._free_of_peer(instruction, lane, columns)
        if self.shadow:
            self.shadow.free(instruction, lane, block, columns)
        memory.allocations.remove(found[0])
        memory.allocated[columns], memory.written[:, columns] = False, False
        memory.freed |= dict.fromkeys(columns.tolist(), instruction)

    def _free_of_peer(self, instruction: Instruction, lane: int, columns: np.ndarray) -> None:
        """Check the same columns of the peer, which may be free from now on."""
        block, what = lane // self.lanes.threads, f"{len(columns)} columns at address {int(columns[0]):#x}"
        self.pairs.require_peer_allocated(instruction, lane, what)
        self.pairs.meet(instruction, lane, what)
        for column in columns.tolist():
            self.of(block).withdrawn.pop(column, None)
        peer = self.of(block ^ 1)
        if peer.allocated[columns].all():
            peer.withdrawn |= dict.fromkeys(columns.tolist(), instruction)
        if self.shadow:
            self.shadow.free(instruction, lane, block ^ 1, columns, forget=False)

    def _require_count(self, instruction: Instruction, lane: int, verb: str, count: int) -> None:
        if not LEAST <= count <= COLUMNS or count & count - 1:
            sentence = f"{verb} {count} columns of tensor memory, where a power of two from {LEAST} to {COLUMNS} is "
            self.lanes.fault(KIND, instruction, lane, f"{sentence}allowed")

    def exit(self, lanes: np.ndarray) -> None:
        """These lanes, flat, exit. Raises Fault for a block that ends with columns allocated."""
        if not self.memories:
            return
        left = (self.lanes.live.reshape(-1) & ~lanes).reshape(self.lanes.shape).any(axis=1)
        for block in np.flatnonzero(lanes.reshape(self.lanes.shape).any(axis=1) & ~left).tolist():
            self.pairs.exit(block)
            memory = self.memories.get(block)
            if memory and memory.allocations:
                start, count, instruction = memory.allocations[0]
                sentence = f"allocates columns {start} to {start + count - 1} of tensor memory, and its block exits "
                lane = block * self.lanes.threads
                self.lanes.fault(KIND, instruction, lane, f"{sentence}without a tcgen05.dealloc of them")

    def require_allocated(
        self, instruction: Instruction, lane: int, verb: str, columns: np.ndarray, block: int | None = None
    ) -> None:
        """Raise Fault for columns that are not allocated. block: whose, that of the lane for None"""
        memory = self._memory(lane, block)
        inside = (columns >= 0) & (columns < COLUMNS)
        good = inside & (memory.allocated | memory.promised)[np.where(inside, columns, 0)]
        if memory.withdrawn:
            good &= ~np.isin(columns, [*memory.withdrawn])
        if good.all():
            return
        column = int(columns.reshape(-1)[np.argmin(good.reshape(-1))])
        sentence = f"{verb} column {column} of {self._named(lane, block)}, "
        if not 0 <= column < COLUMNS:
            why = f"which has {COLUMNS}"
        elif column in memory.withdrawn:
            why = f"which the pair's other block freed at {memory.withdrawn[column].location.in_full()}"
        elif column in memory.freed:
            why = f"which was freed at {memory.freed[column].location.in_full()}"
        else:
            why = f"which is not allocated: {_list(memory.allocations)}"
        self.lanes.fault("out_of_bounds", instruction, lane, sentence + why)

    def _memory(self, lane: int, block: int | None) -> BlockTensorMemory:
        return self.of(lane // self.lanes.threads if block is None else block)

    def _named(self, lane: int, block: int | None) -> str:
        own = block is None or block == lane // self.lanes.threads
        return "tensor memory" if own else "its peer's tensor memory"

    def read(self, instruction: Instruction, lane: int, region: Region, block: int | None = None) -> np.ndarray:
        """Read the values of a region. Raises Fault for cells that nothing wrote. block: as `require_allocated`"""
        memory = self._memory(lane, block)
        self.require_allocated(instruction, lane, "reads", np.asarray(region[1]), block)
        written = memory.written[region]
        if not written.all() and self.lanes.launch.sanitize:
            at = tuple(int(each) for each in np.argwhere(~written)[0])
            row, column = (int(np.broadcast_to(each, written.shape)[at]) for each in region)
            sentence = f"reads lane {row}, column {column} of {self._named(lane, block)}, which nothing wrote before"
            self.lanes.fault("unwritten_read", instruction, lane, sentence)
        return memory.data[region]

    def write(
        self, instruction: Instruction, lane: int, region: Region, values: np.ndarray, block: int | None = None
    ) -> None:
        """Store values in a region. block: as `require_allocated`"""
        memory = self._memory(lane, block)
        self.require_allocated(instruction, lane, "writes", np.asarray(region[1]), block)
        memory.data[region], memory.written[region] = values, True

    def issue(self, instruction: Instruction, lane: int) -> Use | None:
        """Make a new use by the matrix unit, which processes one thread's uses in order."""
        return self.shadow.issue(instruction, lane, UNIT, np.array([lane])) if self.shadow else None

    def issue_of_warp(self, instruction: Instruction, warp: int, loads: bool) -> Use | None:
        """Make a new use by a `tcgen05.ld` or `st` of a warp of the batch."""
        if not self.shadow:
            return None
        lanes = np.arange(warp * WARP, (warp + 1) * WARP)
        return self.shadow.issue(instruction, warp * WARP, LOADS if loads else STORES, lanes)

    def start(self, use: Use | None, block: int, reads: list[Region], writes: list[Region]) -> None:
        """Check what a use reads and writes, and remember it."""
        if use and self.shadow:
            self.shadow.start(use, block, reads, writes)

    def rank(self, warp: int) -> int:
        """The place of a warp in its warpgroup, 0 to 3. warp: its place in the batch"""
        thread = int(self.lanes.launch.thread_at[warp * WARP % self.lanes.threads])
        return thread % WARPGROUP // WARP

    def load(self, instruction: Instruction, slots: frozenset[int], warps: np.ndarray) -> None:
        """A `tcgen05.ld` of these warps, (warps,) bool. slots: its registers that may be written again too early"""
        if self.lanes.launch.sanitize:
            self.loads += [Load(instruction, slot, warps.copy()) for slot in slots]

    def wait(self, warps: np.ndarray, loads: bool) -> None:
        """`tcgen05.wait::ld` or `wait::st` of these warps, (warps,) bool."""
        if loads:
            for load in self.loads:
                load.pending &= ~warps
            self.loads = [load for load in self.loads if load.pending.any()]
        if self.shadow:
            for warp in np.flatnonzero(warps).tolist():
                self.shadow.wait(warp, LOADS if loads else STORES)

    def use_registers(
        self, instruction: Instruction, reads: frozenset[int], writes: frozenset[int], mask: np.ndarray | None
    ) -> None:
        """Check an instruction that uses registers of a `tcgen05.ld`, which is done for those that it reads."""
        if not self.loads:
            return
        warps = self.lanes.under(mask).reshape(-1, WARP).any(axis=1)
        for load in self.loads:
            if load.slot in reads:
                load.pending &= ~warps
            late = load.pending & warps
            if load.slot in writes and late.any():
                at = load.instruction.location.in_full()
                sentence = f"{instruction.mnemonic} writes a register that the {_short(load.instruction)} at {at} may "
                sentence += "still write: it was not read since, and no tcgen05.wait::ld comes between"
                self.lanes.fault("race", instruction, int(np.argmax(late)) * WARP, sentence)


def _short(instruction: Instruction) -> str:
    return ".".join(instruction.mnemonic.split(".")[:2])


def _list(allocations: list[Allocation]) -> str:
    if not allocations:
        return "none is allocated"
    names = (
        f"{start} to {start + count - 1} at {instruction.location.in_full()}"
        for start, count, instruction in allocations
    )
    return "allocated are " + ", ".join(names)
