"""The registers of a batch: one row of values for each register and block, rows of 32 and of 64 bits apart.

Narrower registers and predicates are zero-extended. A row is used again once its register is dead.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled.layout import SCRATCH_ROWS
from ptx_emulator.machine.launch_state import Resources
from ptx_emulator.registers import U32, U64, Bits


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
