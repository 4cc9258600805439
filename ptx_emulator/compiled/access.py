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
def _move_element(words, rows, row, constants, is_load, offsets, start, shift, lanes):
    """Copy one element of each lane. words: memory in elements; start: a byte; shift: from bytes to elements"""
    for i in range(lanes.size):
        if lanes[i]:
            if is_load:
                rows[row, i] = words[(offsets[i] + start) >> shift]
            else:
                words[(offsets[i] + start) >> shift] = constants[~row] if row < 0 else rows[row, i]


@part
def move(instruction, is_load, base, length, offsets, lanes, narrow, wide, constants):
    """Copy between memory and registers, element by element of a vector."""
    size, memory = instruction[at.SIZE], pointer(base)
    for j in range(instruction[at.COUNT]):
        row, start = instruction[at.DATA + j], np.int64(j) * size
        if size == 8:
            words = carray(memory, (length // 8,), np.uint64)
            _move_element(words, wide, row, constants, is_load, offsets, start, 3, lanes)
        elif size == 4:
            halves = carray(memory, (length // 4,), np.uint32)
            _move_element(halves, narrow, row, constants, is_load, offsets, start, 2, lanes)
        elif size == 2:
            pairs = carray(memory, (length // 2,), np.uint16)
            _move_element(pairs, narrow, row, constants, is_load, offsets, start, 1, lanes)
        else:
            single = carray(memory, (length,), np.uint8)
            _move_element(single, narrow, row, constants, is_load, offsets, start, 0, lanes)


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
