"""Float formats of approximate instructions: rounding, the step to the next value, flushing. Of NumPy or CuPy.

Bits are unsigned arrays. A step counts values in their order, in which -0 and +0 are one. Between float32 and float64
the subnormals go by integers, because CuPy compiles its conversions with -ftz=true, and takes each of them for a zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

Array = Any


@dataclass(frozen=True)
class Float:
    """exponent, fraction: bits; nan: the pattern of a NaN result"""

    name: str
    bits: int
    fraction: int
    nan: int

    @property
    def infinity(self) -> int:
        return (1 << self.bits - 1) - (1 << self.fraction)

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1

    def unsigned(self, xp: ModuleType) -> Any:
        return xp.uint32 if self.bits == 32 else xp.uint16

    def values(self, xp: ModuleType, bits: Array) -> Array:
        """float64"""
        if self.name == "f16":
            return bits.view(xp.float16).astype(xp.float64)
        return _of_f32(xp, bits if self.name == "f32" else bits.astype(xp.uint32) << 16)

    def rounded(self, xp: ModuleType, values: Array) -> Array:
        """Bits of float64 values, to nearest even; NaN is the one pattern."""
        bits = _to_f32(xp, values) if self.bits == 32 else self._narrow(xp, values)
        return xp.where(xp.isnan(values), self.unsigned(xp)(self.nan), bits)

    def _narrow(self, xp: ModuleType, values: Array) -> Array:
        """By way of float32 rounded to odd, whose last bit tells on which side of a tie the value lies."""
        bits = _to_f32(xp, values)
        back = _of_f32(xp, bits)
        inexact = xp.isfinite(values) & (back != values) & (bits & 1 == 0)
        outwards = xp.abs(back) < xp.abs(values)
        bits = xp.where(inexact, xp.where(outwards, bits + 1, bits - 1), bits).astype(xp.uint32)
        if self.name == "f16":
            return bits.view(xp.float32).astype(xp.float16).view(xp.uint16)
        return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(xp.uint16)

    def order(self, xp: ModuleType, bits: Array) -> Array:
        """Integers that order as the values do, int64."""
        magnitude = (bits & self.unsigned(xp)(self.sign - 1)).astype(xp.int64)
        return xp.where(bits >= self.sign, -magnitude, magnitude)

    def of_order(self, xp: ModuleType, order: Array) -> Array:
        """The bits behind `order`; +0 for 0."""
        bits = xp.where(order < 0, self.sign - order, order)
        return bits.astype(self.unsigned(xp))

    def flushed(self, xp: ModuleType, bits: Array) -> Array:
        """Subnormals as zeros of their sign."""
        unsigned = self.unsigned(xp)
        return xp.where(bits & unsigned(self.infinity), bits, bits & unsigned(self.sign)).astype(unsigned)


_LEAST_NORMAL, _SUBNORMAL = 2.0**-126, 2.0**-149


def _of_f32(xp: ModuleType, bits: Array) -> Array:
    """float64 of bits of float32."""
    small = (bits & 0x7FFFFF).astype(xp.float64) * _SUBNORMAL
    small = xp.where(bits >> 31 != 0, -small, small)
    return xp.where(bits & 0x7F800000 == 0, small, bits.view(xp.float32).astype(xp.float64))


def _to_f32(xp: ModuleType, values: Array) -> Array:
    """Bits of float64 values as float32, to nearest even."""
    small = xp.abs(values) < _LEAST_NORMAL
    count = xp.rint(xp.abs(xp.where(small, values, 0.0)) / _SUBNORMAL).astype(xp.uint32)
    signed = count | xp.signbit(values).astype(xp.uint32) << 31
    return xp.where(small, signed, values.astype(xp.float32).view(xp.uint32)).astype(xp.uint32)


F32 = Float("f32", 32, 23, 0x7FFFFFFF)
F16 = Float("f16", 16, 10, 0x7FFF)
BF16 = Float("bf16", 16, 7, 0x7FFF)
