"""Exactly rounded float conversions and sums, and the formats of 8 and 4 bits. `bits` are patterns in unsigned arrays,
`values` float arrays.

Rounding to odd sets the last bit of an inexact result. Such a float64 may be rounded again to a narrower format, with
the result of one rounding of the exact value, because the odd last bit tells on which side of a tie that lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ptx_emulator.registers import F16, F32, F64, I64, U16, U32, U64, Bits

NAN_F16 = U16(0x7FFF)  # NVIDIA's NaN results, whatever the operands' payload
NAN_BF16 = U16(0x7FFF)
NAN_F32 = U32(0x7FFFFFFF)
NAN_F64 = U64(0xFFF8000000000000)

INF_F16 = 0x7C00
INF_BF16 = 0x7F80


def canonical(values: np.ndarray, nan: np.unsignedinteger) -> Bits:
    """The bits of `values`, with every NaN replaced by `nan`."""
    bits = values.view(type(nan))
    is_nan = np.isnan(values)
    return np.where(is_nan, nan, bits) if is_nan.any() else bits


def flush_f32(bits: Bits) -> Bits:
    """Flush subnormal float32 to zeros of the same sign."""
    return np.where(bits & U32(0x7F800000), bits, bits & U32(0x80000000))


def flush_f16(bits: Bits) -> Bits:
    """Flush subnormal f16 to zeros of the same sign."""
    return np.where(bits & U16(INF_F16), bits, bits & U16(0x8000))


def to_odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b of float64 arrays, rounded to odd."""
    total = a + b
    from_b = total - a
    error = (a - (total - from_b)) + (b - from_b)
    inexact = np.abs(error) > 0  # False for NaN, which an infinity gives
    if not inexact.any():
        return total
    bits = total.view(I64)
    outwards = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact & (bits & 1 == 0), bits + outwards, bits).view(F64)


_SPLIT = F64(2**27 + 1)
_LEAST_EXACT, _LARGEST_EXACT = 2.0**-250, 2.0**250  # no part of a product of two such leaves the normal numbers


def fma_f64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c, rounded once: by Boldo and Melquiond's sum of three terms, and by fractions for what is far from 1.

    The product is two floats by Dekker's splitting; of the three terms to add, the two small ones are rounded to odd.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    exact = _within(a) & _within(b) & (_within(c) | (c == 0))
    high = a * b
    low = _product_error(a, b, high)
    small, smaller = _two_sum(c, low)
    near, rest = _two_sum(high, small)
    found = np.where(exact, near + to_odd_sum(smaller, rest), high + c)
    far = ~exact & (a != 0) & (b != 0) & np.isfinite(a) & np.isfinite(b)
    if far.any():
        found[far] = [_fma_of_fractions(*terms) for terms in zip(a[far], b[far], c[far], strict=True)]
    return found


def _within(x: np.ndarray) -> np.ndarray:
    return (np.abs(x) >= _LEAST_EXACT) & (np.abs(x) <= _LARGEST_EXACT)


