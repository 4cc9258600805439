"""The lanes of a batch of blocks: which are live, which are active under a mask, and their names in faults.

Lanes are (blocks, threads), both by their places in the schedule, with threads padded to whole warps; padding lanes
have exited from the start. A mask is a bool array of that shape, or None for all live lanes.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from ptx_emulator.errors import Fault
from ptx_emulator.machine.launch_state import LaunchState
from ptx_emulator.ptx.syntax import Instruction


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

    def fault(self, kind: str, instruction: Instruction, lane: int, sentence: str) -> NoReturn:
        """Raise Fault for lane number `lane` of the batch."""
        where = instruction.location
        kernel = self.launch.resources.kernel.name
        raise Fault(kind, str(where), f"{sentence}; {kernel}, {self.name(lane)}{where.chain()}")
