"""The matrix multiply-add of `mma`, `wgmma` and `tcgen05.mma`: the exact sum of exact products and the accumulator,
rounded once to float32. Where a chip's own sum is known it is taken instead, see `hopper_product`.

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
from typing import NamedTuple

import numpy as np

from ptx_emulator.arithmetic.rounding import (
    E2M1,
    E4M3,
    E5M2,
    NAN_F32,
    bf16_values,
    canonical,
    f16_values,
    to_odd_sum,
)
from ptx_emulator.registers import F16, F32, F64, I16, I64, U8, U16, Bits

EXACT_BITS = 53
_NEVER = 4000  # beyond every power of two, for zeros, infinities and NaNs


class Span(NamedTuple):
    """Exponents of the first and the last bit set of each value."""

    highest: np.ndarray
    lowest: np.ndarray


def _span(values: np.ndarray) -> Span:
    fraction, power = np.frexp(np.where(np.isfinite(values), values, 0))
    digits = np.abs(fraction * 2.0**EXACT_BITS).astype(I64)
    some = digits > 0
    last = power - EXACT_BITS + np.log2(np.where(some, digits & -digits, 1)).astype(I64)
    return Span(np.where(some, power - 1, -_NEVER), np.where(some, last, _NEVER))


class Factors:
    """Values of a 16-bit format, by pattern. value: (65536,) float64; span: of them, int16"""

    def __init__(self, values: Callable[[Bits], np.ndarray]):
        self.value = values(np.arange(1 << 16, dtype=U16)).astype(F64)
        self.span = Span(*(each.astype(I16) for each in _span(self.value)))


with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaNs
    FACTORS = {"bf16": Factors(bf16_values), "f16": Factors(f16_values)}

CODES = E2M1.decode_table().view(F16).astype(F64)
BYTES = {name: form.decode_table().view(F16).astype(F64) for name, form in (("e4m3", E4M3), ("e5m2", E5M2))}
_E8M0 = np.append(2.0 ** (np.arange(255, dtype=F64) - 127), np.nan)
SCALES = {"ue4m3": BYTES["e4m3"], "ue8m0": _E8M0}


def multiply_add(kind: str, a: Bits, b: Bits, c: Bits) -> Bits:
    """a @ b + c as float32 patterns; a sum of exactly 0 is +0, a NaN is 0x7FFFFFFF.

    kind: `bf16` or `f16`; a: (n, rows, k), b: (n, k, columns) uint16; c: (n, rows, columns) uint32, patterns of float32
    """
    factors = FACTORS[kind]
    left, right = (Span(factors.span.highest[each], factors.span.lowest[each]) for each in (a, b))
    return _multiply_add(factors.value[a], factors.value[b], c, left, right)


def multiply_values(a: np.ndarray, b: np.ndarray, c: Bits) -> Bits:
    """`multiply_add` of one matrix (rows, k) and one (k, columns) of float64, whose products are exact."""
    a, b = a[None], b[None]
    return _multiply_add(a, b, c[None], _span(a), _span(b))[0]


def _multiply_add(a: np.ndarray, b: np.ndarray, c: Bits, left: Span, right: Span) -> Bits:
    addend = c.view(F32).astype(F64)
    total = to_odd_sum(np.matmul(a, b), addend)
    for n, row, column in _inexact(left, right):
        if np.isfinite(total[n, row, column]):
            total[n, row, column] = odd_total([*(a[n, row] * b[n, :, column]).tolist(), addend[n, row, column]])
    # matmul chooses the sign of zero; adding +0 makes it +0.
    return canonical((total + 0.0).astype(F32), NAN_F32)


def _inexact(a: Span, b: Span) -> np.ndarray:
    """The elements (n, row, column) whose sum of products may not fit a float64. (m, 3) ints"""
    # A product of numbers below 2^(h + 1) and 2^(h' + 1) is below 2^(h + h' + 2), and a sum of k is below k times that.
    growth = 2 + (a.highest.shape[2] - 1).bit_length()
    most = int(a.highest.max()) + int(b.highest.max()) + growth
    if most - int(a.lowest.min()) - int(b.lowest.min()) <= EXACT_BITS:
        return np.zeros((0, 3), I64)
    rows = a.highest.max(axis=2) - a.lowest.min(axis=2)
    columns = b.highest.max(axis=1) - b.lowest.min(axis=1)
    return np.argwhere(rows[:, :, None] + columns[:, None, :] + growth > EXACT_BITS)


def odd_total(terms: list[float]) -> float:
    """The exact sum of finite terms, rounded to odd."""
    near = fsum(terms)
    rest = fsum([*terms, -near])
    if rest and not int(F64(near).view(I64)) & 1:
        near = float(np.nextafter(near, np.copysign(np.inf, rest)))
    return near


def scaled_codes(packed: Bits, scales: np.ndarray) -> np.ndarray:
    """Values (rows, k) of e2m1 codes, two in a byte and the lower first, times the scale of their block.

    packed: (rows, k / 2) uint8; scales: (rows, k / block) float64
    """
    codes = np.stack([packed & U8(15), packed >> U8(4)], axis=2).reshape(len(packed), -1)
    return CODES[codes] * np.repeat(scales, codes.shape[1] // scales.shape[1], axis=1)
