"""Elementary functions in float64, to a few parts in 10^16, of additions, multiplications and divisions alone.

IEEE 754 says what these give, so that a CPU with NumPy and a GPU with CuPy have the same bits, which no library's
`exp2` promises. A table of what a chip does beside them therefore holds everywhere. The series are Taylor's; pi/2 is
cut in two parts, of which the first has 33 bits, so that small multiples of it are exact.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

Values = Any  # float64, of NumPy or CuPy

LN2, LOG2_E = 0.6931471805599453, 1.4426950408889634
PI_2 = 1.5707963267948966
_PI_2_HIGH, _PI_2_LOW = 1.5707963267341256, 6.077100506506192e-11
LARGEST_ANGLE = 200 * PI_2  # 100 pi; beyond it PTX promises nothing about a sine


def exp2(xp: ModuleType, x: Values) -> Values:
    """2^x, clipped beyond 2^-300 and 2^300."""
    x = xp.clip(x, -300.0, 300.0)
    whole = xp.rint(x)
    rest, term, total = x - whole, xp.ones_like(x), xp.ones_like(x)
    for k in range(1, 15):
        term = term * rest * LN2 / k
        total = total + term
    exponent = xp.where(xp.isnan(whole), 0.0, whole).astype(xp.int32)
    return xp.ldexp(total, exponent)


def log2(xp: ModuleType, x: Values) -> Values:
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


def sine(xp: ModuleType, x: Values, quarters: int = 0) -> Values:
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


def cosine(xp: ModuleType, x: Values) -> Values:
    """The cosine of x; NaN beyond LARGEST_ANGLE."""
    return sine(xp, x, 1)


_TANH = (1.0, -1.0 / 3, 2.0 / 15, -17.0 / 315, 62.0 / 2835, -1382.0 / 155925)


def tanh(xp: ModuleType, x: Values) -> Values:
    """The hyperbolic tangent."""
    small = xp.abs(x) < 0.0625
    square, series = xp.where(small, x * x, 0.0), xp.zeros_like(x)
    for coefficient in reversed(_TANH):
        series = series * square + coefficient
    power = exp2(xp, xp.abs(x) * (-2 * LOG2_E))
    found = (1 - power) / (1 + power)
    return xp.where(small, x * series, xp.where(x < 0, -found, found))
