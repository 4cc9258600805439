"""Loads and stores of one block in shared memory: checks first, then effects.

Returns whether the access was plainly fine. If it was not, no memory and no register has been changed, and the NumPy
step does it again: it names the fault.

The rules of races are those of `ptx_emulator.races.shared_memory`, whose tags these functions read and write.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from ptx_emulator.compiled import layout as at
from ptx_emulator.compiled.access import (
    all_written,
    any_pending,
    joined,
    known_by,
    mark_written,
    may_race,
    move,
    tags_at,
    warps_of,
)
from ptx_emulator.compiled.jit import part, pointer
from ptx_emulator.memory import SHARED_BASE

IN_ONE_WARP, IN_SEVERAL_WARPS = np.uint64(at.IN_ONE_WARP), np.uint64(at.IN_SEVERAL_WARPS)
AGENT_MASK = np.uint64((1 << at.AGENT_BITS) - 1)
ACCESS_SHIFT = np.uint64(at.AGENT_BITS)
EPOCH_SHIFT = np.uint64(at.AGENT_BITS + at.ACCESS_BITS)


@part
def access_shared(instruction, is_load, block, lanes, narrow, wide, constants, context, offsets, banks):
    """`ld.shared` and `st.shared` of one block."""
    n = lanes.size
    size = np.int64(instruction[at.SIZE]) * instruction[at.COUNT]
    row, step = instruction[at.X], np.int64(instruction[at.IMMEDIATE])
    is_wide, constant = instruction[at.WIDE] & at.X_WIDE, row < 0
    start = block * context[at.SHARED_STRIDE]
    last, low_bits = context[at.SHARED_SIZE] - size, size - 1
    bad, active = np.int64(0), 0
    for i in range(n):
        address = (
            np.int64(constants[~row]) if constant else (np.int64(wide[row, i]) if is_wide else np.int64(narrow[row, i]))
        )
        offset = address + step - SHARED_BASE
        offsets[i] = offset
        if lanes[i]:
            active += 1
            bad |= np.int64((offset < 0) | (offset > last)) | (offset & low_bits)
    if bad:
        return False
    length = context[at.BLOCKS] * context[at.SHARED_STRIDE]
    for i in range(n):
        offsets[i] += start
    written = context[at.SHARED_WRITTEN]
    if is_load and written and not all_written(written, length, offsets, size, lanes):
        return False
    if not is_load and written and any_pending(written, length, offsets, size, lanes):
        return False
    if context[at.SHADOW]:
        cells = length // context[at.SHADOW_CELL]
        if not _ordered_in_block(is_load, block, size, lanes, context, offsets, cells):
            return False
        if not _tag_in_block(instruction[at.ACCESS], is_load, block, size, lanes, context, offsets, cells):
            return False
    if context[at.COUNTED]:
        traffic = carray(pointer(context[at.TRAFFIC]), (7,), np.int64)
        _count_wavefronts(traffic, size, lanes, offsets, start, banks)
    if not is_load and written:
        mark_written(written, length, offsets, size, lanes)
    move(instruction, is_load, context[at.SHARED], length, offsets, lanes, narrow, wide, constants)
    return True


@part
def _ordered_in_block(is_load, block, size, lanes, context, offsets, cells):
    """Whether every earlier access to these cells that would race is ordered before by a barrier."""
    width = size // context[at.SHADOW_CELL]
    known, common = known_by(block, lanes.size // 32, context)
    agents = warps_of(context)
    for kind in range(4):
        if kind == 1 and is_load:
            continue
        if kind == 2 and not context[at.HAS_SHARED_UPDATES]:
            continue
        if kind == 3 and (is_load or not context[at.SHADOW_WGMMA]):
            continue
        tags = tags_at(context[at.SHADOW_WRITES + kind], cells)
        for i in range(lanes.size):
            if not lanes[i]:
                continue
            first, limit = offsets[i] // context[at.SHADOW_CELL], common[np.uint64(i) >> np.uint64(5)]
            for k in range(first, first + width):
                epoch = tags[k] >> EPOCH_SHIFT
                if epoch >= limit and may_race(epoch, tags[k] & AGENT_MASK, i, known, agents):
                    return False
    return True


@part
def _tag_in_block(access, is_load, block, size, lanes, context, offsets, cells):
    """Leave tags. False if two lanes of this instruction store to one cell, a race for the NumPy step to report."""
    width = size // context[at.SHADOW_CELL]
    epoch = tags_at(context[at.EPOCHS], context[at.BLOCKS])[block]
    tag = epoch << EPOCH_SHIFT | np.uint64(access) << ACCESS_SHIFT
    if not is_load:
        tags = tags_at(context[at.SHADOW_WRITES], cells)
        for i in range(lanes.size):
            if lanes[i]:
                first = offsets[i] // context[at.SHADOW_CELL]
                for k in range(first, first + width):
                    # A thread's earlier store of this instruction has the same tag, in a loop; another's has not.
                    if tags[k] >> ACCESS_SHIFT == tag >> ACCESS_SHIFT and tags[k] & AGENT_MASK != np.uint64(i):
                        return False
                    tags[k] = tag | np.uint64(i)
        return True
    tags = tags_at(context[at.SHADOW_READS], cells)
    known, common = known_by(block, lanes.size // 32, context)
    agents = warps_of(context)
    for i in range(lanes.size):
        if not lanes[i]:
            continue
        first, limit = offsets[i] // context[at.SHADOW_CELL], common[np.uint64(i) >> np.uint64(5)]
        for k in range(first, first + width):
            mine, earlier, who = tag | np.uint64(i), tags[k] >> EPOCH_SHIFT, tags[k] & AGENT_MASK
            if earlier >= limit and may_race(earlier, who, i, known, agents):
                mine = earlier << EPOCH_SHIFT | np.uint64(access) << ACCESS_SHIFT
                mine |= joined(who, np.uint64(i), agents)
            tags[k] = mine
    return True


@part
def _count_wavefronts(traffic, size, lanes, offsets, start, banks):
    """Requests, wavefronts and bank conflicts: a bank serves one word in a wavefront, to all lanes that read it."""
    group = min(32, 128 // size)
    words = max(np.int64(1), size // 4)
    requests = 0
    for warp in range(lanes.size // 32):
        any_lane = False
        for part_of_warp in range(32 // group):
            first = 32 * warp + part_of_warp * group
            active, most = False, 0
            for bank in range(32):
                banks[bank] = 0
            for i in range(first, first + group):
                if lanes[i]:
                    active = True
                    for j in range(words):
                        word = ((offsets[i] - start + SHARED_BASE) >> 2) + j
                        bank = word & 31
                        known, held = False, banks[bank]
                        for k in range(held):
                            if banks[32 + 32 * bank + k] == word:
                                known = True
                                break
                        if not known:
                            banks[32 + 32 * bank + held] = word
                            banks[bank] = held + 1
                            most = max(most, held + 1)
            if active:
                any_lane = True
                traffic[at.SHARED_WAVEFRONTS] += most
                traffic[at.SHARED_CONFLICTS] += most - 1
        requests += any_lane
    traffic[at.SHARED_REQUESTS] += requests
