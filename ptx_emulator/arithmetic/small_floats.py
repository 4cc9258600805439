"""The 8-bit and 4-bit floating-point formats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptx_emulator.arithmetic.rounding import NAN_F16, canonical
from ptx_emulator.registers import F16, F32, F64, U32, Bits

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
