"""`cp.async`: copies from global to shared memory that become visible when the kernel waits for them.

The source is read when the copy starts; the destination changes, and counts as written, when the group it was committed
to is waited for. A kernel that forgets the wait therefore reads what was there before, or is told that nothing was.
Groups are those of all lanes together: committing or waiting in divergent code is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.memory import Access
from harness.emulator.operation import U64, Bits
from harness.emulator.ptx import Instruction
from harness.errors import NotCapable

if TYPE_CHECKING:
    from harness.emulator.batch import Batch


@dataclass(frozen=True)
class _Copy:
    access: Access
    address: Bits
    values: list[Bits]
    mask: np.ndarray | None


class Copies:
    """The copies of a batch that are on their way, oldest group first."""

    def __init__(self):
        self.open: list[_Copy] = []
        self.groups: list[list[_Copy]] = []

    def start(
        self,
        batch: Batch,
        reads: Access,
        writes: Access,
        source: Bits,
        target: Bits,
        used: Bits | None,
        mask: np.ndarray | None,
    ) -> None:
        """Begin a copy. used: bytes to read, the rest of the destination becomes 0; None for all."""
        values = batch.read(reads, source, mask)
        if used is not None:
            values = [_keep(value, used, i * reads.size) for i, value in enumerate(values)]
        self.open.append(_Copy(writes, target, values, mask))

    def command(self, batch: Batch, what: str, keep: int, mask: np.ndarray | None, instruction: Instruction) -> None:
        """`commit_group`, `wait_group` (all but the `keep` youngest groups) or `wait_all`."""
        if mask is not None:
            raise NotCapable(f"not emulated: {instruction.mnemonic} in divergent code at {instruction.location}")
        if what == "wait_all" and self.open:
            self.groups.append(self.open)
            self.open = []
        if what == "commit_group":
            self.groups.append(self.open)
            self.open = []
            return
        while len(self.groups) > keep:
            for copy in self.groups.pop(0):
                batch.write(copy.access, copy.address, copy.values, copy.mask)


def _keep(value: Bits, used: Bits, start: int) -> Bits:
    """The bytes of an element that starts `start` bytes into the copy, zero from byte `used` on."""
    bits = 8 * np.clip(used.astype(np.int64) - start, 0, value.itemsize).astype(U64)
    mask = np.where(bits == 64, ~U64(0), (U64(1) << (bits & U64(63))) - U64(1))
    return (value.astype(U64) & mask).astype(value.dtype)
