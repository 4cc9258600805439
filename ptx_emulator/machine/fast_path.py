"""A batch's straight-line code on the compiled interpreter, with NumPy steps for instructions that it leaves."""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled import layout
from ptx_emulator.compiled.loading import compiled
from ptx_emulator.machine.basic_blocks import Branch, Code, Segment
from ptx_emulator.machine.batch import Batch
from ptx_emulator.memory import Buffer
from ptx_emulator.races.async_agents import CompiledChecks
from ptx_emulator.races.async_shadow import AsyncShadow
from ptx_emulator.races.block_order import WARPS_OF
from ptx_emulator.races.wgmma_reads import WgmmaShadow

# The lanes that take a branch and the ones that do not; None for no lane.
Parted = tuple["np.ndarray | None", "np.ndarray | None"]

_NUMBER = (1 << 32) - 1
_SCRATCH = np.zeros(layout.SCRATCH_SIZE, np.uint8)  # shared, because launches run one after another


def buffer_table(memory: list[Buffer]) -> np.ndarray:
    """The interpreter's table of buffers, (n, columns) int64; without tags of races."""
    table = np.zeros((len(memory), layout.BUFFER_COLUMNS), np.int64)
    table[:, : layout.WRITTEN_MAP + 1] = [
        (
            each.window,
            each.address,
            _address(each.data),
            len(each.data),
            each.readable,
            each.writable,
            0 if each.written is None else _address(each.written),
        )
        for each in memory
    ]
    return table


def _address(array: np.ndarray) -> int:
    # Twice as quick as `array.ctypes.data`, which matters for small grids.
    return array.__array_interface__["data"][0]


class FastPath:
    """The compiled program of one kernel on one batch."""

    def __init__(self, batch: Batch, code: Code):
        self.batch, self.code, self._lanes = batch, code, None
        functions = compiled()
        self._interpreter, self._count, self._part = functions.run, functions.count, functions.part_lanes
        launch, registers, addressing = batch.launch, batch.registers, batch.addressing
        shadow = batch.shadow
        context = self.context = np.zeros(layout.CONTEXT_SIZE, np.int64)
        self.kept = [code.program, code.constants, registers, launch, addressing, shadow, batch.order]
        context[layout.BLOCKS], context[layout.THREADS] = batch.shape
        context[layout.SHARED_SIZE], context[layout.SHARED_STRIDE] = addressing.shared.size, addressing.shared.stride
        context[layout.FIRST_BLOCK], context[layout.COUNTED] = batch.first, launch.counts_traffic
        for count, of in (
            (layout.INSTRUCTIONS, code.program), (layout.CONSTANT_COUNT, code.constants),
            (layout.NARROW_COUNT, registers.narrow[0]), (layout.WIDE_COUNT, registers.wide[0]),
            (layout.BUFFER_COUNT, launch.buffers),
        ):  # fmt: skip
            context[count] = len(of)
        arrays = {
            layout.CODE: code.program, layout.CONSTANTS: code.constants, layout.NARROW_ROWS: registers.narrow,
            layout.WIDE_ROWS: registers.wide, layout.PARAMETERS: launch.parameters, layout.BUFFERS: launch.buffers,
            layout.SHARED: addressing.shared.data, layout.TRAFFIC: launch.traffic.compiled, layout.SCRATCH: _SCRATCH,
        }  # fmt: skip
        if addressing.shared.written is not None:
            arrays[layout.SHARED_WRITTEN] = addressing.shared.written
        if isinstance(shadow, AsyncShadow):
            shadow.compiled = CompiledChecks(functions.record, functions.start_copy, len(shadow.writer))
        if shadow:
            context[layout.SHADOW], context[layout.SHADOW_CELL] = 1, shadow.cell
            arrays |= {layout.SHADOW_WRITES: shadow.writes, layout.SHADOW_READS: shadow.reads,
                       layout.SHADOW_UPDATES: shadow.updates}  # fmt: skip
        if isinstance(shadow, WgmmaShadow):
            arrays[layout.SHADOW_WGMMA] = shadow.wgmma_reads
        if batch.order:
            arrays |= {layout.EPOCHS: batch.order.epoch, layout.KNOWN: batch.order.known,
                       layout.COMMON: batch.order.common, layout.AGENT_WARPS: WARPS_OF}  # fmt: skip
        if batch.wgmma:
            context[layout.HAZARD_COUNT], context[layout.HAZARD_WIDTH] = code.hazards.shape
            context[layout.WGMMA_REGISTERS] = batch.wgmma.held.shape[2]
            arrays |= {layout.HAZARDS: code.hazards, layout.WGMMA_WRITERS: batch.wgmma.writers,
                       layout.WGMMA_HELD: batch.wgmma.held}  # fmt: skip
        if launch.shadow:
            context[layout.GLOBAL_SHADOW], context[layout.GLOBAL_CELL] = 1, launch.shadow.cell
            arrays[layout.GLOBAL_READERS] = launch.shadow.shadows.readers.table
        for at, array in arrays.items():
            context[at] = array.ctypes.data

    def run(self, segment: Segment, mask: np.ndarray | None) -> None:
        """Run a segment for the lanes of a mask, all live ones for None. Raises what its NumPy steps raise."""
        context, lanes = self.context, self._choose(mask)
        context[layout.WHOLE] = mask is None
        if self.batch.shadow:
            context[layout.HAS_SHARED_UPDATES] = self.batch.shadow.has_updates
        run = self._interpreter
        start, stop = segment
        at = run(context, start, stop, 0, start)
        while at >= 0:
            block, number = at >> 32, at & _NUMBER
            only = np.zeros_like(lanes)
            only[block] = lanes[block]
            self.code.slow(number)(self.batch, only)
            at = run(context, start, stop, block, number + 1)

    def count(self, mask: np.ndarray) -> tuple[int, int]:
        """How many lanes and warps are in a mask."""
        self._choose(mask)
        found = self._count(self.context)
        return found >> 32, found & _NUMBER

    def parted(self, branch: Branch, mask: np.ndarray | None) -> Parted:
        """The lanes of a mask that take a branch on a register, and those that do not."""
        self._choose(mask)
        parts = np.empty((2, *self.batch.shape), bool)
        row = self.batch.registers.rows[branch.predicate]
        found = self._part(self.context, row, branch.negated, _address(parts))
        return parts[0] if found & 1 else None, parts[1] if found & 2 else None

    def _choose(self, mask: np.ndarray | None) -> np.ndarray:
        lanes = self.batch.under(mask)
        if lanes is not self._lanes:  # a mask often goes from block to block
            self._lanes, self.context[layout.LANES] = lanes, _address(lanes)
        return lanes


