"""The accesses that the threads of a batch have fenced, and publish with their next strong access."""

from __future__ import annotations

import numpy as np

from ptx_emulator.races.block_order import BlockOrder
from ptx_emulator.registers import U64, WARP, Bits


class Fences:
    """The fences of one scope.

    own: (blocks, threads), the epoch of each thread's last fence; seen: (blocks, warps, warps), what a warp knew then
    passed: (blocks, threads), the fenced epochs of each thread that barriers have passed on
    """

    def __init__(self, order: BlockOrder):
        self.order = order
        self.own, self.passed = (np.zeros((order.blocks, WARP * order.warps), U64) for _ in range(2))
        self.seen = np.zeros_like(order.known)

    def fence(self, lanes: np.ndarray) -> None:
        """Record that these lanes, (blocks, threads), fence in the epoch that has just begun."""
        order = self.order
        # A lane's new fence replaces its earlier one. If its warp has met since, other lanes may still publish the
        # earlier one.
        met = self.own < np.repeat(np.einsum("bww->bw", order.known), WARP, axis=1)
        np.maximum(self.passed, self.own, out=self.passed, where=met & lanes)
        np.copyto(self.own, order.epoch[:, None], where=lanes)
        warps = lanes.reshape(order.blocks, order.warps, WARP).any(axis=2)
        np.copyto(self.seen, order.known, where=warps[:, :, None])

    def barrier(self, blocks: np.ndarray) -> None:
        """Record that a barrier passed on the fences of all threads of these blocks."""
        known = np.maximum(self.own, np.repeat(self.seen.max(axis=1), WARP, axis=1))
        self.passed[blocks] = np.maximum(self.passed, known)[blocks]

    def published(self, block: int, warp: int, fenced: bool) -> Bits:
        """(threads,), the epoch up to which a thread of this warp publishes each thread's accesses.

        fenced: whether it fenced
        """
        own = self.own[block]
        known = np.repeat(self.order.known[block, warp], WARP)
        out = np.maximum(self.passed[block], np.where(own < known, own, U64(0)))
        return np.maximum(out, np.repeat(self.seen[block, warp], WARP)) if fenced else out
