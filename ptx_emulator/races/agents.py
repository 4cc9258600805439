"""Agents, the numbers that say who accessed a cell: a thread of a block, several threads of one warp, or several warps.

A set of warps gets its number when it is first needed, for all launches of the process.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled.layout import AGENT_BITS, IN_ONE_WARP, IN_SEVERAL_WARPS
from ptx_emulator.registers import U32, U64, Bits

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
