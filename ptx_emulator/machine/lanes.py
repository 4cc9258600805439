"""The lanes of a batch of blocks and their registers: which are live or active, their names in faults, their values.

Lanes are (blocks, threads), both by their places in the schedule, with threads padded to whole warps; padding lanes
have exited from the start. A mask is a bool array of that shape, or None for all live lanes. A register has one row of
values for each block, rows of 32 and of 64 bits apart, which another gets once it is dead. Narrower registers and
predicates are zero-extended.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from ptx_emulator.compiled.layout import SCRATCH_ROWS
from ptx_emulator.errors import Fault
from ptx_emulator.machine.launch_state import LaunchState, Resources
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.registers import U32, U64, Bits


class Lanes:
    """Blocks at places `first` to `first + blocks` of a launch.

    live: (blocks, threads) bool, False for a lane that exited; all_live: True while none has
    """

    def __init__(self, launch: LaunchState, first: int, blocks: int):
        self.launch, self.first, self.blocks = launch, first, blocks
        self.threads = -(-launch.threads // 32) * 32
        self.shape = (blocks, self.threads)
        self.live = np.repeat(launch.thread_at[None, :] < launch.threads, blocks, axis=0)
        self.all_live = launch.threads == self.threads

    def full(self, values: np.ndarray) -> np.ndarray:
        """Expand a register to one value for every lane."""
        return values if values.shape == self.shape else np.ascontiguousarray(np.broadcast_to(values, self.shape))

    def under(self, mask: np.ndarray | None) -> np.ndarray:
        """The lanes of a mask, (blocks, threads) bool."""
        return self.live if mask is None else mask

    def active(self, mask: np.ndarray | None) -> np.ndarray | None:
        """The active lanes under a mask; None for the whole batch."""
        return mask if mask is not None else (None if self.all_live else self.live)

    def first_with(self, row: int, shape: tuple[int, ...]) -> int:
        """The first lane of element `row` of an array whose shape broadcasts to all lanes."""
        block, thread = divmod(row, shape[1])
        return block * self.threads + thread

    def name(self, lane: int) -> str:
        """`block (1, 0, 0), thread (5, 0, 0)`."""
        block, thread = divmod(lane, self.threads)
        return f"block {self.launch.block_name(self.first + block)}, thread {self.launch.thread_name(thread)}"

    def whole_name(self, lane: int) -> str:
        """The kernel and its grid as it was launched, then the lane: `k, grid (4, 1, 1), block (1, 0, 0), …`."""
        return f"{self.launch.title}, grid {tuple(self.launch.grid)}, {self.name(lane)}"

    def fault(self, kind: str, instruction: Instruction, lane: int, sentence: str) -> NoReturn:
        """Raise Fault for lane number `lane` of the batch."""
        where = instruction.location
        raise Fault(kind, str(where), f"{sentence}; {self.whole_name(lane)}{where.chain()}")

    def require_source(
        self, instruction: Instruction, takes_part: np.ndarray, source: np.ndarray, mask: np.ndarray | None
    ) -> None:
        """Raise Fault if a lane of a shuffle reads a lane `source` that does not take part."""
        wrong = ~takes_part & (self.under(mask))
        if wrong.any():
            lane = int(np.argmax(wrong))
            other = int(np.broadcast_to(source, self.shape).flat[lane])
            sentence = f"{instruction.mnemonic} reads lane {other}, which does not take part or has exited"
            self.fault("inactive_shuffle", instruction, lane, sentence)

    def whole_warps(self, instruction: Instruction, mask: np.ndarray | None) -> np.ndarray | None:
        """The warps that execute an instruction of whole warps, by number in the batch; None for all.

        Raises Fault if a lane is missing.
        """
        lanes = self.active(mask)
        if lanes is None:
            return None
        by_warp = lanes.reshape(-1, 32)
        some, every = by_warp.any(axis=1), by_warp.all(axis=1)
        if (some & ~every).any():
            warp = int(np.argmax(some & ~every))
            absent = int(np.argmin(by_warp[warp]))
            problem = "does not execute it" if self.live.reshape(-1, 32)[warp, absent] else "exited or never was"
            sentence = f"{instruction.mnemonic} takes all 32 lanes of a warp, and lane {absent} {problem}"
            self.fault("inactive_shuffle", instruction, 32 * warp + int(np.argmax(by_warp[warp])), sentence)
        return None if every.all() else np.flatnonzero(every)


class RegisterFile:
    """Registers by slot: arrays (blocks, threads) of the register's type; a constant is (1, 1).

    narrow, wide: (blocks, rows, threads) uint32 and uint64
    """

    def __init__(self, resources: Resources, blocks: int, threads: int):
        self.kinds, self.rows, self.constants = resources.kinds, resources.rows, resources.constants
        narrow, wide = (count + SCRATCH_ROWS for count in resources.row_counts)
        self.narrow = np.empty((blocks, narrow, threads), U32)
        self.wide = np.empty((blocks, wide, threads), U64)

    def __getitem__(self, slot: int) -> Bits:
        if slot < 0:
            return self.constants[~slot]
        kind, row = self.kinds[slot], self.rows[slot]
        if kind.itemsize == 8:
            return self.wide[:, row].copy()
        values = self.narrow[:, row]
        return values.copy() if kind == U32 else values.astype(kind)

    def put(self, slot: int, value: Bits, mask: np.ndarray | None) -> None:
        """Write a register; lanes outside the mask keep what their row holds, which may be another register."""
        file = self.wide if self.kinds[slot].itemsize == 8 else self.narrow
        row = file[:, self.rows[slot]]
        np.copyto(row, value, casting="unsafe", where=True if mask is None else mask)
