"""Agents of races, as `ptx_emulator.races.block_order` and `ptx_emulator.races.block_order` define them."""

from __future__ import annotations

import numpy as np
from numba import carray

from ptx_emulator.compiled import layout as at
from ptx_emulator.compiled.jit import part, pointer

AGENTS = 1 << at.AGENT_BITS


@part
def warps_of(context):
    """Agent → its warps, as bits, and the next free number."""
    return carray(pointer(context[at.AGENT_WARPS]), (AGENTS + 1,), np.uint32)


@part
def known_by(block, warps, context):
    """The epochs that each warp of a block knows of each other warp, (warps, warps), and of all warps, (warps,)."""
    blocks = context[at.BLOCKS]
    known = carray(pointer(context[at.KNOWN]), (blocks, warps, warps), np.uint64)
    common = carray(pointer(context[at.COMMON]), (blocks, warps), np.uint64)
    return known[block], common[block]


@part
def may_race(epoch, agent, thread, known, agents):
    """Whether nothing orders what an agent did in an epoch before what a thread does now."""
    if agent == np.uint64(thread):
        return False
    of_warp, warps = known[thread >> 5], agents[np.int64(agent)]
    for i in range(of_warp.size):
        if warps >> np.uint32(i) & np.uint32(1) and epoch >= of_warp[i]:
            return True
    return False


@part
def joined(one, other, agents):
    """The agent that stands for the threads of two agents, which are not the same thread."""
    warps = agents[np.int64(one)] | agents[np.int64(other)]
    if warps & (warps - np.uint32(1)) == 0:
        warp = 0
        while warps >> np.uint32(warp) != 1:
            warp += 1
        return np.uint64(at.IN_ONE_WARP + warp)
    free = np.int64(agents[AGENTS])
    for agent in range(at.IN_SEVERAL_WARPS + 1, free):
        if agents[agent] == warps:
            return np.uint64(agent)
    if free == AGENTS:
        return np.uint64(at.IN_SEVERAL_WARPS)
    agents[free] = warps
    agents[AGENTS] = free + 1
    return np.uint64(free)
