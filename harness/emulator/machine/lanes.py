"""A launch and the lanes of one batch of its blocks: who is alive, who acts under a mask, what a fault calls them.

Lanes are (blocks, threads) with threads padded to whole warps; padding lanes have exited from the start. A mask is an
array of bools of that shape, or None for all lanes that live.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from harness.emulator.errors import Fault
from harness.emulator.machine.launch_state import LaunchState, coordinates
from harness.emulator.ptx.syntax import Instruction


class Lanes:
    """Blocks `first` to `first + blocks` of a launch.

    live: (blocks, threads) bool, False for a lane that exited; all_live: True while all of them live
    """

    def __init__(self, launch: LaunchState, first: int, blocks: int):
        self.launch, self.first, self.blocks = launch, first, blocks
        self.threads = -(-launch.threads // 32) * 32
        self.shape = (blocks, self.threads)
        self.live = np.zeros(self.shape, bool)
        self.live[:, : launch.threads] = True
        self.all_live = launch.threads == self.threads

    def full(self, values: np.ndarray) -> np.ndarray:
        """A register with one value for every lane."""
        return values if values.shape == self.shape else np.ascontiguousarray(np.broadcast_to(values, self.shape))

    def active(self, mask: np.ndarray | None) -> np.ndarray | None:
        """The lanes that act under a mask; None if it is all of the batch."""
        return mask if mask is not None else (None if self.all_live else self.live)

    def first_with(self, row: int, shape: tuple[int, ...]) -> int:
        """The first lane that element `row` belongs to, of an array of a shape that broadcasts to all lanes."""
        block, thread = divmod(row, shape[1])
        return block * self.threads + thread

    def name(self, lane: int) -> str:
        """`block (1, 0, 0), thread (5, 0, 0)`."""
        block, thread = divmod(lane, self.threads)
        return (
            f"block {coordinates(self.first + block, self.launch.grid)}, "
            f"thread {coordinates(thread, self.launch.block)}"
        )

    def fault(self, kind: str, instruction: Instruction, lane: int, sentence: str) -> NoReturn:
        """Raise Fault for one lane of the flattened batch."""
        where = instruction.location
        kernel = self.launch.resources.kernel.name
        raise Fault(kind, str(where), f"{sentence}; {kernel}, {self.name(lane)}{where.chain()}")
