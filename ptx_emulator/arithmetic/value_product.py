"""The matrix multiply-add of `tcgen05.mma`, of decoded values: the exact sum of exact products and the accumulator,
rounded once to float32. `matrix_product` says why; its tables are of 16-bit patterns, and values come from any format.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.arithmetic.matrix_product import EXACT_BITS, odd_total
from ptx_emulator.arithmetic.rounding import NAN_F32, canonical, to_odd_sum
from ptx_emulator.arithmetic.small_floats import E2M1, E4M3, E5M2
from ptx_emulator.registers import F16, F32, F64, I64, U8, Bits

_NEVER = 1 << 20  # beyond every power of two, for zeros, infinities and NaNs
_DIGITS = 53

CODES = E2M1.decode_table().view(F16).astype(F64)
BYTES = {name: form.decode_table().view(F16).astype(F64) for name, form in (("e4m3", E4M3), ("e5m2", E5M2))}
_E8M0 = np.append(2.0 ** (np.arange(255, dtype=F64) - 127), np.nan)
SCALES = {"ue4m3": BYTES["e4m3"], "ue8m0": _E8M0}


def multiply_add(a: np.ndarray, b: np.ndarray, c: Bits) -> Bits:
    """a @ b + c as float32 patterns; a sum of exactly 0 is +0, a NaN is 0x7FFFFFFF.

    a: (rows, k), b: (k, columns) float64, whose products are exact; c: (rows, columns) uint32, patterns of float32
    """
    addend = c.view(F32).astype(F64)
    total = to_odd_sum(np.matmul(a, b), addend)
    for row, column in _inexact(a, b):
        if np.isfinite(total[row, column]):
            total[row, column] = odd_total([*(a[row] * b[:, column]).tolist(), addend[row, column]])
    # matmul chooses the sign of zero; adding +0 makes it +0.
    return canonical((total + 0.0).astype(F32), NAN_F32)


def _span(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exponents of the first and the last bit set of each value."""
    fraction, power = np.frexp(np.where(np.isfinite(values), values, 0))
    digits = np.abs(fraction * 2.0**_DIGITS).astype(I64)
    some = digits > 0
    last = power - _DIGITS + np.log2(np.where(some, digits & -digits, 1)).astype(I64)
    return np.where(some, power - 1, -_NEVER), np.where(some, last, _NEVER)


def _inexact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The elements (row, column) whose sum of products may not fit a float64. (m, 2) ints"""
    (a_highest, a_lowest), (b_highest, b_lowest) = _span(a), _span(b)
    # A product of numbers below 2^(h + 1) and 2^(h' + 1) is below 2^(h + h' + 2), and a sum of k is below k times that.
    growth = 2 + (a.shape[1] - 1).bit_length()
    if int(a_highest.max()) + int(b_highest.max()) + growth - int(a_lowest.min()) - int(b_lowest.min()) <= EXACT_BITS:
        return np.zeros((0, 2), I64)
    rows, columns = a_highest.max(axis=1) - a_lowest.min(axis=1), b_highest.max(axis=0) - b_lowest.min(axis=0)
    return np.argwhere(rows[:, None] + columns[None, :] + growth > EXACT_BITS)


def scaled_codes(packed: Bits, scales: np.ndarray) -> np.ndarray:
    """Values (rows, k) of e2m1 codes, two in a byte and the lower first, times the scale of their block.

    packed: (rows, k / 2) uint8; scales: (rows, k / block) float64
    """
    codes = np.stack([packed & U8(15), packed >> U8(4)], axis=2).reshape(len(packed), -1)
    return CODES[codes] * np.repeat(scales, codes.shape[1] // scales.shape[1], axis=1)
