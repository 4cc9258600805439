"""`mma.m16n8k16` of a warp: exact sums of exact products, where float64 holds them, or sums in Hopper's order; others
are left to NumPy.

See `matrix_product` and `hopper_product` of `emulator.arithmetic` for the arithmetic, and `instructions.mma` for the
fragments.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.arithmetic.hopper_product import DEPTH, KEPT, LARGEST, LEAST_F16, LEAST_F32
from ptx_emulator.arithmetic.matrix_product import EXACT_BITS
from ptx_emulator.compiled.jit import as_bits, as_double, as_float, as_wide_bits, part
from ptx_emulator.compiled.lanes import NAN, odd_sum, of_half

ROWS, COLUMNS = 16, 8
GROWTH = 2 + 4  # extra bits that a sum of sixteen products needs beyond the factors' exponents


@part
def value_of(pattern, is_half):
    return np.float64(of_half(pattern)) if is_half else np.float64(as_float(np.uint32(pattern << np.uint32(16))))


@part
def span(value, limits):
    """Widen (highest, lowest) by the exponents of a value's first and last bit; False for infinity and NaN."""
    if value == 0:
        return True
    bits = as_wide_bits(value)
    exponent = (bits >> np.int64(52)) & np.int64(0x7FF)
    if exponent == 0x7FF:
        return False
    fraction = bits & np.int64((1 << 52) - 1)
    trailing = np.int64(52)
    if fraction:
        # The exponent of the lowest set bit, as a float64 has it.
        trailing = (as_wide_bits(np.float64(fraction & -fraction)) >> np.int64(52)) - np.int64(1023)
    high = exponent - np.int64(1023)
    limits[0] = max(limits[0], high)
    limits[1] = min(limits[1], high - np.int64(52) + trailing)
    return True


@part
def _load(is_half, first, narrow, a, b, constants, left, right):
    """A (16, 16) and B (16, 8) of the warp whose first lane this is, as float64."""
    for k in range(4):
        for lane in range(32):
            register = np.uint32(constants[~a[k]]) if a[k] < 0 else narrow[a[k], first + lane]
            at = (8 * (k & 1) + (lane >> 2)) * DEPTH + 8 * (k >> 1) + 2 * (lane & 3)
            left[at] = value_of(register & np.uint32(0xFFFF), is_half)
            left[at + 1] = value_of(np.uint32(register >> np.uint32(16)), is_half)
    for k in range(2):
        for lane in range(32):
            register = np.uint32(constants[~b[k]]) if b[k] < 0 else narrow[b[k], first + lane]
            at = (8 * k + 2 * (lane & 3)) * COLUMNS + (lane >> 2)
            right[at] = value_of(register & np.uint32(0xFFFF), is_half)
            right[at + COLUMNS] = value_of(np.uint32(register >> np.uint32(16)), is_half)


@part
def _exact(left, right, limits):
    """Whether every sum of sixteen products fits a float64."""
    highest_lowest_of_b = limits[2:]
    limits[0], limits[1], limits[2], limits[3] = -4000, 4000, -4000, 4000
    for k in range(ROWS * DEPTH):
        if not span(left[k], limits):
            return False
    for k in range(DEPTH * COLUMNS):
        if not span(right[k], highest_lowest_of_b):
            return False
    return fits(limits)


@part
def fits(limits):
    """Whether sums of sixteen products fit, given (highest, lowest) exponents of A and of B."""
    return limits[0] + limits[2] + GROWTH - limits[1] - limits[3] <= EXACT_BITS


