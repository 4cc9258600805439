"""Loads and stores of one block in global memory: checks first, then effects.

Returns whether the access was plainly fine. If it was not, no memory and no register has been changed, and the NumPy
step does it again: it names the fault, or knows the order of blocks and several buffers.

The rules of races are those of `ptx_emulator.races.global_memory`, whose tags these functions read and write.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from ptx_emulator.compiled import layout as at
from ptx_emulator.compiled.access import all_written, joined, known_by, mark_written, may_race, move, tags_at, warps_of
from ptx_emulator.compiled.jit import part, pointer
from ptx_emulator.memory import WINDOW_BITS

BLOCK_MASK, BLOCK_SHIFT = np.uint64((1 << at.GLOBAL_BLOCK_BITS) - 1), np.uint64(at.AGENT_BITS)
AGENT_MASK = np.uint64((1 << at.AGENT_BITS) - 1)
EPOCH_SHIFT = np.uint64(at.GLOBAL_BLOCK_BITS + at.AGENT_BITS)


@part
def access_global(instruction, is_load, as_constant, block, lanes, narrow, wide, constants, context, offsets):
    """`ld.global`, `ld.global.nc` and `st.global` of one block, all lanes in one buffer."""
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
    written = buffer[at.WRITTEN_MAP]
    if is_load and written and not all_written(written, length, offsets, size, lanes):
        return False
    if context[at.GLOBAL_SHADOW] and buffer[at.WRITABLE]:
        if as_constant or (buffer[at.CONSTANT] and not is_load):
            return False
        if not _ordered_globally(buffer, is_load, block, size, lanes, context, offsets):
            return False
        access = instruction[at.ACCESS]
        if is_load:
            if not _tag_loads(buffer, block, size, access, lanes, context, offsets):
                return False
        elif not _tag_stores(buffer, block, size, access, lanes, context, offsets):
            return False
    if context[at.COUNTED]:
        traffic = carray(pointer(context[at.TRAFFIC]), (7,), np.int64)
        traffic[at.READ_BYTES if is_load else at.WRITTEN_BYTES] += size * active
        _count_sectors(traffic, row, step, lanes, wide)
    if not is_load and written:
        mark_written(written, length, offsets, size, lanes)
    move(instruction, is_load, buffer[at.BYTES], length, offsets, lanes, narrow, wide, constants)
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
def _shift(cell):
    """The shift from bytes to cells, unsigned because unsigned numbers shift and index faster."""
    shift = np.uint64(0)
    while np.int64(1) << np.int64(shift) < cell:
        shift += np.uint64(1)
    return shift


@part
def _ordered_globally(buffer, is_load, block, size, lanes, context, offsets):
    """Whether no other block has tagged these cells, and a barrier has passed since the tags of other threads."""
    cell = context[at.GLOBAL_CELL]
    width, cells, shift = size // cell, -(-buffer[at.LENGTH] // 32) * 32 // cell, _shift(cell)
    mine = np.uint64(context[at.FIRST_BLOCK] + block + 1)
    known, common = known_by(block, lanes.size // 32, context)
    agents = warps_of(context)
    earlier = carray(pointer(buffer[at.EARLIER]), (cells,), np.uint32)
    for kind in range(3):
        if not buffer[at.HAS_WRITES + kind] or (kind == 1 and is_load):
            continue
        tags = tags_at(buffer[at.WRITES + kind], cells)
        for i in range(lanes.size):
            if not lanes[i]:
                continue
            first, limit = np.uint64(offsets[i]) >> shift, common[np.uint64(i) >> np.uint64(5)]
            some = np.uint64(0)
            for k in range(width):
                some |= tags[first + np.uint64(k)]
            if some == 0:
                continue
            for j in range(width):
                k = first + np.uint64(j)
                tag = tags[k]
                if tag == 0:
                    continue
                if tag >> BLOCK_SHIFT & BLOCK_MASK != mine or (kind == 1 and earlier[k]):
                    return False
                epoch = tag >> EPOCH_SHIFT
                if epoch >= limit and may_race(epoch, tag & AGENT_MASK, i, known, agents):
                    return False
    return True


@part
def _time(block, context):
    """The tag of a block at its current epoch, without an agent."""
    epoch = tags_at(context[at.EPOCHS], context[at.BLOCKS])[block]
    return epoch << EPOCH_SHIFT | np.uint64(context[at.FIRST_BLOCK] + block + 1) << BLOCK_SHIFT


@part
def _tag_stores(buffer, block, size, access, lanes, context, offsets):
    """Leave tags. False if two lanes of this instruction store to one cell, a race for the NumPy step to report."""
    cell = context[at.GLOBAL_CELL]
    width, cells, shift = size // cell, -(-buffer[at.LENGTH] // 32) * 32 // cell, _shift(cell)
    tags = tags_at(buffer[at.WRITES], cells)
    numbers = carray(pointer(buffer[at.WRITE_NUMBERS]), (cells,), np.uint32)
    time = _time(block, context)
    buffer[at.HAS_WRITES] = 1
    for i in range(lanes.size):
        if lanes[i]:
            first, mine = np.uint64(offsets[i]) >> shift, time | np.uint64(i)
            for k in range(width):
                tags[first + np.uint64(k)] = mine
            for k in range(width):
                numbers[first + np.uint64(k)] = access
    for i in range(lanes.size):
        # Accesses of one size share all their cells, or none.
        if lanes[i] and tags[np.uint64(offsets[i]) >> shift] != time | np.uint64(i):
            return False
    return True


@part
def _tag_loads(buffer, block, size, access, lanes, context, offsets):
    """Leave tags. False, without any, if there is no room for the tags of other blocks."""
    cell = context[at.GLOBAL_CELL]
    width, cells, shift = size // cell, -(-buffer[at.LENGTH] // 32) * 32 // cell, _shift(cell)
    table = carray(pointer(context[at.GLOBAL_READERS]), (3,), np.int64)
    if table[at.READERS_FREE] + lanes.size * width > table[at.READERS_LENGTH]:
        return False
    readers = carray(pointer(table[at.READERS]), (table[at.READERS_LENGTH], 3), np.uint64)
    tags = tags_at(buffer[at.READS], cells)
    numbers = carray(pointer(buffer[at.READ_NUMBERS]), (cells,), np.uint32)
    earlier = carray(pointer(buffer[at.EARLIER]), (cells,), np.uint32)
    known, common = known_by(block, lanes.size // 32, context)
    agents = warps_of(context)
    time = _time(block, context)
    buffer[at.HAS_READS] = 1
    for i in range(lanes.size):
        if not lanes[i]:
            continue
        first, limit = np.uint64(offsets[i]) >> shift, common[np.uint64(i) >> np.uint64(5)]
        for j in range(width):
            k = first + np.uint64(j)
            prior, mine = tags[k], time | np.uint64(i)
            if prior != 0:
                if (prior ^ mine) >> BLOCK_SHIFT & BLOCK_MASK:
                    row = table[at.READERS_FREE]
                    readers[row, at.READER_TAG] = prior
                    readers[row, at.READER_NUMBER] = numbers[k]
                    readers[row, at.READER_EARLIER] = earlier[k]
                    earlier[k] = row
                    table[at.READERS_FREE] = row + 1
                else:
                    epoch, who = prior >> EPOCH_SHIFT, prior & AGENT_MASK
                    if epoch >= limit and may_race(epoch, who, i, known, agents):
                        mine = prior & ~AGENT_MASK | joined(who, np.uint64(i), agents)
            tags[k] = mine
            numbers[k] = access
    return True
