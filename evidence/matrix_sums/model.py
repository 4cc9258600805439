"""The sum of sixteen products and an accumulator, as published for the f16 `mma` and `wgmma` of Hopper.

MMA-Sim (Microsoft, arXiv 2511.10909): products are exact and not normalised. All seventeen terms are aligned to the
largest exponent among them and cut off behind `FRACTION_BITS` bits. Their sum is exact, and is cut off to float32.
"""

from __future__ import annotations

import numpy as np

FRACTION_BITS = 25  # fraction bits of an aligned term on Hopper; 24 from Turing to Ada
F16_FRACTION, F32_FRACTION = 10, 23
F16_LEAST, F32_LEAST = -14, -126  # exponents of the smallest normal numbers, also used for subnormal ones
ZERO_EXPONENT = -126  # exponent of a zero factor or accumulator
NAN = np.uint32(0x7FFFFFFF)


def fused_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray, fraction_bits: int = FRACTION_BITS) -> np.ndarray:
    """Patterns of float32, uint32 (n,): c + a[0] b[0] + ... + a[15] b[15].

    a, b: (n, 16) float16; c: (n,) float32; fraction_bits: of each aligned term
    """
    a_digits, a_exponent = _parts(a, F16_FRACTION, F16_LEAST)
    b_digits, b_exponent = _parts(b, F16_FRACTION, F16_LEAST)
    c_digits, c_exponent = _parts(c[:, None], F32_FRACTION, F32_LEAST)
    digits = np.concatenate([a_digits * b_digits, c_digits], axis=1)
    exponent = np.concatenate([a_exponent + b_exponent, c_exponent], axis=1)
    behind = np.array([2 * F16_FRACTION] * a.shape[1] + [F32_FRACTION])
    largest = exponent.max(axis=1, keepdims=True)
    total = _cut(digits, fraction_bits - behind + exponent - largest).sum(axis=1)
    found = _toward_zero(np.ldexp(total.astype(np.float64), (largest[:, 0] - fraction_bits).astype(np.int32)))
    return _special(a, b, c, found.view(np.uint32))


def _parts(x: np.ndarray, fraction: int, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Signed digits and exponent, int64: x = digits * 2^(exponent - fraction)."""
    finite = np.where(np.isfinite(x), x, 0).astype(np.float64)
    exponent = np.maximum(np.frexp(finite)[1].astype(np.int64) - 1, least)
    digits = np.ldexp(finite, (fraction - exponent).astype(np.int32)).astype(np.int64)
    return digits, np.where(finite == 0, ZERO_EXPONENT, exponent)


def _cut(digits: np.ndarray, places: np.ndarray) -> np.ndarray:
    """digits * 2^places, cut off toward zero."""
    left = np.abs(digits) << np.clip(places, 0, 63)
    return np.sign(digits) * (left >> np.clip(-places, 0, 63))


def _toward_zero(x: np.ndarray) -> np.ndarray:
    """float64 to float32, cut off; infinite from 2^128 on."""
    with np.errstate(over="ignore"):
        near = x.astype(np.float32)
    cut = np.where(np.abs(near.astype(np.float64)) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    return np.where(np.abs(x) >= 2.0**128, np.copysign(np.float32(np.inf), near), cut).astype(np.float32)


def _special(a: np.ndarray, b: np.ndarray, c: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The patterns where a term is infinite or NaN."""
    with np.errstate(invalid="ignore"):
        terms = np.concatenate([a.astype(np.float64) * b.astype(np.float64), c[:, None].astype(np.float64)], axis=1)
        total = np.where(np.isfinite(terms), 0, terms).sum(axis=1)
    infinite = np.where(total < 0, np.float32(-np.inf), np.float32(np.inf)).view(np.uint32)
    special = np.where(np.isnan(total), NAN, infinite)
    return np.where(np.isfinite(terms).all(axis=1), found, special)
