"""The sum of an `mma` or `wgmma` of f16 with depth 16, in the order of Hopper's matrix unit.

Published by MMA-Sim (arXiv 2511.10909), compared with an H200 by `python -m evidence sums`: products are exact and not
normalised. The sixteen products and the accumulator are aligned to the largest exponent among them, and what
lies more than `KEPT` bits below that is cut off. Their sum is exact, and is cut off to float32. A 0 has the exponent of
the smallest normal float32, and subnormal numbers that of the smallest normal ones of their format.

`significand`s are integers, so that all of this is shifts and one sum.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.arithmetic.rounding import NAN_F32, canonical, f32_directed
from ptx_emulator.registers import F16, F32, F64, I64, U16, Bits

DEPTH = 16
KEPT = 25  # bits that a term keeps below the largest exponent
LEAST_F16, LEAST_F32 = -14, -126  # exponents of the smallest normal numbers
LARGEST = 2.0**128  # from here on a sum is infinite


def is_measured(architecture: str, kind: str, depth: int) -> bool:
    """Whether the sum of an instruction is known. kind: of its factors; depth: its K"""
    return architecture.startswith("sm_90") and kind == "f16" and depth == DEPTH


def multiply_add(a: Bits, b: Bits, c: Bits) -> Bits:
    """a @ b + c as float32 patterns. a: (n, rows, 16), b: (n, 16, columns) uint16; c: (n, rows, columns) uint32"""
    left, left_exponent = _PARTS[0][a], _PARTS[1][a]
    right, right_exponent = _PARTS[0][b], _PARTS[1][b]
    addend = c.view(F32)
    fraction, power = np.frexp(np.where(np.isfinite(addend), addend, 0).astype(F64))
    exponent = np.where(addend == 0, LEAST_F32, np.maximum(power.astype(I64) - 1, LEAST_F32))
    highest = exponent.copy()
    for k in range(DEPTH):
        np.maximum(highest, left_exponent[:, :, k, None] + right_exponent[:, None, k], out=highest)
    total = _aligned(np.ldexp(fraction, power - exponent + 23).astype(I64), KEPT - 23 + exponent - highest)
    for k in range(DEPTH):
        places = KEPT - 20 + left_exponent[:, :, k, None] + right_exponent[:, None, k] - highest
        total += _aligned(left[:, :, k, None] * right[:, None, k], places)
    exact = np.ldexp(total.astype(F64), highest - KEPT)
    found = f32_directed(exact, "rz")
    found = np.where(np.abs(exact) >= LARGEST, np.copysign(F32(np.inf), found), found)
    return canonical(_with_special(a, b, addend, found).astype(F32), NAN_F32)


def _aligned(significand: np.ndarray, places: np.ndarray) -> np.ndarray:
    """significand * 2^places, cut off toward zero."""
    size = np.abs(significand) << np.clip(places, 0, 62) >> np.clip(-places, 0, 62)
    return np.where(significand < 0, -size, size)


def _with_special(a: Bits, b: Bits, c: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Infinities and NaN as IEEE 754 has them."""
    if _FINITE[a].all() and _FINITE[b].all() and np.isfinite(c).all():
        return found
    rest = np.where(np.isfinite(c), F64(0), c)
    for k in range(DEPTH):
        product = _VALUES[a[:, :, k, None]] * _VALUES[b[:, None, k]]
        rest = rest + np.where(np.isfinite(product), 0, product)
    return np.where(rest == 0, found, rest)


def _parts() -> tuple[np.ndarray, np.ndarray]:
    """Significand of 11 bits with its sign, and exponent, int64 (65536,) by pattern; infinities and NaN count as 0."""
    pattern = np.arange(1 << 16, dtype=I64)
    field, fraction = pattern >> 10 & 31, pattern & 1023
    size = np.where(field == 31, 0, np.where(field == 0, fraction, fraction + 1024))
    exponent = np.where(size == 0, LEAST_F32, np.maximum(field - 15, LEAST_F16))
    return np.where(pattern >> 15 == 1, -size, size), exponent


_PARTS = _parts()
with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaNs
    _VALUES = np.arange(1 << 16, dtype=U16).view(F16).astype(F64)
_FINITE = np.isfinite(_VALUES)
