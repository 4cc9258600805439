"""`wgmma` of warpgroups: exact sums of exact products, where float64 holds them, or sums in Hopper's order; others are
left to NumPy.

See `ptx_emulator.instructions.wgmma` for the fragments, and `product` for `mma`.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled.hopper_product import add_row, cut_pattern, exponents
from ptx_emulator.compiled.jit import as_float, entry, part
from ptx_emulator.compiled.lanes import odd_sum
from ptx_emulator.compiled.product import DEPTH, fits, span, value_of

ROWS, MOST_COLUMNS, CHUNK = 64, 256, 8  # of the matrices; elements of 16 bytes
ROOM = ROWS * DEPTH + DEPTH * MOST_COLUMNS + 2 * MOST_COLUMNS  # float64: A, B, a row of the result and of C


@part
def _load_registers(is_half, sign, narrow, fragments, first, left, limits):
    """A from registers, whose layout is that of `mma` for each of the four warps."""
    for k in range(4):
        row = narrow[fragments[k]]
        for lane in range(2 * ROWS):
            register = row[first + lane]
            at = (16 * (lane >> 5) + 8 * (k & 1) + (lane >> 2 & 7)) * DEPTH + 8 * (k >> 1) + 2 * (lane & 3)
            low = value_of((register & np.uint32(0xFFFF)) ^ sign, is_half)
            high = value_of(np.uint32(register >> np.uint32(16)) ^ sign, is_half)
            left[at], left[at + 1] = low, high
            if not (span(low, limits) and span(high, limits)):
                return False
    return True


@part
def _load_chunks(is_half, sign, across, shared, index, out, row_step, depth_step, limits):
    """A matrix from shared memory.

    index: two chunks of each row, halves of the depth, or if it lies across, a chunk of 8 rows for each k
    """
    step = row_step if across else depth_step
    for i in range(index.size):
        chunk = shared[index[i]]
        if across:
            at = CHUNK * (i // DEPTH) * row_step + i % DEPTH * depth_step
        else:
            at = (i >> 1) * row_step + CHUNK * (i & 1) * depth_step
        for k in range(CHUNK):
            value = value_of(np.uint32(chunk[k]) ^ sign, is_half)
            out[at + k * step] = value
            if not span(value, limits):
                return False
    return True


@part
def _row(left, right, columns, out):
    """Products of a row of A with all columns of B."""
    for j in range(columns):
        out[j] = 0.0
    for k in range(0, DEPTH, 4):
        a, b, c, d = left[k], left[k + 1], left[k + 2], left[k + 3]
        first, second = right[k * columns : (k + 1) * columns], right[(k + 1) * columns : (k + 2) * columns]
        third, fourth = right[(k + 2) * columns : (k + 3) * columns], right[(k + 3) * columns : (k + 4) * columns]
        for j in range(columns):
            out[j] += a * first[j] + b * second[j] + c * third[j] + d * fourth[j]


@entry(
    "int64(boolean, boolean, uint32[:, :, ::1], uint16[:, ::1], int64[::1], int32[::1], int32[::1], int64[:, ::1], "
    "int64[:, ::1], boolean[::1], uint32, uint32, boolean, boolean, float64[::1])"
)
def multiply(
    is_half, as_hopper, registers, shared, first, targets, fragments, a_index, b_index, added, sign_a, sign_b, a_across,
    b_across, room,
):  # fmt: skip
    """Set the accumulators of warpgroups until one has a sum that might not be exact; returns its number, or n.

    as_hopper: sum in the order of Hopper's matrix unit, until one has a factor that is infinite or a NaN
    first: (n,), each warpgroup's first lane; targets: rows of its accumulators; fragments: of A, or empty
    a_index, b_index: (n, chunks) of shared memory; added: (n,), whether the accumulator is
    a_across, b_across: whether a chunk is 8 rows of one k
    """
    threads, columns = registers.shape[2], b_index.shape[1] // 2
    left, right = room[: ROWS * DEPTH], room[ROWS * DEPTH : ROWS * DEPTH + DEPTH * columns]
    total, addend = room[-2 * MOST_COLUMNS : -MOST_COLUMNS][:columns], room[-MOST_COLUMNS:][:columns]
    limits = np.empty(4, np.int64)
    of_left, of_right = np.empty(ROWS * DEPTH, np.int64), np.empty(DEPTH * columns, np.int64)
    highest = np.empty(columns, np.int64)
    for n in range(first.size):
        narrow, lane = registers[first[n] // threads], first[n] % threads
        limits[0], limits[1], limits[2], limits[3] = -4000, 4000, -4000, 4000
        if fragments.size:
            known = _load_registers(is_half, sign_a, narrow, fragments, lane, left, limits)
        else:
            known = _load_chunks(is_half, sign_a, a_across, shared, a_index[n], left, DEPTH, 1, limits)
        known = known and _load_chunks(is_half, sign_b, b_across, shared, b_index[n], right, 1, columns, limits[2:])
        if as_hopper:
            known = known and exponents(left, of_left) and exponents(right, of_right)
        elif known:
            known = fits(limits)
        if not known:
            return n
        for row in range(ROWS):
            of_row = slice(row * DEPTH, (row + 1) * DEPTH)
            at = lane + 32 * (row >> 4) + 4 * (row & 7)
            below = 2 * (row >> 3 & 1)
            for j in range(columns):
                register = targets[4 * (j >> 3) + below + (j & 1)]
                old = narrow[register, at + (j >> 1 & 3)]
                addend[j] = np.float64(as_float(old)) if added[n] else 0.0
            if as_hopper:
                add_row(left[of_row], of_left[of_row], right, of_right, addend, highest, total)
            else:
                _row(left[of_row], right, columns, total)
                for j in range(columns):
                    total[j] = np.float64(np.float32(odd_sum(total[j], addend[j]) + 0.0))
            for j in range(columns):
                register = targets[4 * (j >> 3) + below + (j & 1)]
                narrow[register, at + (j >> 1 & 3)] = cut_pattern(total[j])
    return first.size
