"""Formats of a byte and the rotation, shared with no oracle and no kernel, for diagnoses and messages."""

from __future__ import annotations

import ml_dtypes
import numpy as np

BLOCK = 16
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1_VALUES = np.concatenate([_E2M1, -_E2M1])
E2M1_MIDPOINTS = (_E2M1[1:] + _E2M1[:-1]) / 2
_BYTES = np.arange(256, dtype=np.uint8)
E4M3_VALUES = _BYTES.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
# Shifted up 20 bits, a ue5m3 byte is a float whose exponent is 112 too small.
_UE5M3 = (np.arange(255, dtype=np.uint32) << 20).view(np.float32) * np.float32(2.0**112)
# What each byte of a format stands for; e2m1 pairs are two values.
VALUES = {
    "e4m3": E4M3_VALUES,
    "e5m2": _BYTES.view(ml_dtypes.float8_e5m2).astype(np.float32),
    "e8m0": np.append(np.ldexp(np.float32(1), np.arange(-127, 128)), np.float32(np.nan)),
    "ue5m3": np.append(_UE5M3, np.float32(np.nan)),
}


def e4m3(scale: np.ndarray) -> np.ndarray:
    """Bytes of float32 scales that are not negative, saturating."""
    return np.minimum(scale, np.float32(448)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def ue5m3(scale: np.ndarray) -> np.ndarray:
    """Bytes of float32 scales that are not negative, saturating."""
    midpoints = (_UE5M3[1:] + _UE5M3[:-1]) / 2
    byte = np.searchsorted(midpoints, scale, side="left")
    return (byte + ((byte % 2 == 1) & np.isin(scale, midpoints))).astype(np.uint8)


def e2m1(product: np.ndarray, random: np.ndarray | None, sum_dtype: type = np.float32) -> np.ndarray:
    """Codes of float32 products, nearest-even or with each one's random byte added in `sum_dtype`; a NaN is 7."""
    magnitude = np.abs(product)
    if random is None:
        codes = np.searchsorted(E2M1_MIDPOINTS, magnitude, side="left")
        codes += (codes % 2 == 1) & np.isin(magnitude, E2M1_MIDPOINTS)
    else:
        step = np.where(magnitude >= 4, np.float32(2), np.where(magnitude >= 2, np.float32(1), np.float32(0.5)))
        share = random * np.float32(2**-8) * step  # the product is exact
        codes = np.searchsorted(_E2M1, magnitude.astype(sum_dtype) + share, side="right") - 1
    signed = codes.astype(np.uint8) | np.signbit(product).view(np.uint8) << 3
    return np.where(np.isnan(product), np.uint8(7), signed)


@np.errstate(all="ignore")
def rotate(values: np.ndarray, sign_mask: int, strides: tuple[int, ...], turned: bool) -> np.ndarray:
    """The randomised Hadamard transform of every 16 elements of a line, float32, four times too long."""
    flip = np.array([-1 if sign_mask >> i & 1 else 1 for i in range(BLOCK)], np.float32)
    r = values.reshape(-1, BLOCK) * flip
    for stride in strides:
        pairs = r.reshape(-1, BLOCK // (2 * stride), 2, stride)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        r = np.stack([a + b, b - a if turned else a - b], axis=2).reshape(-1, BLOCK)
    return r.reshape(values.shape)


def unpacked(data: np.ndarray) -> np.ndarray:
    """(..., n) packed bytes → (..., 2n) codes, the even element from the low nibble."""
    return np.stack((data & 15, data >> 4), axis=-1).reshape(*data.shape[:-1], -1)


def format_of(name: str, declared: str = "") -> str:
    """The format of a field's bytes, as it declares or else its name says; empty for a field of numbers."""
    of_name = {"data": "e2m1x2", "scale_inv": "e4m3"}
    return declared or next((format for kind, format in of_name.items() if name.endswith(kind)), "")


def decoded(name: str, entry: np.generic, declared: str = "") -> str:
    """One entry of a field, its bits and what they mean: `0x5A = e2m1 -1, 3`. declared: the field's `format`"""
    bits = int.from_bytes(entry.tobytes(), "little")
    spelled, format = f"0x{bits:0{2 * entry.dtype.itemsize}X}", format_of(name, declared)
    if format == "e2m1x2":
        return f"{spelled} = e2m1 {E2M1_VALUES[bits & 15]:g}, {E2M1_VALUES[bits >> 4]:g}"
    if format:
        return f"{spelled} = {format} {VALUES[format][bits]:g}"
    return f"{spelled} = {float(entry):.9g}"
