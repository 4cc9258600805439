"""Casts as wrong kernels do them.

`changed_steps` puts them into the replayed steps of a recipe, `changed_blocks` into its oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from harness.expected.formats import E2M1_MIDPOINTS, E2M1_VALUES, VALUES, e2m1, e4m3, ue5m3

TIES = "tie direction"
SIGNS = frozenset({"sign dropped", "sign inverted"})  # in a part of a block, a transform may turn them as well


class Way(NamedTuple):
    """A cause, what exactly is done otherwise, and the function that does it, if one function does."""

    name: str
    explanation: str
    function: Callable[..., np.ndarray] | None


# =====================================================================================================================
# f32->e2m1: products → codes
# =====================================================================================================================


def with_ties(upward: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A cast that takes a tie to the greater magnitude where `upward` says so. upward: (n, 7) bool of (n,) products"""

    def cast(product: np.ndarray) -> np.ndarray:
        flat = product.reshape(-1)
        magnitude = np.abs(flat)[:, None]
        ups = np.broadcast_to(upward(flat), (flat.size, E2M1_MIDPOINTS.size))
        crossed = (magnitude > E2M1_MIDPOINTS) | ((magnitude == E2M1_MIDPOINTS) & ups)
        return _signed(crossed.sum(axis=1), flat).reshape(product.shape)

    return cast


_TO_EVEN = np.arange(E2M1_MIDPOINTS.size) % 2 == 1


def flipped_ties(flips: set[tuple[int, bool]]) -> Callable[[np.ndarray], np.ndarray]:
    """The cast to nearest-even but for some ties. flips: numbers of midpoints, and whether of negative products"""
    table = np.array([_TO_EVEN, _TO_EVEN])
    for midpoint, negative in flips:
        table[int(negative), midpoint] ^= True
    return with_ties(lambda product: table[np.signbit(product).astype(int)])


def _signed(magnitude: np.ndarray, product: np.ndarray) -> np.ndarray:
    codes = magnitude.astype(np.uint8) | np.signbit(product).view(np.uint8) << 3
    return np.where(np.isnan(product), np.uint8(7), codes)


def _toward_zero(product: np.ndarray) -> np.ndarray:
    return _signed(np.searchsorted(E2M1_VALUES[:8], np.abs(product), side="right") - 1, product)


def _away_from_zero(product: np.ndarray) -> np.ndarray:
    return _signed(np.minimum(np.searchsorted(E2M1_VALUES[:8], np.abs(product), side="left"), 7), product)


def _by_sign(negative: Callable, positive: Callable) -> Callable[[np.ndarray], np.ndarray]:
    return lambda product: np.where(np.signbit(product), negative(product), positive(product))


def _right(product: np.ndarray) -> np.ndarray:
    return e2m1(product, None)


def _of_nan(code: Callable[[np.ndarray], np.ndarray | int]) -> Callable[[np.ndarray], np.ndarray]:
    def cast(product: np.ndarray) -> np.ndarray:
        sign = np.signbit(product).view(np.uint8) << 3
        return np.where(np.isnan(product), np.uint8(0) + code(sign), _right(product)).astype(np.uint8)

    return cast