def _product_error(a: np.ndarray, b: np.ndarray, product: np.ndarray) -> np.ndarray:
    a_high, b_high = (_SPLIT * x - (_SPLIT * x - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = a + b
    from_b = total - a
    return total, (a - (total - from_b)) + (b - from_b)


def _fma_of_fractions(a: np.float64, b: np.float64, c: np.float64) -> float:
    if not np.isfinite(c):
        return float(c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def to_odd_f32(values: np.ndarray) -> np.ndarray:
    """Float64 to float32, rounded to odd; `values` may be rounded to odd already."""
    near = values.astype(F32)
    error = values - near
    bits = near.view(U32)
    inexact = (np.abs(error) > 0) & np.isfinite(near) & (bits & U32(1) == 0)
    outwards = np.where((error > 0) == (values > 0), U32(1), U32(0xFFFFFFFF))
    return np.where(inexact, bits + outwards, bits).view(F32)


def f32_directed(values: np.ndarray, mode: str) -> np.ndarray:
    """Float64 to float32 in rounding mode `rn`, `rz`, `rm` or `rp`; `values` may be rounded to odd."""
    near = values.astype(F32)
    if mode == "rn":
        return near
    too_big, too_small = near > values, near < values
    if mode == "rz":
        too_big, too_small = too_big & (values > 0), too_small & (values < 0)
    down = np.where(too_big, np.nextafter(near, F32(-np.inf)), near) if mode in ("rz", "rm") else near
    return np.where(too_small, np.nextafter(near, F32(np.inf)), down) if mode in ("rz", "rp") else down


def f16_from(values: np.ndarray, mode: str = "rn") -> Bits:
    """Float32 or float64 values to f16 patterns, rounded once to nearest-even or (`rz`) toward zero."""
    near = values.astype(F16)
    bits = canonical(near, NAN_F16)
    if mode == "rz":
        with_value = near.astype(values.dtype)
        bits = np.where(np.abs(with_value) > np.abs(values), bits - U16(1), bits)
    return bits


def bf16_from(values: np.ndarray, mode: str = "rn") -> Bits:
    """Float32 values to bf16 patterns, rounded once to nearest-even or (`rz`) toward zero."""
    bits = values.view(U32)
    rounded = bits if mode == "rz" else bits + U32(0x7FFF) + (bits >> U32(16) & U32(1))
    out = (rounded >> U32(16)).astype(U16)
    is_nan = np.isnan(values)
    return np.where(is_nan, NAN_BF16, out) if is_nan.any() else out


def f16_values(bits: Bits) -> np.ndarray:
    """f16 patterns as float32."""
    return bits.view(F16).astype(F32)


def bf16_values(bits: Bits) -> np.ndarray:
    """bf16 patterns as float32."""
    return (bits.astype(U32) << U32(16)).view(F32)


Values = np.ndarray


@dataclass(frozen=True)
class SmallFloat:
    """A format with a sign, and `exponent` and `mantissa` bits.

    largest: code of the largest finite magnitude; nan: code for NaN
    """

    exponent: int
    mantissa: int
    largest: int
    nan: int
    has_infinity: bool = False
    has_nan: bool = True

    @property
    def bias(self) -> int:
        """Added to an exponent when stored."""
        return (1 << self.exponent - 1) - 1

    def encode(self, values: Values) -> Bits:
        """Codes of float32 values, uint32: nearest-even, saturating, the sign of zero kept."""
        bits = values.view(U32)
        magnitude = bits & U32(0x7FFFFFFF)
        drop = U32(23 - self.mantissa)
        half_less_one, one = U32((1 << 22 - self.mantissa) - 1), U32(1)
        # Patterns of floats are in order of value, so rounding up carries into the exponent.
        ranks = (magnitude + half_less_one + (magnitude >> drop & one) >> drop) - U32(127 - self.bias << self.mantissa)
        steps = magnitude.view(F32) * F32(2.0 ** (self.bias - 1 + self.mantissa))
        smallest_normal = U32(128 - self.bias << 23)
        subnormal = np.rint(np.minimum(steps, F32(1 << self.mantissa))).astype(U32)
        codes = np.where(magnitude < smallest_normal, subnormal, np.minimum(ranks, U32(self.largest)))
        signed = codes | (bits >> U32(31)) << U32(self.exponent + self.mantissa)
        return np.where(magnitude > U32(0x7F800000), U32(self.nan), signed)

    def decode_table(self) -> np.ndarray:
        """The f16 pattern of every code, which is exact."""
        width = 1 + self.exponent + self.mantissa
        table = np.zeros(1 << width, F64)
        for code in range(1 << width - 1):
            power, fraction = code >> self.mantissa, code & (1 << self.mantissa) - 1
            significand = fraction + (1 << self.mantissa if power else 0)
            table[code] = significand * 2.0 ** (max(power, 1) - self.bias - self.mantissa)
            if code > self.largest and self.has_nan:
                table[code] = np.inf if self.has_infinity and code == self.largest + 1 else np.nan
        half = len(table) // 2
        table[half:] = -table[:half]
        return canonical(table.astype(F16), NAN_F16)


E2M1 = SmallFloat(exponent=2, mantissa=1, largest=0x7, nan=0x7, has_nan=False)
E4M3 = SmallFloat(exponent=4, mantissa=3, largest=0x7E, nan=0x7F)
E5M2 = SmallFloat(exponent=5, mantissa=2, largest=0x7B, nan=0x7F, has_infinity=True)
UE5M3 = SmallFloat(exponent=5, mantissa=3, largest=0xFE, nan=0xFF)  # of magnitudes: a byte has no room for a sign
