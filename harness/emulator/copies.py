"""`cp.async`: copies from global to shared memory that become visible when the thread that began them waits for them.

The source is read when the copy starts; the destination changes, and counts as written, when the group it was committed
to is waited for. Until then nobody may read it, and the copy counts as a store both when it starts and when it lands:
the hardware may write at any time between. Groups are each thread's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.memory import Access
from harness.emulator.operation import I64, UNSIGNED, Bits

if TYPE_CHECKING:
    from harness.emulator.batch import Batch


@dataclass
class _Copy:
    """lanes: (blocks, threads) bool, those whose copy has not landed; group: (blocks, threads) int, their groups."""

    access: Access
    address: Bits
    values: list[Bits]
    lanes: np.ndarray
    group: np.ndarray


class Copies:
    """The copies of a batch that are on their way, oldest first.

    committed: (blocks, threads) int, groups that each lane has committed, which is the number of its open group
    """

    def __init__(self, shape: tuple[int, int]):
        self.flying: list[_Copy] = []
        self.committed = np.zeros(shape, I64)

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
        values = batch.read(reads, source, mask) if used is None else _read_some(batch, reads, source, used, mask)
        batch.announce(writes, target, mask)
        self.flying.append(_Copy(writes, target, values, _lanes(batch, mask).copy(), self.committed.copy()))

    def command(self, batch: Batch, what: str, keep: int, mask: np.ndarray | None) -> None:
        """`commit_group`, `wait_group` (all but the `keep` youngest groups) or `wait_all`."""
        lanes = _lanes(batch, mask)
        if what != "wait_group":
            self.committed += lanes
        if what == "commit_group":
            return
        for copy in self.flying:
            due = copy.lanes & lanes & (copy.group < self.committed - keep)
            if due.any():
                batch.write(copy.access, copy.address, copy.values, None if due.all() else due)
                copy.lanes &= ~due
        self.flying = [copy for copy in self.flying if copy.lanes.any()]


def _lanes(batch: Batch, mask: np.ndarray | None) -> np.ndarray:
    return batch.live if mask is None else mask


def _read_some(batch: Batch, reads: Access, source: Bits, used: Bits, mask: np.ndarray | None) -> list[Bits]:
    """The first `used` bytes of each lane's source, zero after them; the other bytes are not touched, nor checked."""
    lanes, used = _lanes(batch, mask), batch.full(used).astype(I64)
    whole = lanes & (used >= reads.bytes)
    if (whole == lanes).all():
        return batch.read(reads, source, mask)
    part = lanes & (used > 0) & ~whole
    values = [np.zeros(batch.shape, UNSIGNED[reads.size]) for _ in range(reads.count)]
    if whole.any():
        values = batch.read(reads, source, whole)
    crooked = part & (batch.full(source) % source.dtype.type(reads.bytes) != 0)
    if crooked.any():
        lane = int(np.argmax(crooked))
        sentence = (
            f"copies from address {int(batch.full(source).flat[lane]):#x}, which is not a multiple of {reads.bytes}"
        )
        batch.fault("misaligned", reads.instruction, lane, sentence)
    # A number of bytes is a sum of powers of two, and read largest first each piece is aligned.
    for width in (8, 4, 2, 1):
        chosen = part & (used & width != 0)
        if chosen.any():
            before = used & ~(2 * width - 1)
            address = source + before.astype(source.dtype)
            (piece,) = batch.read(replace(reads, size=width, count=1), address, chosen)
            for i, value in enumerate(values):
                here = chosen & (before // reads.size == i)
                shift = (8 * (before % reads.size)).astype(value.dtype)
                values[i] = np.where(here, value | piece.astype(value.dtype) << shift, value)
    return values