def _changed_code(change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda product: change(_right(product), product).astype(np.uint8)


def _beyond(least: float, code: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return _changed_code(lambda codes, product: np.where(np.abs(product) >= np.float32(least), code(codes), codes))


def _saturating(limit: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda product: _right(np.clip(product, -np.float32(limit), np.float32(limit)))


CODE_CASTS = (
    Way(TIES, "a product exactly between two e2m1 values went away from zero", with_ties(lambda p: True)),
    Way(TIES, "a product exactly between two e2m1 values went toward zero", with_ties(lambda p: False)),
    Way(TIES, "a product exactly between two e2m1 values went up", with_ties(lambda p: ~np.signbit(p)[:, None])),
    Way(TIES, "a product exactly between two e2m1 values went down", with_ties(lambda p: np.signbit(p)[:, None])),
    Way(TIES, "a product exactly between two e2m1 values went to the odd code", with_ties(lambda p: ~_TO_EVEN)),
    Way("codes truncated", "products were cut toward zero, not rounded to nearest", _toward_zero),
    Way("codes rounded away from zero", "products went to the next greater magnitude", _away_from_zero),
    Way("codes rounded down", "products went to the next lower value", _by_sign(_away_from_zero, _toward_zero)),
    Way("codes rounded up", "products went to the next higher value", _by_sign(_toward_zero, _away_from_zero)),
    Way("sign of zero dropped", "-0.0 gave the code of +0.0",
        _changed_code(lambda codes, p: np.where(p == 0, codes & 7, codes))),
    Way("sign of zero dropped", "whatever is rounded to zero gave the code of +0.0",
        _changed_code(lambda codes, p: np.where(codes == 8, 0, codes))),
    Way("sign dropped", "negative products gave the codes of their magnitudes",
        _changed_code(lambda codes, p: np.where(np.isnan(p), codes, codes & 7))),
    Way("sign inverted", "every code has the other sign", _changed_code(lambda codes, p: codes ^ 8)),
    Way("NaN code", "a NaN gave the code of 0", _of_nan(lambda sign: 0)),
    Way("NaN code", "a NaN gave a zero of its sign", _of_nan(lambda sign: sign)),
    Way("NaN code", "a NaN gave 6 with its sign", _of_nan(lambda sign: sign | 7)),
    Way("NaN code", "a NaN gave -6", _of_nan(lambda sign: 15)),
    Way("NaN code", "a NaN gave -0", _of_nan(lambda sign: 8)),
    Way("no saturation", "products beyond 7 became zeros of their sign", _beyond(7, lambda codes: codes & 8)),
    Way("no saturation", "products beyond 7 ran over into the sign", _beyond(7, lambda codes: (codes & 8) ^ 8)),
    Way("no saturation", "products beyond 5 became zeros of their sign",
        _changed_code(lambda codes, p: np.where(np.abs(p) > 5, codes & 8, codes))),
    Way("saturates too early", "products beyond 4 gave 4", _saturating(4)),
)  # fmt: skip


# =====================================================================================================================
# f32->e4m3 or ue5m3: scales, never negative → bytes
# =====================================================================================================================


class _Format(NamedTuple):
    """A format of scales, of eight steps a binade.

    name: as in a flag; right: the cast that the contract has; nan: the lowest byte that is no number; early: values at
    which kernels for other formats or bounds saturate
    """

    name: str
    right: Callable[[np.ndarray], np.ndarray]
    nan: int
    early: tuple[int, ...]

    @property
    def values(self) -> np.ndarray:
        return VALUES[self.name][: self.nan]

    @property
    def largest(self) -> np.float32:
        return self.values[-1]

    def between(self, choose: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> Callable:
        """A saturating cast. choose: whether the upper neighbour is taken, of the scale and both neighbours' values"""

        def cast(scale: np.ndarray) -> np.ndarray:
            bounded = np.clip(scale, 0, self.largest)
            low = np.searchsorted(self.values, bounded, side="right") - 1
            low = np.where(np.isnan(scale), 0, low)
            up = np.minimum(low + 1, self.nan - 1)
            upper = (bounded > self.values[low]) & choose(bounded, self.values[low], self.values[up])
            return np.where(np.isnan(scale), np.uint8(self.nan), low + upper).astype(np.uint8)

        return cast

    def nearest(self, tie: Callable[[np.ndarray], np.ndarray | bool]) -> Callable:
        """tie: whether the upper neighbour is taken of a scale in the middle, of the lower neighbour's value"""

        def choose(scale: np.ndarray, low: np.ndarray, up: np.ndarray) -> np.ndarray:
            middle = (low + up) / 2
            return (scale > middle) | ((scale == middle) & tie(low))

        return self.between(choose)

    def is_even(self, value: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.values, value) % 2 == 0

    def changed(self, change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        """The right cast of scales that may be NaN, changed."""

        def cast(scale: np.ndarray) -> np.ndarray:
            right = np.where(np.isnan(scale), np.uint8(self.nan), self.right(np.where(np.isnan(scale), 0, scale)))
            return change(right.astype(np.int64), scale).astype(np.uint8)

        return cast

    def wrapped(self, scale: np.ndarray) -> np.ndarray:
        """Bytes that go on counting beyond the largest, as of a cast by integer arithmetic that never saturates."""
        bias = 15 if self.name == "ue5m3" else 7
        mantissa, exponent = np.frexp(np.where(np.isfinite(scale), scale, np.float32(2.0 ** (2 * bias + 1))))
        return np.rint(mantissa.astype(np.float64) * 16).astype(np.int64) + (
            (exponent.astype(np.int64) + bias - 2) << 3
        )

    def of_two(self, scale: np.ndarray, rounded: Callable) -> np.ndarray:
        with np.errstate(all="ignore"):
            return self.right(np.where(scale > 0, np.exp2(rounded(np.log2(scale))), 0).astype(np.float32))

    def ways(self) -> tuple[Way, ...]:
        """What wrong casts to this format do."""
        name, nan, largest = self.name, self.nan, self.largest
        least, normal = self.values[1], self.values[8]
        beyond = self.largest + (self.largest - self.values[-2]) / 2  # from here on the largest is not the nearest

        def saturating(limit: int) -> Callable[[np.ndarray], np.ndarray]:
            return lambda scale: self.right(np.minimum(scale, np.float32(limit)))

        def floored(limit: np.float32) -> Callable[[np.ndarray], np.ndarray]:
            return lambda scale: self.right(np.fmax(scale, limit))

        tie = "tie direction of the scale", f"a scale exactly between two {name} values went"
        unbounded, early, flushed = "missing saturation of the scale", "scale saturates too early", SMALL_FLUSHED
        ways = [
            Way(tie[0], f"{tie[1]} to the odd byte", self.nearest(self.is_even)),
            Way(tie[0], f"{tie[1]} up", self.nearest(lambda low: True)),
            Way(tie[0], f"{tie[1]} down", self.nearest(lambda low: False)),
            Way("scale truncated", f"scales were cut to the {name} value below, not rounded to nearest",
                self.between(lambda scale, low, up: scale == np.inf)),
            Way("scale rounded up", f"scales went to the {name} value above, not to the nearest",
                self.between(lambda scale, low, up: scale > low)),
            Way(unbounded, f"the scale became NaN instead of {largest:g}",
                self.changed(lambda right, scale: np.where(scale > beyond, nan, right))),
            Way(unbounded, f"every scale above {largest:g} became NaN",
                self.changed(lambda right, scale: np.where(scale > largest, nan, right))),
            Way(unbounded, f"bytes ran over beyond {largest:g}",
                self.changed(lambda right, scale: np.where(scale > beyond, self.wrapped(scale) & 0xFF, right))),
            Way(unbounded, f"bytes ran over beyond {largest:g}, without a sign",
                self.changed(lambda right, scale: np.where(scale > beyond, self.wrapped(scale) & 0x7F, right))),
            Way(unbounded, f"scales above {largest:g} became 0",
                self.changed(lambda right, scale: np.where(scale > beyond, 0, right))),
            *(Way(early, f"scales above {limit} gave {limit}", saturating(limit)) for limit in self.early),
            Way(flushed, f"scales below {_power(normal)}, which are subnormal in {name}, became 0",
                self.changed(lambda right, scale: np.where(scale < normal, 0, right))),
            Way(flushed, f"scales whose byte is subnormal in {name} became 0",
                self.changed(lambda right, scale: np.where(right < 8, 0, right))),
            Way("floor under the scale", f"no scale is below {_power(least)}, and it may be 0", floored(least)),
            Way("floor under the scale", f"no scale is below {_power(normal)}, and it may be less", floored(normal)),
            Way("1-ulp scale", "every scale byte is one more than the right one",
                self.changed(lambda right, scale: np.where((right > 0) & (right < nan - 1), right + 1, right))),
            Way("1-ulp scale", "every scale byte is one less than the right one",
                self.changed(lambda right, scale: np.where((right > 0) & (right < nan), right - 1, right))),
            Way("scale a power of two", "scales went to the power of two above", lambda v: self.of_two(v, np.ceil)),
            Way("scale a power of two", "scales went to the power of two below", lambda v: self.of_two(v, np.floor)),
            Way("NaN scale", "a scale that is NaN gave 0",
                self.changed(lambda right, scale: np.where(np.isnan(scale), 0, right))),
            Way("NaN scale", f"a scale that is NaN gave {largest:g}",
                self.changed(lambda right, scale: np.where(np.isnan(scale), nan - 1, right))),
        ]  # fmt: skip
        return tuple(ways)


def _power(value: np.float32) -> str:
    return f"2^{int(np.log2(value))}"


SMALL_FLUSHED = "small scales flushed to 0"
SCALE_CASTS = {
    found.name: found.ways()
    for found in (_Format("e4m3", e4m3, 0x7F, (256, 240)), _Format("ue5m3", ue5m3, 0xFF, (65536, 57344, 448, 256, 240)))
}
