"""The bytes of one block's access: check that they were written, and move them between memory and registers."""

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
