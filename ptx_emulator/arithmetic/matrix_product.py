"""The matrix multiply-add of `mma` and `wgmma`: the exact sum of exact products and the accumulator, rounded once to
float32. Where a chip's own sum is known it is taken instead, see `hopper_product`.

PTX leaves the order of the sum, and the rounding of its steps, to the hardware. The exact sum has no order; hardware
gives the same bytes wherever every partial sum is a float32, and only there may a test expect bytes.

A product of two bf16 or f16 is exact in float64, and so is a sum of products whose highest and lowest bits are at most
53 apart. Decoded NVFP4 is: codes times block scales are multiples of 2^-10 below 2^12, so sums of sixteen products are
multiples of 2^-20 below 2^28. Other sums are computed one element at a time. The accumulator is added with rounding to
odd (see `rounding`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import fsum

import numpy as np

from ptx_emulator.arithmetic.rounding import NAN_F32, bf16_values, canonical, f16_values, to_odd_sum
from ptx_emulator.registers import F32, F64, I16, I64, U16, Bits

EXACT_BITS = 53
_NEVER = 4000  # beyond every power of two, for zeros, infinities and NaNs


class Factors:
    """Values of a 16-bit format, by pattern.

    value: (65536,) float64; highest, lowest: (65536,) int16, exponents of the first and the last bit set
    """

    def __init__(self, values: Callable[[Bits], np.ndarray]):
        patterns = np.arange(1 << 16, dtype=U16)
        self.value = values(patterns).astype(F64)
        fraction, power = np.frexp(np.where(np.isfinite(self.value), self.value, 0))
        digits = (np.abs(fraction) * 2.0**16).astype(I64)
        has_digits = digits > 0
        last = power - 16 + np.log2(np.where(has_digits, digits & -digits, 1))
        self.highest = np.where(has_digits, power - 1, -_NEVER).astype(I16)
        self.lowest = np.where(has_digits, last, _NEVER).astype(I16)


with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaNs
    FACTORS = {"bf16": Factors(bf16_values), "f16": Factors(f16_values)}


def multiply_add(kind: str, a: Bits, b: Bits, c: Bits) -> Bits:
    """a @ b + c as float32 patterns; a sum of exactly 0 is +0, a NaN is 0x7FFFFFFF.

    kind: `bf16` or `f16`; a: (n, rows, k), b: (n, k, columns) uint16; c: (n, rows, columns) uint32, patterns of float32
    """
    factors = FACTORS[kind]
    left, right, addend = factors.value[a], factors.value[b], c.view(F32).astype(F64)
    total = to_odd_sum(np.matmul(left, right), addend)
    for n, row, column in _inexact(factors, a, b):
        if np.isfinite(total[n, row, column]):
            total[n, row, column] = odd_total([*(left[n, row] * right[n, :, column]).tolist(), addend[n, row, column]])
    # matmul chooses the sign of zero; adding +0 makes it +0.
    return canonical((total + 0.0).astype(F32), NAN_F32)


def _inexact(factors: Factors, a: Bits, b: Bits) -> np.ndarray:
    """The elements (n, row, column) whose sum of products may not fit a float64. (m, 3) ints"""
    a_highest, a_lowest = factors.highest[a], factors.lowest[a]
    b_highest, b_lowest = factors.highest[b], factors.lowest[b]
    # A product of numbers below 2^(h + 1) and 2^(h' + 1) is below 2^(h + h' + 2), and a sum of k is below k times that.
    growth = 2 + (a.shape[2] - 1).bit_length()
    if int(a_highest.max()) + int(b_highest.max()) + growth - int(a_lowest.min()) - int(b_lowest.min()) <= EXACT_BITS:
        return np.zeros((0, 3), I64)
    rows = a_highest.max(axis=2) - a_lowest.min(axis=2)
    columns = b_highest.max(axis=1) - b_lowest.min(axis=1)
    return np.argwhere(rows[:, :, None] + columns[:, None, :] + growth > EXACT_BITS)


def odd_total(terms: list[float]) -> float:
    """The exact sum of finite terms, rounded to odd."""
    near = fsum(terms)
    rest = fsum([*terms, -near])
    if rest and not int(F64(near).view(I64)) & 1:
        near = float(np.nextafter(near, np.copysign(np.inf, rest)))
    return near
