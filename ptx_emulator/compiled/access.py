"""What accesses to shared and global memory have in common: the bytes of one block's access, and agents of races, as
`ptx_emulator.races.block_order` defines them.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from ptx_emulator.compiled import layout as at
from ptx_emulator.compiled.jit import part, pointer
from ptx_emulator.memory import PENDING, WRITTEN


@part
def tags_at(address, length):
    return carray(pointer(address), (length,), np.uint64)


@part
def all_written(written_map, length, offsets, size, lanes):
    """Whether something wrote every byte that the lanes read."""
    written = carray(pointer(written_map), (length,), np.uint8)
    for i in range(lanes.size):
        if lanes[i]:
            for k in range(offsets[i], offsets[i] + size):
                if written[k] != WRITTEN:
                    return False
    return True


@part
def any_pending(written_map, length, offsets, size, lanes):
    """Whether a cp.async is on its way to a byte that the lanes write."""
    written = carray(pointer(written_map), (length,), np.uint8)
    for i in range(lanes.size):
        if lanes[i]:
            for k in range(offsets[i], offsets[i] + size):
                if written[k] == PENDING:
                    return True
    return False


@part
def mark_written(written_map, length, offsets, size, lanes):
    written = carray(pointer(written_map), (length,), np.uint8)
    for i in range(lanes.size):
        if lanes[i]:
            for k in range(offsets[i], offsets[i] + size):
                written[k] = WRITTEN


@part
def move(instruction, is_load, base, length, offsets, lanes, narrow, wide, constants):
    """Copy between memory and registers, element by element of a vector."""
    size, count = instruction[at.SIZE], instruction[at.COUNT]
    n = lanes.size
    for j in range(count):
        row = instruction[at.DATA + j]
        start = np.int64(j) * size
        if size == 8:
            words = carray(pointer(base), (length // 8,), np.uint64)
            if is_load:
                for i in range(n):
                    if lanes[i]:
                        wide[row, i] = words[(offsets[i] + start) >> 3]
            else:
                for i in range(n):
                    if lanes[i]:
                        words[(offsets[i] + start) >> 3] = constants[~row] if row < 0 else wide[row, i]
        elif size == 4:
            halves = carray(pointer(base), (length // 4,), np.uint32)
            if is_load:
                for i in range(n):
                    if lanes[i]:
                        narrow[row, i] = halves[(offsets[i] + start) >> 2]
            else:
                for i in range(n):
                    if lanes[i]:
                        halves[(offsets[i] + start) >> 2] = np.uint32(constants[~row]) if row < 0 else narrow[row, i]
        elif size == 2:
            pairs = carray(pointer(base), (length // 2,), np.uint16)
            if is_load:
                for i in range(n):
                    if lanes[i]:
                        narrow[row, i] = pairs[(offsets[i] + start) >> 1]
            else:
                for i in range(n):
                    if lanes[i]:
                        pairs[(offsets[i] + start) >> 1] = np.uint16(constants[~row] if row < 0 else narrow[row, i])
        else:
            single = carray(pointer(base), (length,), np.uint8)
            if is_load:
                for i in range(n):
                    if lanes[i]:
                        narrow[row, i] = single[offsets[i] + start]
            else:
                for i in range(n):
                    if lanes[i]:
                        single[offsets[i] + start] = np.uint8(constants[~row] if row < 0 else narrow[row, i])


# ---- agents of races ------------------------------------------------------------------------------------------------


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