@part
def _whole_warps(lanes):
    """Whether every warp has all its lanes or none."""
    for warp in range(lanes.size // 32):
        active = 0
        for i in range(32 * warp, 32 * warp + 32):
            active += lanes[i] != 0
        if active != 0 and active != 32:
            return False
    return True


@part
def multiply(operands, is_half, narrow, constants, lanes, room, limits):
    """The products of every active warp; False, with nothing changed, if a sum might not be exact.

    operands: rows of four results, four registers of A, two of B and four of C, or ~n for a constant
    """
    left, right = room[: ROWS * DEPTH], room[ROWS * DEPTH : (ROWS + COLUMNS) * DEPTH]
    targets, a, b, c = operands[:4], operands[4:8], operands[8:10], operands[10:14]
    warps = lanes.size // 32
    for warp in range(warps):
        active = 0
        for i in range(32 * warp, 32 * warp + 32):
            active += lanes[i] != 0
        if active == 0:
            continue
        if active != 32:
            return False
        if warps > 1:
            _load(is_half, 32 * warp, narrow, a, b, constants, left, right)
            if not _exact(left, right, limits):
                return False
    for warp in range(warps):
        first = 32 * warp
        if not lanes[first]:
            continue
        _load(is_half, first, narrow, a, b, constants, left, right)
        if warps == 1 and not _exact(left, right, limits):
            return False
        for k in range(4):
            for lane in range(32):
                row, column = 8 * (k >> 1) + (lane >> 2), 2 * (lane & 3) + (k & 1)
                total = 0.0
                for depth in range(DEPTH):
                    total += left[row * DEPTH + depth] * right[depth * COLUMNS + column]
                addend = np.uint32(constants[~c[k]]) if c[k] < 0 else narrow[c[k], first + lane]
                value = np.float32(odd_sum(total, np.float64(as_float(addend))) + 0.0)
                narrow[targets[k], first + lane] = as_bits(value) if value == value else NAN
    return True


@part
def multiply_as_hopper(operands, narrow, constants, lanes, room):
    """Like `multiply`, but sum in the order of Hopper's matrix unit; False if a factor is infinite or a NaN."""
    left, right = room[: ROWS * DEPTH], room[ROWS * DEPTH : (ROWS + COLUMNS) * DEPTH]
    targets, a, b, c = operands[:4], operands[4:8], operands[8:10], operands[10:14]
    if not _whole_warps(lanes):
        return False
    warps = lanes.size // 32
    of_left, of_right = np.empty(ROWS * DEPTH, np.int64), np.empty(DEPTH * COLUMNS, np.int64)
    addends, highest, totals = np.empty(COLUMNS), np.empty(COLUMNS, np.int64), np.empty((warps, ROWS, COLUMNS))
    for warp in range(warps):
        first = 32 * warp
        if not lanes[first]:
            continue
        _load(True, first, narrow, a, b, constants, left, right)
        if not (exponents(left, of_left) and exponents(right, of_right)):
            return False
        for row in range(ROWS):
            for column in range(COLUMNS):
                register = c[2 * (row >> 3) + (column & 1)]
                lane = 4 * (row & 7) + (column >> 1)
                addend = np.uint32(constants[~register]) if register < 0 else narrow[register, first + lane]
                addends[column] = np.float64(as_float(addend))
            of_row = slice(row * DEPTH, (row + 1) * DEPTH)
            add_row(left[of_row], of_left[of_row], right, of_right, addends, highest, totals[warp, row])
    for warp in range(warps):
        first = 32 * warp
        if not lanes[first]:
            continue
        for row in range(ROWS):
            for column in range(COLUMNS):
                lane = 4 * (row & 7) + (column >> 1)
                narrow[targets[2 * (row >> 3) + (column & 1)], first + lane] = cut_pattern(totals[warp, row, column])
    return True


INFINITY = np.uint32(0x7F800000)


@part
def exponents(values, out):
    """Set the exponents of factors that are f16; False if one is infinite or a NaN."""
    for i in range(values.size):
        field = (as_wide_bits(values[i]) >> np.int64(52)) & np.int64(0x7FF)
        if field == 0x7FF:
            return False
        out[i] = LEAST_F32 if field == 0 else max(field - np.int64(1023), LEAST_F16)
    return True


@part
def _power(exponent):
    return as_double((exponent + np.int64(1023)) << np.int64(52))


@part
def cut_pattern(value):
    """The pattern of a float64 cut off to float32."""
    near = np.float32(value)
    bits = as_bits(near)
    if value != value:
        return NAN
    if abs(value) >= LARGEST:
        return INFINITY | (bits & np.uint32(0x80000000))
    return np.uint32(bits - np.uint32(1)) if abs(np.float64(near)) > abs(value) else bits


@part
def add_row(left, of_left, right, of_right, addends, highest, totals):
    """totals[j] = addends[j] + left @ right[:, j] before the last cut. An infinite addend or a NaN stays what it is.

    left: (16,); right: (16 * columns,); of_left, of_right: their exponents; highest: (columns,), room
    """
    columns = addends.size
    for j in range(columns):
        field = (as_wide_bits(addends[j]) >> np.int64(52)) & np.int64(0x7FF)
        highest[j] = max(field - np.int64(1023), LEAST_F32)
    for k in range(DEPTH):
        own, others = of_left[k], of_right[k * columns : (k + 1) * columns]
        for j in range(columns):
            highest[j] = max(highest[j], own + others[j])
    for j in range(columns):
        totals[j] = np.trunc(addends[j] * _power(KEPT - highest[j]))
    for k in range(DEPTH):
        own, others = left[k], right[k * columns : (k + 1) * columns]
        for j in range(columns):
            totals[j] += np.trunc(own * others[j] * _power(KEPT - highest[j]))
    for j in range(columns):
        totals[j] = totals[j] * _power(highest[j] - KEPT) + 0.0
