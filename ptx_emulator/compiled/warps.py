"""Shuffles, votes and reductions of whole warps that name all 32 lanes. Others are left to NumPy."""

from __future__ import annotations

import numpy as np
from numba import carray

from ptx_emulator.compiled import layout as at
from ptx_emulator.compiled import opcodes as op
from ptx_emulator.compiled.jit import part, pointer

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