class NumpyPath:
    """Runs a program by the NumPy steps alone, which define it."""

    def __init__(self, batch: Batch, code: Code):
        self.batch, self.code = batch, code

    def run(self, segment: Segment, mask: np.ndarray | None) -> None:
        """Run a segment for the lanes of a mask, all live ones for None, one NumPy step after the other."""
        for number in range(*segment):
            self.code.slow(number)(self.batch, mask)

    def count(self, mask: np.ndarray) -> tuple[int, int]:
        """How many lanes and warps are in a mask."""
        return int(np.count_nonzero(mask)), int(np.count_nonzero(mask.reshape(-1, 32).any(axis=1)))

    def parted(self, branch: Branch, mask: np.ndarray | None) -> Parted:
        """The lanes of a mask that take a branch on a register, and those that do not; None for no lane."""
        holds, lanes = self.batch.registers[branch.predicate], self.batch.under(mask)
        taken = lanes & (~holds if branch.negated else holds)
        rest = lanes & ~taken
        return taken if taken.any() else None, rest if rest.any() else None


class EarlyPath(FastPath):
    """A launch that began early: NumPy steps, which are checked against the launches ahead, until every lane waited."""

    def __init__(self, batch: Batch, code: Code):
        super().__init__(batch, code)
        self._steps = NumpyPath(batch, code)

    def run(self, segment: Segment, mask: np.ndarray | None) -> None:
        """Run a segment by NumPy steps until every lane has waited for the launches ahead, and the rest by FastPath."""
        for number in range(*segment):
            if self.batch.knows_launches:
                super().run(Segment(number, segment[1]), mask)
                return
            self.code.slow(number)(self.batch, mask)
