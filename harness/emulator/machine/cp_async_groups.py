"""`cp.async`: copies from global to shared memory that become visible when the thread that began them waits for them.

The source is read when the copy starts; the destination changes, and counts as written, when the group it was committed
to is waited for. Until then nobody may read it, and the copy counts as a store both when it starts and when it lands:
the hardware may write at any time between. Groups are each thread's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.emulator.memory import Access
from harness.emulator.registers import I64, Bits


@dataclass
class _Copy:
    """lanes: (blocks, threads) bool, those whose copy has not landed; group: (blocks, threads) int, their groups."""

    access: Access
    address: Bits
    values: list[Bits]
    lanes: np.ndarray
    group: np.ndarray


class CopyGroups:
    """The copies of a batch that are on their way, oldest first.

    committed: (blocks, threads) int, groups that each lane has committed, which is the number of its open group
    """

    def __init__(self, shape: tuple[int, int]):
        self.in_flight: list[_Copy] = []
        self.committed = np.zeros(shape, I64)

    def start(self, access: Access, address: Bits, values: list[Bits], lanes: np.ndarray) -> None:
        """Begin a copy of `values` to `address`."""
        self.in_flight.append(_Copy(access, address, values, lanes.copy(), self.committed.copy()))

    def commit(self, lanes: np.ndarray) -> None:
        """`commit_group` of these lanes."""
        self.committed += lanes

    def wait(self, keep: int, lanes: np.ndarray) -> Iterator[tuple[_Copy, np.ndarray]]:
        """The copies that land, with the lanes they land for, when these lanes wait for all but `keep` groups."""
        for copy in self.in_flight:
            due = copy.lanes & lanes & (copy.group < self.committed - keep)
            if due.any():
                yield copy, due
                copy.lanes &= ~due
        self.in_flight = [copy for copy in self.in_flight if copy.lanes.any()]
