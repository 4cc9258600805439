"""Masks of lanes: how many there are, and which take a branch."""

from __future__ import annotations

import numpy as np
from numba import carray

from ptx_emulator.compiled import layout as at
from ptx_emulator.compiled.jit import entry, pointer


@entry("int64(int64[::1])")
def count(context):
    """Lanes << 32 | warps with one."""
    lanes = carray(pointer(context[at.LANES]), (context[at.BLOCKS] * context[at.THREADS],), np.uint8)
    every, warps = 0, 0
    for first in range(0, lanes.size, 32):
        of_warp = 0
        for i in range(first, first + 32):
            of_warp += np.int64(lanes[i])
        every += of_warp
        warps += of_warp != 0
    return every << 32 | warps


@entry("int64(int64[::1], int64, int64, int64)")
def part_lanes(context, row, negated, parts):
    """Part the lanes by whether a predicate holds (negated: does not). row: of the predicate

    parts: address of (2, blocks, threads) bytes for both parts. Returns 1 if the first has a lane, plus 2 if the other.
    """
    blocks, threads = context[at.BLOCKS], context[at.THREADS]
    narrow = carray(pointer(context[at.NARROW_ROWS]), (blocks, context[at.NARROW_COUNT], threads), np.uint32)
    lanes = carray(pointer(context[at.LANES]), (blocks, threads), np.uint8)
    out = carray(pointer(parts), (2, blocks, threads), np.uint8)
    some, others = np.uint8(0), np.uint8(0)
    for block in range(blocks):
        holds = narrow[block, row]
        for i in range(threads):
            takes = lanes[block, i] & np.uint8((holds[i] != 0) != (negated != 0))
            rest = lanes[block, i] & ~takes
            out[0, block, i], out[1, block, i] = takes, rest
            some |= takes
            others |= rest
    return np.int64(some != 0) + 2 * np.int64(others != 0)
