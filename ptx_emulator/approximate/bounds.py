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

from ptx_emulator.approximate import elementary
from ptx_emulator.approximate.formats import BF16, F16, F32, Float

Array = Any
Formula = Callable[..., Array]


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
    near = xp.where(xp.abs(x) <= 4 * elementary.PI_2, 2.0**-20.5, 2.0**-14.7)
    return xp.where(xp.abs(x) <= elementary.LARGEST_ANGLE, near, 2.0)


def _sine(xp: ModuleType, x: Array) -> Array:
    found = elementary.sine(xp, xp.where(xp.abs(x) <= elementary.LARGEST_ANGLE, x, 0.0))
    return xp.where(x == 0, x, xp.where(xp.isfinite(x), found, xp.nan))


def _cosine(xp: ModuleType, x: Array) -> Array:
    found = elementary.cosine(xp, xp.where(xp.abs(x) <= elementary.LARGEST_ANGLE, x, elementary.PI_2))
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
    "ex2.approx": _Of(F32, 1, elementary.exp2, steps=2, least=0.0),
    "lg2.approx": _Of(F32, 1, elementary.log2, _of_log2),
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
    found["tanh.approx.f32"] = _Of(F32, 1, elementary.tanh, _relative(2.0**-11), **ends)
    found["tanh.approx.f16"] = _Of(F16, 1, elementary.tanh, _absolute(2.0**-10.987), **ends)
    found["tanh.approx.bf16"] = _Of(BF16, 1, elementary.tanh, _absolute(2.0**-8), **ends)
    found["ex2.approx.f16"] = _Of(F16, 1, elementary.exp2, _relative(2.0**-9.9), least=0.0)
    found["ex2.approx.ftz.bf16"] = _Of(BF16, 1, elementary.exp2, _relative(2.0**-7), flushes=True, least=0.0)
    return found


# Mnemonic → what it may give; those of `x2` are two of the same.
APPROXIMATE = _table()
