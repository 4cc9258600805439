"""Loads and stores of one block in global memory: checks first, then effects.

Returns whether the access was plainly fine. If it was not, no memory and no register has been changed, and the NumPy
step does it again: it names the fault, or knows the order of blocks and several buffers.

The rules of races are those of `harness.emulator.races.global_memory`, whose tags these functions read and write.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from harness.emulator.compiled import layout as at
from harness.emulator.compiled.elements import all_written, mark_written, move, tags_at
from harness.emulator.compiled.jit import part, pointer
from harness.emulator.memory import WINDOW_BITS

SEVERAL_BLOCKS = BLOCK_MASK = np.uint64((1 << at.GLOBAL_BLOCK_BITS) - 1)
ACCESS_SHIFT = np.uint64(at.GLOBAL_BLOCK_BITS)
EPOCH_SHIFT = np.uint64(at.GLOBAL_BLOCK_BITS + at.ACCESS_BITS)


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
    written = buffer[at.WRITTEN_MAP]
    if is_load and written and not all_written(written, length, offsets, size, lanes):
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
    tag = epochs[number] << EPOCH_SHIFT | np.uint64(access) << ACCESS_SHIFT
    mine = tag | np.uint64(number + 1)
    buffer[at.HAS_READS if is_load else at.HAS_WRITES] = 1
    tags = tags_at(buffer[at.READS if is_load else at.WRITES], cells)
    for i in range(lanes.size):
        if lanes[i]:
            start = offsets[i] // cell
            for k in range(start, start + width):
                several = is_load and tags[k] != 0 and tags[k] & BLOCK_MASK != np.uint64(number + 1)
                tags[k] = tag | SEVERAL_BLOCKS if several else mine
