"""Loads and stores of one block: checks first, then effects.

Each function returns whether the access was plainly fine. If it was not, no memory and no register has been changed,
and the NumPy step does it again: it names the fault, or knows the order of blocks, several buffers, generic addresses.

The rules of races are those of `harness.emulator.races`, whose tags these functions read and write.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from harness.emulator.compiled import layout as at
from harness.emulator.compiled.jit import part, pointer

WINDOW_BITS = np.int64(36)
SHARED_BASE = 1024
WRITTEN = 1
IN_ONE_WARP, IN_SEVERAL_WARPS = np.uint64(1024), np.uint64(1056)
SEVERAL_BLOCKS = np.uint64((1 << at.GLOBAL_BLOCK_BITS) - 1)
BLOCK_MASK = SEVERAL_BLOCKS
AGENT_MASK = np.uint64((1 << at.AGENT_BITS) - 1)
EPOCH_SHIFT = np.uint64(at.AGENT_BITS + at.ACCESS_BITS)
ACCESS_SHIFT = np.uint64(at.AGENT_BITS)
GLOBAL_ACCESS_SHIFT = np.uint64(at.GLOBAL_BLOCK_BITS)
GLOBAL_EPOCH_SHIFT = np.uint64(at.GLOBAL_BLOCK_BITS + at.ACCESS_BITS)


@part
def bytes_at(address, length):
    return carray(pointer(address), (length,), np.uint8)


@part
def tags_at(address, length):
    return carray(pointer(address), (length,), np.uint64)


@part
def _all_written(written, offset, size):
    for k in range(offset, offset + size):
        if written[k] != WRITTEN:
            return False
    return True


@part
def _move(instruction, is_load, base, length, offsets, lanes, narrow, wide, constants):
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


# ---- global memory --------------------------------------------------------------------------------------------------


@part
def access_global(instruction, is_load, block, lanes, narrow, wide, constants, context, offsets):
    """`ld.global` and `st.global` of one block, all lanes in one buffer."""
    n = lanes.size
    size = np.int64(instruction[at.SIZE]) * instruction[at.COUNT]
    row, step = instruction[at.X], np.int64(instruction[at.IMMEDIATE])
    first = 0
    while not lanes[first]:
        first += 1
    address = np.int64(wide[row, first]) + step
    window = address >> WINDOW_BITS
    buffers = carray(pointer(context[at.BUFFERS]), (context[at.BUFFER_COUNT], at.BUFFER_COLUMNS), np.int64)
    number = 0
    while number < buffers.shape[0] and buffers[number, at.WINDOW] != window:
        number += 1
    if number == buffers.shape[0] or not buffers[number, at.READABLE if is_load else at.WRITABLE]:
        return False
    buffer = buffers[number]
    base, length = buffer[at.BASE] - step, buffer[at.LENGTH]
    last, low_bits = length - size, size - 1
    bad, active = np.int64(0), 0
    for i in range(n):
        offset = np.int64(wide[row, i]) - base
        offsets[i] = offset
        if lanes[i]:
            active += 1
            bad |= np.int64((offset < 0) | (offset > last)) | (offset & low_bits)
    if bad:
        return False
    if is_load and buffer[at.WRITTEN_MAP]:
        written = bytes_at(buffer[at.WRITTEN_MAP], length)
        for i in range(n):
            if lanes[i] and not _all_written(written, offsets[i], size):
                return False
    shadowed = context[at.GLOBAL_SHADOW] and buffer[at.WRITABLE]
    if shadowed and not _ordered_globally(buffer, is_load, block, size, lanes, context, offsets):
        return False
    if context[at.COUNTED]:
        traffic = carray(pointer(context[at.TRAFFIC]), (7,), np.int64)
        traffic[at.READ_BYTES if is_load else at.WRITTEN_BYTES] += size * active
        _count_sectors(traffic, row, step, lanes, wide)
    if shadowed:
        _tag_globally(buffer, is_load, block, size, instruction[at.ACCESS], lanes, context, offsets)
    if not is_load and buffer[at.WRITTEN_MAP]:
        written = bytes_at(buffer[at.WRITTEN_MAP], length)
        for i in range(n):
            if lanes[i]:
                for k in range(offsets[i], offsets[i] + size):
                    written[k] = WRITTEN
    _move(instruction, is_load, buffer[at.BYTES], length, offsets, lanes, narrow, wide, constants)
    return True


@part
def _count_sectors(traffic, row, step, lanes, wide):
    """Requests and distinct 32-byte sectors of each warp, by each lane's first byte."""
    for warp in range(lanes.size // 32):
        distinct, previous, ordered = 0, np.int64(-1), True
        for i in range(32 * warp, 32 * warp + 32):
            if lanes[i]:
                sector = (np.int64(wide[row, i]) + step) >> 5
                if sector < previous:
                    ordered = False
                if sector != previous:
                    distinct += 1
                previous = sector
        if not ordered:
            distinct = 0
            for i in range(32 * warp, 32 * warp + 32):
                if lanes[i]:
                    new, sector = True, (np.int64(wide[row, i]) + step) >> 5
                    for k in range(32 * warp, i):
                        if lanes[k] and (np.int64(wide[row, k]) + step) >> 5 == sector:
                            new = False
                            break
                    distinct += new
        traffic[at.GLOBAL_REQUESTS] += distinct > 0
        traffic[at.GLOBAL_SECTORS] += distinct


@part
def _ordered_globally(buffer, is_load, block, size, lanes, context, offsets):
    """Whether no other block has left a tag that this access would have to be ordered after."""
    cell = context[at.GLOBAL_CELL]
    width, cells = size // cell, -(-buffer[at.LENGTH] // 32) * 32 // cell
    mine = np.uint64(context[at.FIRST_BLOCK] + block + 1)
    for kind in range(3):
        if not buffer[at.HAS_WRITES + kind] or (kind == 1 and is_load):
            continue
        tags = tags_at(buffer[at.WRITES + kind], cells)
        for i in range(lanes.size):
            if lanes[i]:
                start = offsets[i] // cell
                for k in range(start, start + width):
                    if tags[k] != 0 and tags[k] & BLOCK_MASK != mine:
                        return False
    return True


@part
def _tag_globally(buffer, is_load, block, size, access, lanes, context, offsets):
    cell = context[at.GLOBAL_CELL]
    width, cells = size // cell, -(-buffer[at.LENGTH] // 32) * 32 // cell
    number = context[at.FIRST_BLOCK] + block
    epochs = tags_at(context[at.GLOBAL_EPOCHS], number + 1)
    tag = epochs[number] << GLOBAL_EPOCH_SHIFT | np.uint64(access) << GLOBAL_ACCESS_SHIFT
    mine = tag | np.uint64(number + 1)
    buffer[at.HAS_READS if is_load else at.HAS_WRITES] = 1
    tags = tags_at(buffer[at.READS if is_load else at.WRITES], cells)
    for i in range(lanes.size):
        if lanes[i]:
            start = offsets[i] // cell
            for k in range(start, start + width):
                several = is_load and tags[k] != 0 and tags[k] & BLOCK_MASK != np.uint64(number + 1)
                tags[k] = tag | SEVERAL_BLOCKS if several else mine


# ---- shared memory --------------------------------------------------------------------------------------------------


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
    tracked = context[at.SHARED_WRITTEN] != 0
    if tracked and is_load:
        written = bytes_at(context[at.SHARED_WRITTEN], length)
        for i in range(n):
            if lanes[i] and not _all_written(written, offsets[i], size):
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
    if tracked and not is_load:
        written = bytes_at(context[at.SHARED_WRITTEN], length)
        for i in range(n):
            if lanes[i]:
                for k in range(offsets[i], offsets[i] + size):
                    written[k] = WRITTEN
    _move(instruction, is_load, context[at.SHARED], length, offsets, lanes, narrow, wide, constants)
    return True


@part
def _warp_of(agent):
    return (
        agent >> np.uint64(5)
        if agent < IN_ONE_WARP
        else (agent - IN_ONE_WARP if agent < IN_SEVERAL_WARPS else np.uint64(99))
    )


@part
def _ordered_in_block(is_load, block, size, lanes, context, offsets, cells):
    """Whether every earlier access to these cells that would race is ordered before by a barrier."""
    width = size // context[at.SHADOW_CELL]
    barrier = tags_at(context[at.BLOCK_BARRIERS], context[at.BLOCKS])[block]
    warps = lanes.size // 32
    warp_barriers = tags_at(context[at.WARP_BARRIERS], context[at.BLOCKS] * warps)
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
            first = offsets[i] // context[at.SHADOW_CELL]
            for k in range(first, first + width):
                epoch = tags[k] >> EPOCH_SHIFT
                if epoch >= barrier:
                    who = tags[k] & AGENT_MASK
                    warp = np.uint64(i >> 5)
                    if _warp_of(who) != warp:
                        return False
                    if who != np.uint64(i) and epoch >= warp_barriers[block * warps + i // 32]:
                        return False
    return True


@part
def _tag_in_block(access, is_load, block, size, lanes, context, offsets, cells):
    """Leave tags. False if two lanes of this instruction store to one cell, a race for the NumPy step to report."""
    width = size // context[at.SHADOW_CELL]
    barrier = tags_at(context[at.BLOCK_BARRIERS], context[at.BLOCKS])[block]
    warps = lanes.size // 32
    warp_barriers = tags_at(context[at.WARP_BARRIERS], context[at.BLOCKS] * warps)
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
    for i in range(lanes.size):
        if not lanes[i]:
            continue
        first = offsets[i] // context[at.SHADOW_CELL]
        warp = np.uint64(i >> 5)
        for k in range(first, first + width):
            prior, agent = tags[k], np.uint64(i)
            earlier = prior >> EPOCH_SHIFT
            if earlier >= barrier:
                who = prior & AGENT_MASK
                if _warp_of(who) != warp:
                    agent = IN_SEVERAL_WARPS
                elif who != agent and earlier >= warp_barriers[block * warps + i // 32]:
                    agent = IN_ONE_WARP + warp
            tags[k] = tag | agent
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
