"""The copies of `cp.async` in flight, by group.

The source is read when a copy starts; the destination is written when the thread waits for the group that the copy was
committed to. The destination may not be read in between, and both ends count as a store for the race checks, because
hardware may write at any time between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ptx_emulator.memory import Access
from ptx_emulator.registers import I64, Bits


@dataclass
class _Copy:
    """lanes: (blocks, threads) bool, whose copy is in flight; group: (blocks, threads) int"""

    access: Access
    address: Bits
    values: list[Bits]
    lanes: np.ndarray
    group: np.ndarray


class CopyGroups:
    """The copies of a batch, oldest first.

    committed: (blocks, threads) int, the number of each lane's committed groups, and so of its open group
    """

    def __init__(self, shape: tuple[int, int]):
        self.in_flight: list[_Copy] = []
        self.committed = np.zeros(shape, I64)

    def start(self, access: Access, address: Bits, values: list[Bits], lanes: np.ndarray) -> None:
        """Start a copy of `values` to `address`."""
        self.in_flight.append(_Copy(access, address, values, lanes.copy(), self.committed.copy()))

    def commit(self, lanes: np.ndarray) -> None:
        """`commit_group` of these lanes."""
        self.committed += lanes

    def wait(self, keep: int, lanes: np.ndarray) -> Iterator[tuple[_Copy, np.ndarray]]:
        """The copies to store, and for which lanes, when these lanes wait for all but the `keep` latest groups."""
        for copy in self.in_flight:
            due = copy.lanes & lanes & (copy.group < self.committed - keep)
            if due.any():
                yield copy, due
                copy.lanes &= ~due
        self.in_flight = [copy for copy in self.in_flight if copy.lanes.any()]
