"""Warps of the compiled interpreter: shuffles, votes and reductions of whole warps, masks of lanes, and the registers
that a warpgroup's `wgmma` uses asynchronously.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from ptx_emulator.compiled import layout as at
from ptx_emulator.compiled import opcodes as op
from ptx_emulator.compiled.jit import entry, part, pointer
from ptx_emulator.registers import WARPGROUP

FULL = np.uint32(0xFFFFFFFF)


@part
def whole_warps(lanes, members):
    """Whether every warp is active with all lanes, each naming all, or with none."""
    for warp in range(lanes.size // 32):
        active = 0
        for i in range(32 * warp, 32 * warp + 32):
            if lanes[i]:
                active += 1
                if members[i] != FULL:
                    return False
        if active != 0 and active != 32:
            return False
    return True


@part
def order_warps(block, lanes, context):
    """Note that the lanes of each active warp meet, which orders their accesses to memory."""
    if not context[at.EPOCHS]:
        return
    blocks, warps = context[at.BLOCKS], lanes.size // 32
    epochs = carray(pointer(context[at.EPOCHS]), (blocks,), np.uint64)
    known = carray(pointer(context[at.KNOWN]), (blocks, warps, warps), np.uint64)
    epochs[block] += np.uint64(1)
    for warp in range(warps):
        if lanes[32 * warp]:
            known[block, warp, warp] = epochs[block]
    if warps == 1:
        common = carray(pointer(context[at.COMMON]), (blocks,), np.uint64)
        common[block] = epochs[block]


@part
def shuffle(code, lanes, out, in_range, has_range, x, offset, clamp):
    """`shfl.sync`: the value of another lane, or its own if that lies out of the segment."""
    for i in range(lanes.size):
        if not lanes[i]:
            continue
        lane = np.int64(i & 31)
        by, last = np.int64(offset[i] & np.uint32(31)), np.int64(clamp[i] & np.uint32(31))
        segment = np.int64(clamp[i] >> np.uint32(8) & np.uint32(31))
        bound = (lane & segment) | (last & ~segment)
        if code == op.SHFL_UP:
            wanted = lane - by
            inside = wanted >= bound
        else:
            if code == op.SHFL_DOWN:
                wanted = lane + by
            elif code == op.SHFL_BFLY:
                wanted = lane ^ by
            else:
                wanted = (lane & segment) | (by & ~segment)
            inside = wanted <= bound
        out[i] = x[(i & ~31) + wanted] if inside else x[i]
        if has_range:
            in_range[i] = inside


@part
def votes(code, lanes, out, x):
    """`vote.sync` and `redux.sync`."""
    for warp in range(lanes.size // 32):
        first = 32 * warp
        if not lanes[first]:
            continue
        if code == op.BALLOT or code == op.VOTE_ANY or code == op.VOTE_ALL:
            bits = np.uint32(0)
            for k in range(32):
                bits |= np.uint32(np.uint32(x[first + k] != 0) << np.uint32(k))
            result = bits
            if code == op.VOTE_ANY:
                result = np.uint32(bits != 0)
            elif code == op.VOTE_ALL:
                result = np.uint32(bits == FULL)
        else:
            result = x[first]
            for k in range(1, 32):
                value = x[first + k]
                if code == op.REDUX_MAX:
                    result = max(result, value)
                elif code == op.REDUX_MIN:
                    result = min(result, value)
                else:
                    result = np.uint32(result + value)
        for k in range(32):
            out[first + k] = result


# ---- masks of lanes -------------------------------------------------------------------------------------------------


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


# ---- registers in flight --------------------------------------------------------------------------------------------


@part
def _any_of_group(lanes, first):
    for i in range(first, first + WARPGROUP):
        if lanes[i]:
            return True
    return False


@part
def may_use(number, block, lanes, context):
    """Whether hazard `number` conflicts with no `wgmma` in flight; if so, note it as the writer of its registers."""
    groups, registers = lanes.size // WARPGROUP, context[at.WGMMA_REGISTERS]
    shape = (context[at.BLOCKS] * groups, registers)
    writers = carray(pointer(context[at.WGMMA_WRITERS]), shape, np.int32)
    held = carray(pointer(context[at.WGMMA_HELD]), shape, np.uint8)
    every = carray(pointer(context[at.HAZARDS]), (context[at.HAZARD_COUNT], context[at.HAZARD_WIDTH]), np.int32)
    hazard = every[number]
    reads, end = at.USED + hazard[at.READ_COUNT], at.USED + hazard[at.READ_COUNT] + hazard[at.WRITTEN_COUNT]
    for group in range(groups):
        if not _any_of_group(lanes, WARPGROUP * group):
            continue
        row = block * groups + group
        writer = np.int32(0 if hazard[at.COPIES] else number + 1)
        for k in range(at.USED, reads):
            if held[row, hazard[k]] & at.ACCUMULATOR:
                return False
            if hazard[at.COPIES]:
                writer = writers[row, hazard[k]]
        for k in range(reads, end):
            if held[row, hazard[k]]:
                return False
        for k in range(reads, end):
            writers[row, hazard[k]] = writer
    return True
