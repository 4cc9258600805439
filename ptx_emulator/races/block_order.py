"""The order that barriers and fences make between the threads of each block of a batch, and the agents that it orders.

An agent is the number that says who accessed a cell: a thread of a block, several threads of one warp, or several
warps. A set of warps gets its number when it is first needed, for all launches of the process.

The epoch of a block counts its synchronisations. What a warp knows of another is an epoch: whatever the other did in
epochs before that is ordered before what this one does now. Both shadows compare their tags with it.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled.layout import AGENT_BITS, IN_ONE_WARP, IN_SEVERAL_WARPS
from ptx_emulator.registers import U32, U64, WARP, Bits

AGENTS = 1 << AGENT_BITS
AGENT_MASK = U64(AGENTS - 1)

# Agent → its warps, as bits. The entry behind them is the next free number; the compiled interpreter reads it here.
WARPS_OF = np.concatenate(
    [
        U32(1) << (np.arange(IN_ONE_WARP) // 32).astype(U32),
        U32(1) << np.arange(IN_SEVERAL_WARPS - IN_ONE_WARP, dtype=U32),
        np.full(AGENTS - IN_SEVERAL_WARPS, 0xFFFFFFFF, U32),
        U32([IN_SEVERAL_WARPS + 1]),
    ]
)


def agents_of(warps: np.ndarray) -> Bits:
    """The agents that stand for several threads of these warps. warps: (n,) uint32, bits"""
    found, inverse = np.unique(warps, return_inverse=True)
    return np.array([_agent_of(int(bits)) for bits in found], U64)[inverse.reshape(-1)]


def _agent_of(warps: int) -> int:
    if warps & (warps - 1) == 0:
        return IN_ONE_WARP + warps.bit_length() - 1
    free = int(WARPS_OF[AGENTS])
    same = np.flatnonzero(WARPS_OF[IN_SEVERAL_WARPS + 1 : free] == U32(warps))
    if same.size:
        return IN_SEVERAL_WARPS + 1 + int(same[0])
    if free == AGENTS:
        return IN_SEVERAL_WARPS
    WARPS_OF[free], WARPS_OF[AGENTS] = warps, free + 1
    return free


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
