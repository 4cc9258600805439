"""Hopper's sum of sixteen products of f16, for a row of A and all columns of B; NumPy does infinite and NaN factors.

See `ptx_emulator.arithmetic.hopper_product` for the arithmetic. Every step is exact in float64: a term has at most
27 bits, and seventeen of them 32.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.arithmetic.hopper_product import DEPTH, KEPT, LARGEST, LEAST_F16, LEAST_F32
from ptx_emulator.compiled.jit import as_bits, as_double, as_wide_bits, part
from ptx_emulator.compiled.lanes import NAN

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
