"""The results that each approximate instruction may give: bounds around a formula, and the results that PTX fixes.

Errors and special values are those of the PTX ISA (9.2), "Floating Point Instructions". A bound in steps counts values
of the format on either side of the nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ptx_emulator.approximate.formats import BF16, F16, F32, Float

Array = Any
Formula = Callable[..., Array]

# ---- elementary functions -------------------------------------------------------------------------------------------

# In float64, to a few parts in 10^16, of additions, multiplications and divisions alone. IEEE 754 says what these give,
# so that a CPU with NumPy and a GPU with CuPy have the same bits, which no library's `exp2` promises. A table of what a
# chip does beside them therefore holds everywhere. The series are Taylor's; pi/2 is cut in two parts, the first of
# 33 bits, so that small multiples of it are exact.
LN2, LOG2_E = 0.6931471805599453, 1.4426950408889634
PI_2 = 1.5707963267948966
_PI_2_HIGH, _PI_2_LOW = 1.5707963267341256, 6.077100506506192e-11
LARGEST_ANGLE = 200 * PI_2  # 100 pi; beyond it PTX promises nothing about a sine


def exp2(xp: ModuleType, x: Array) -> Array:
    """2^x, clipped beyond 2^-300 and 2^300."""
    x = xp.clip(x, -300.0, 300.0)
    whole = xp.rint(x)
    rest, term, total = x - whole, xp.ones_like(x), xp.ones_like(x)
    for k in range(1, 15):
        term = term * rest * LN2 / k
        total = total + term
    exponent = xp.where(xp.isnan(whole), 0.0, whole).astype(xp.int32)
    return xp.ldexp(total, exponent)


def log2(xp: ModuleType, x: Array) -> Array:
    """log2 of what is positive and finite; NaN below 0."""
    positive = (x > 0) & xp.isfinite(x)
    mantissa, exponent = xp.frexp(xp.where(positive, x, 1.0))
    small = mantissa < 0.7071067811865476
    mantissa = xp.where(small, mantissa * 2, mantissa)
    exponent = exponent.astype(xp.float64) - small
    ratio = (mantissa - 1) / (mantissa + 1)
    square, total = ratio * ratio, xp.zeros_like(x)
    for k in range(23, 0, -2):
        total = total * square + 1.0 / k
    found = exponent + total * ratio * 2 / LN2
    special = xp.where(x == 0, -xp.inf, xp.where(x > 0, x, xp.nan))
    return xp.where(positive, found, special)


def sine(xp: ModuleType, x: Array, quarters: int = 0) -> Array:
    """The sine of x + quarters * pi / 2; NaN beyond LARGEST_ANGLE."""
    near = xp.where(xp.abs(x) <= LARGEST_ANGLE, x, 0.0)
    count = xp.rint(near / PI_2)
    rest = near - count * _PI_2_HIGH - count * _PI_2_LOW
    square = rest * rest
    odd, even = xp.zeros_like(x), xp.zeros_like(x)
    for k in range(9, -1, -1):
        odd, even = odd * -square / ((2 * k + 2) * (2 * k + 3)) + 1, even * -square / ((2 * k + 1) * (2 * k + 2)) + 1
    turn = (count.astype(xp.int64) + quarters) % 4
    found = xp.where(turn % 2 == 0, odd * rest, even)
    found = xp.where(turn >= 2, -found, found)
    return xp.where(xp.abs(x) <= LARGEST_ANGLE, found, xp.nan)


def cosine(xp: ModuleType, x: Array) -> Array:
    """The cosine of x; NaN beyond LARGEST_ANGLE."""
    return sine(xp, x, 1)


_TANH = (1.0, -1.0 / 3, 2.0 / 15, -17.0 / 315, 62.0 / 2835, -1382.0 / 155925)


def tanh(xp: ModuleType, x: Array) -> Array:
    """The hyperbolic tangent."""
    small = xp.abs(x) < 0.0625
    square, series = xp.where(small, x * x, 0.0), xp.zeros_like(x)
    for coefficient in reversed(_TANH):
        series = series * square + coefficient
    power = exp2(xp, xp.abs(x) * (-2 * LOG2_E))
    found = (1 - power) / (1 + power)
    return xp.where(small, x * series, xp.where(x < 0, -found, found))


# ---- bounds ---------------------------------------------------------------------------------------------------------


class Range(NamedTuple):
    """Orders of values, int64: the least, the nearest to the exact one, and the greatest.

    bits: patterns of the nearest; fixed: (n,) bool, where PTX requires exactly these bits
    """

    low: Array
    near: Array
    high: Array
    bits: Array
    fixed: Array


@dataclass(frozen=True)
class Approximation:
    """formula: (xp, *values) → float64; error: (xp, exact, *values) → the greatest distance, NaN where `steps` hold

    least, greatest: ends that no result is beyond
    """

    form: Float
    count: int
    formula: Formula
    error: Formula | None = None
    steps: int = 0
    flushes: bool = False
    least: float = float("-inf")
    greatest: float = float("inf")

    def range(self, xp: ModuleType, *sources: Array) -> Range:
        """sources: bits, of one shape"""
        with np.errstate(all="ignore"):
            return self._range(xp, sources)

    def _range(self, xp: ModuleType, sources: tuple[Array, ...]) -> Range:
        form = self.form
        if self.flushes:
            sources = tuple(form.flushed(xp, each) for each in sources)
        values = [form.values(xp, each) for each in sources]
        exact = self.formula(xp, *values)
        bits = self.rounded(xp, exact)
        near = form.order(xp, bits)
        low, high = near - self.steps, near + self.steps
        if self.error is not None:
            error = self.error(xp, exact, *values)
            ends = self._within(xp, exact, error)
            low, high = (xp.where(xp.isnan(error), step, end) for step, end in zip((low, high), ends, strict=True))
        least, greatest = (form.order(xp, form.rounded(xp, xp.full_like(exact[:1], end)))
                           for end in (self.least, self.greatest))  # fmt: skip
        fixed = xp.isnan(exact) | xp.isinf(form.values(xp, bits))
        if self.error is None:
            fixed = fixed | (near == 0)  # the result underflows
        for value in values:
            fixed = fixed | (value == 0) | ~xp.isfinite(value)
        finite = form.infinity - 1
        low, high = (xp.clip(xp.clip(each, least, greatest), -finite, finite) for each in (low, high))
        return Range(xp.minimum(low, near), near, xp.maximum(high, near), bits, fixed)

    def given(self, xp: ModuleType, order: Array, near: Array) -> Array:
        """The bits of an order, as the instruction writes them.

        near: bits of the nearest, which give a zero its sign
        """
        bits = self.form.of_order(xp, order)
        bits = xp.where(order == 0, near & self.form.unsigned(xp)(self.form.sign), bits)
        return self.form.flushed(xp, bits) if self.flushes else bits

    def rounded(self, xp: ModuleType, values: Array) -> Array:
        """Bits of the nearest to float64 values, flushed where the instruction does."""
        bits = self.form.rounded(xp, values)
        return self.form.flushed(xp, bits) if self.flushes else bits

    def _within(self, xp: ModuleType, exact: Array, error: Array) -> tuple[Array, Array]:
        """The least and the greatest order whose values are no further away."""
        form, ends = self.form, (exact - error, exact + error)
        low, high = (form.order(xp, form.rounded(xp, end)) for end in ends)
        below = form.values(xp, form.of_order(xp, low)) < ends[0]
        above = form.values(xp, form.of_order(xp, high)) > ends[1]
        return low + below, high - above


def _relative(bound: float) -> Formula:
    return lambda xp, exact, *values: xp.abs(exact) * bound


def _absolute(bound: float) -> Formula:
    return lambda xp, exact, *values: xp.full_like(exact, bound)


def _of_log2(xp: ModuleType, exact: Array, x: Array) -> Array:
    return xp.where((x > 0.5) & (x < 2), 2.0**-22, xp.abs(exact) * 2.0**-22)


def _of_angle(xp: ModuleType, exact: Array, x: Array) -> Array:
    """The error of sine and cosine; beyond 100 pi PTX gives none, so the result is only known to be within -1 and 1."""
    near = xp.where(xp.abs(x) <= 4 * PI_2, 2.0**-20.5, 2.0**-14.7)
    return xp.where(xp.abs(x) <= LARGEST_ANGLE, near, 2.0)


def _sine(xp: ModuleType, x: Array) -> Array:
    found = sine(xp, xp.where(xp.abs(x) <= LARGEST_ANGLE, x, 0.0))
    return xp.where(x == 0, x, xp.where(xp.isfinite(x), found, xp.nan))


def _cosine(xp: ModuleType, x: Array) -> Array:
    found = cosine(xp, xp.where(xp.abs(x) <= LARGEST_ANGLE, x, PI_2))
    return xp.where(xp.isfinite(x), found, xp.nan)


def _quotient(xp: ModuleType, x: Array, y: Array) -> Array:
    """The exact value of `div.approx`, which multiplies by 1 / y and takes that as 0 if |y| is beyond 2^126."""
    return xp.where((xp.abs(y) > 2.0**126) & xp.isfinite(y), x * xp.copysign(xp.zeros_like(y), y), x / y)


def _of_quotient(xp: ModuleType, exact: Array, x: Array, y: Array) -> Array:
    """The error of a quotient: 0 where it is 0, infinite where y is subnormal and 1 / y may be infinite, else NaN."""
    zero = (xp.abs(y) > 2.0**126) & xp.isfinite(y)
    return xp.where(zero, 0.0, xp.where(xp.abs(y) < 2.0**-126, xp.inf, xp.nan))


_Of = Approximation
_PLAIN: dict[str, Approximation] = {
    "rcp.approx": _Of(F32, 1, lambda xp, x: 1 / x, steps=1),
    "sqrt.approx": _Of(F32, 1, lambda xp, x: xp.sqrt(x), _relative(2.0**-23)),
    "rsqrt.approx": _Of(F32, 1, lambda xp, x: 1 / xp.sqrt(x), _relative(2.0**-22.9)),
    "ex2.approx": _Of(F32, 1, exp2, steps=2, least=0.0),
    "lg2.approx": _Of(F32, 1, log2, _of_log2),
    "sin.approx": _Of(F32, 1, _sine, _of_angle, least=-1.0, greatest=1.0),
    "cos.approx": _Of(F32, 1, _cosine, _of_angle, least=-1.0, greatest=1.0),
    "div.approx": _Of(F32, 2, _quotient, _of_quotient, steps=2),
    "div.full": _Of(F32, 2, lambda xp, x, y: x / y, steps=2),
}


def _table() -> dict[str, Approximation]:
    found = {}
    for name, plain in _PLAIN.items():
        found[f"{name}.f32"] = plain
        found[f"{name}.ftz.f32"] = Approximation(**{**vars(plain), "flushes": True})
    ends = {"least": -1.0, "greatest": 1.0}
    found["tanh.approx.f32"] = _Of(F32, 1, tanh, _relative(2.0**-11), **ends)
    found["tanh.approx.f16"] = _Of(F16, 1, tanh, _absolute(2.0**-10.987), **ends)
    found["tanh.approx.bf16"] = _Of(BF16, 1, tanh, _absolute(2.0**-8), **ends)
    found["ex2.approx.f16"] = _Of(F16, 1, exp2, _relative(2.0**-9.9), least=0.0)
    found["ex2.approx.ftz.bf16"] = _Of(BF16, 1, exp2, _relative(2.0**-7), flushes=True, least=0.0)
    return found


# Mnemonic → what it may give; those of `x2` are two of the same.
APPROXIMATE = _table()


Values = Any  # float64, of NumPy or CuPy
