"""Amaxes and decoded values by integer arithmetic on bits, and the rotation lane by lane."""

from __future__ import annotations

import numpy as np

F32 = np.float32
_SIGN = {2: 0x7FFF, 4: 0x7FFFFFFF}
_INFINITY = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000}
_AT_ONCE = 1 << 24  # elements


def amax(x: np.ndarray, axis: int | None = None) -> np.ndarray:
    """max |x|, float32; a NaN counts as 0. Magnitudes are in the order of their bits."""
    if axis is None and x.size > _AT_ONCE:
        rows = max(1, _AT_ONCE // x.shape[1])
        return np.max([amax(x[first : first + rows]) for first in range(0, len(x), rows)])
    bits = np.ascontiguousarray(x).view(f"u{x.itemsize}") & _SIGN[x.itemsize]
    bits[bits > _INFINITY[x.dtype.name]] = 0
    largest = bits.max(axis=axis, initial=0)
    return np.asarray(largest, bits.dtype).view(x.dtype).astype(F32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 values rounded to bf16, ties to even; a NaN stays a NaN."""
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    kept = (bits + (0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(F32)
    return np.where(np.isnan(x), F32(np.nan), kept)


def rotated(x: np.ndarray, sign_mask: int) -> np.ndarray:
    """The columns of (rows, cols) as lines, (cols, rows) float32, each 16 elements rotated and divided by 4."""
    lane = np.arange(16)
    r = np.ascontiguousarray(x.T, F32).reshape(x.shape[1], -1, 16)
    with np.errstate(all="ignore"):
        r = np.where(sign_mask >> lane & 1, -r, r)
        for distance in (1, 2, 4, 8):
            # Pair the lanes with and without this bit in their number.
            pairs = r.reshape(*r.shape[:2], -1, 2, distance)
            low, high = pairs[..., 0, :], pairs[..., 1, :]
            r = np.stack([low + high, low - high], axis=-2).reshape(r.shape)
        return (r * F32(0.25)).reshape(x.shape[1], -1)


def e2m1(data: np.ndarray) -> np.ndarray:
    """(lines, length / 2) bytes → (lines, length) values; bit 3 is the sign, bits 2 and 1 the exponent, of bias 1."""
    byte = np.arange(256)
    codes = np.stack([byte & 15, byte >> 4], axis=-1)
    exponent, half = codes >> 1 & 3, codes & 1
    magnitude = np.where(exponent == 0, half * 0.5, (2 + half) * 2.0 ** (exponent - 2))
    return np.where(codes & 8, -magnitude, magnitude)[data].reshape(len(data), -1)


def e4m3(byte: np.ndarray) -> np.ndarray:
    """Bytes → values, float64; bit 7 is the sign, then four bits of exponent, of bias 7, and three of mantissa."""
    number = np.arange(256)
    exponent, mantissa = number >> 3 & 15, number & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    magnitude = np.where(number & 127 == 127, np.nan, magnitude)
    return np.where(number & 128, -magnitude, magnitude)[byte]


def step(size: int, most: int) -> int:
    """The stride for looking at about `most` of `size` entries; it is odd, so that it does not align with a layout."""
    return 1 if size <= most else -(-size // most) | 1


def places(shape: tuple[int, int], valid: tuple[int, int], swizzled: bool, most: int | None = None) -> np.ndarray:
    """The offsets of the bytes of the valid corner in a (R, C) allocation. See NUMERICS 1.7.

    most: about how many of them, in some of the rows; all if it is None
    """
    apart = 1 if most is None else step(valid[0] * valid[1], most)
    r, c = np.arange(0, valid[0], apart)[:, None], np.arange(valid[1])
    if not swizzled:
        return r * shape[1] + c
    return (r // 128 * (shape[1] // 4) + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4
