"""The order that barriers make between the threads of each block of a batch.

The epoch of a block counts its synchronisations. What a warp knows of another is an epoch: whatever the other did in
epochs before that is ordered before what this one does now. Both shadows compare their tags with it.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.races.agents import WARPS_OF
from ptx_emulator.registers import U32, U64, WARP, Bits

_EVER = U64(0xFFFFFFFFFFFFFFFF)


class BlockOrder:
    """The order within the blocks of one batch. Epochs start at 1, so that a tag of 0 is older than any barrier.

    epoch, last_barrier: (blocks,), now and at the last barrier of any of its threads
    known: (blocks, warps, warps), what the first warp knows of the second; of its own lanes, on the diagonal
    common: (blocks, warps), what a warp knows of all warps
    """

    def __init__(self, blocks: int, threads: int):
        self.blocks, self.warps = blocks, threads // WARP
        self.epoch, self.last_barrier = (np.ones(blocks, U64) for _ in range(2))
        self.known = np.ones((blocks, self.warps, self.warps), U64)
        self.common = np.ones((blocks, self.warps), U64)
        self._own = np.einsum("bww->bw", self.known)
        self._arrived: dict[int, np.ndarray] = {}  # barrier → (blocks, warps), epochs that its arrivals pass on

    def advance(self, blocks: np.ndarray) -> None:
        """Begin a new epoch for these blocks."""
        self.epoch[blocks] += U64(1)

    def block_barrier(self, blocks: np.ndarray | None) -> None:
        """Record that all threads of these blocks passed a barrier. blocks: (blocks,) bool, None for all"""
        chosen = slice(None) if blocks is None else blocks
        self.epoch[chosen] += U64(1)
        now = self.epoch[chosen]
        self.last_barrier[chosen] = now
        self.known[chosen], self.common[chosen] = now[:, None, None], now[:, None]

    def arrive(self, number: int, lanes: np.ndarray) -> None:
        """`bar.arrive`: lanes that pass the barrier later know what these lanes, (blocks, threads), did until now."""
        warps = self._warps(lanes)
        self.advance(warps.any(axis=1))
        arrived = self._arrived.setdefault(number, np.zeros((self.blocks, self.warps), U64))
        np.maximum(arrived, self._together(warps), out=arrived)

    def barrier(self, number: int, lanes: np.ndarray) -> None:
        """Record that these lanes, (blocks, threads), passed a barrier of some threads of their blocks."""
        warps = self._warps(lanes)
        blocks = warps.any(axis=1)
        self.advance(blocks)
        together = self._together(warps)
        if number in self._arrived:
            np.maximum(together, self._arrived[number], out=together)
            self._arrived[number][blocks] = 0
        np.copyto(self.known, np.maximum(self.known, together[:, None, :]), where=warps[:, :, None])
        self.last_barrier[blocks] = self.epoch[blocks]
        self.common[:] = self.known.min(axis=2)

    def _together(self, warps: np.ndarray) -> np.ndarray:
        """The epochs that these warps together know of each warp; their own accesses count until now."""
        known = np.where(warps[:, :, None], self.known, U64(0)).max(axis=1)
        return np.where(warps, self.epoch[:, None], known)

    def _warps(self, lanes: np.ndarray) -> np.ndarray:
        return lanes.reshape(self.blocks, self.warps, WARP).any(axis=2)

    def warp_barrier(self, lanes: np.ndarray | None) -> None:
        """Record that the warps of these lanes converged. lanes: (blocks, threads) bool, None for all"""
        if lanes is None:
            self.epoch += U64(1)
            self._own[:] = self.epoch[:, None]
        else:
            warps = self._warps(lanes)
            self.epoch[warps.any(axis=1)] += U64(1)
            np.copyto(self._own, self.epoch[:, None], where=warps)
        if self.warps == 1:
            self.common[:] = self._own


def ordered(epoch: Bits, agent: Bits, known: np.ndarray) -> np.ndarray:
    """Whether accesses of agents in these epochs came before. epoch, agent: (n,); known: (n, warps)"""
    takes_part = WARPS_OF[agent][:, None] >> np.arange(known.shape[1], dtype=U32) & U32(1)
    return epoch < np.where(takes_part != 0, known, _EVER).min(axis=1)
