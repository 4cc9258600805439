"""Casts as wrong kernels do them.

`changed_steps` puts them into the replayed steps of a recipe, `changed_blocks` into its oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from harness.expected.formats import E2M1_MIDPOINTS, E2M1_VALUES, E4M3_VALUES, e2m1, e4m3

_NAN_BYTE = 0x7F
_SMALLEST, _SMALLEST_NORMAL = np.float32(2**-9), np.float32(2**-6)  # of e4m3

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


def _signed(magnitude: np.ndarray, product: np.ndarray, nan: np.ndarray | int = 7) -> np.ndarray:
    codes = magnitude.astype(np.uint8) | np.signbit(product).view(np.uint8) << 3
    return np.where(np.isnan(product), np.asarray(nan, np.uint8), codes)


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
# f32->e4m3: scales, never negative → bytes
# =====================================================================================================================


def _e4m3_between(choose: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> Callable:
    """A saturating cast. choose: whether the upper neighbour is taken, of the scale and both neighbours' values"""

    def cast(scale: np.ndarray) -> np.ndarray:
        bounded = np.clip(scale, 0, np.float32(448))
        low = np.searchsorted(E4M3_VALUES[:_NAN_BYTE], bounded, side="right") - 1
        low = np.where(np.isnan(scale), 0, low)
        up = np.minimum(low + 1, 0x7E)
        upper = (bounded > E4M3_VALUES[low]) & choose(bounded, E4M3_VALUES[low], E4M3_VALUES[up])
        return np.where(np.isnan(scale), np.uint8(_NAN_BYTE), low + upper).astype(np.uint8)

    return cast


def _nearest(tie: Callable[[np.ndarray], np.ndarray | bool]) -> Callable:
    """tie: whether the upper neighbour is taken of a scale in the middle, of the lower neighbour's value"""

    def choose(scale: np.ndarray, low: np.ndarray, up: np.ndarray) -> np.ndarray:
        middle = (low + up) / 2
        return (scale > middle) | ((scale == middle) & tie(low))

    return _e4m3_between(choose)


def _is_even(value: np.ndarray) -> np.ndarray:
    return np.searchsorted(E4M3_VALUES[:_NAN_BYTE], value) % 2 == 0


def _changed_byte(change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """The right cast of scales that may be NaN, changed."""

    def cast(scale: np.ndarray) -> np.ndarray:
        right = np.where(np.isnan(scale), np.uint8(_NAN_BYTE), e4m3(np.where(np.isnan(scale), 0, scale)))
        return change(right.astype(np.int64), scale).astype(np.uint8)

    return cast


def _wrapped(scale: np.ndarray) -> np.ndarray:
    """Bytes that go on counting beyond 448, as of a cast by integer arithmetic that never saturates."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(scale), scale, np.float32(2**15)))  # 0.5 <= mantissa < 1
    return np.rint(mantissa.astype(np.float64) * 16).astype(np.int64) + ((exponent.astype(np.int64) + 5) << 3)


def _of_two(scale: np.ndarray, rounded: Callable) -> np.ndarray:
    with np.errstate(all="ignore"):
        return e4m3(np.where(scale > 0, np.exp2(rounded(np.log2(scale))), 0).astype(np.float32))


SCALE_CASTS = (
    Way("tie direction of the scale", "a scale exactly between two e4m3 values went to the odd byte",
        _nearest(_is_even)),
    Way("tie direction of the scale", "a scale exactly between two e4m3 values went up", _nearest(lambda low: True)),
    Way("tie direction of the scale", "a scale exactly between two e4m3 values went down", _nearest(lambda low: False)),
    Way("scale truncated", "scales were cut to the e4m3 value below, not rounded to nearest",
        _e4m3_between(lambda scale, low, up: scale == np.inf)),
    Way("scale rounded up", "scales went to the e4m3 value above, not to the nearest",
        _e4m3_between(lambda scale, low, up: scale > low)),
    Way("missing saturation of the scale", "the scale became NaN instead of 448",
        _changed_byte(lambda right, scale: np.where(scale > 464, _NAN_BYTE, right))),
    Way("missing saturation of the scale", "every scale above 448 became NaN",
        _changed_byte(lambda right, scale: np.where(scale > 448, _NAN_BYTE, right))),
    Way("missing saturation of the scale", "bytes ran over beyond 448",
        _changed_byte(lambda right, scale: np.where(scale > 464, _wrapped(scale) & 0xFF, right))),
    Way("missing saturation of the scale", "bytes ran over beyond 448, without a sign",
        _changed_byte(lambda right, scale: np.where(scale > 464, _wrapped(scale) & 0x7F, right))),
    Way("missing saturation of the scale", "scales above 448 became 0",
        _changed_byte(lambda right, scale: np.where(scale > 464, 0, right))),
    Way("scale saturates too early", "scales above 256 gave 256", lambda scale: e4m3(np.minimum(scale, 256))),
    Way("scale saturates too early", "scales above 240 gave 240", lambda scale: e4m3(np.minimum(scale, 240))),
    Way("small scales flushed to 0", "scales below 2^-6, which are subnormal in e4m3, became 0",
        _changed_byte(lambda right, scale: np.where(scale < _SMALLEST_NORMAL, 0, right))),
    Way("small scales flushed to 0", "scales whose byte is subnormal in e4m3 became 0",
        _changed_byte(lambda right, scale: np.where(right < 8, 0, right))),
    Way("floor under the scale", "no scale is below 2^-9, and it may be 0",
        lambda scale: e4m3(np.fmax(scale, _SMALLEST))),
    Way("floor under the scale", "no scale is below 2^-6, and it may be less",
        lambda scale: e4m3(np.fmax(scale, _SMALLEST_NORMAL))),
    Way("1-ulp scale", "every scale byte is one more than the right one",
        _changed_byte(lambda right, scale: np.where((right > 0) & (right < 0x7E), right + 1, right))),
    Way("1-ulp scale", "every scale byte is one less than the right one",
        _changed_byte(lambda right, scale: np.where((right > 0) & (right < _NAN_BYTE), right - 1, right))),
    Way("scale a power of two", "scales went to the power of two above", lambda scale: _of_two(scale, np.ceil)),
    Way("scale a power of two", "scales went to the power of two below", lambda scale: _of_two(scale, np.floor)),
    Way("NaN scale", "a scale that is NaN gave 0", _changed_byte(lambda right, s: np.where(np.isnan(s), 0, right))),
    Way("NaN scale", "a scale that is NaN gave 448",
        _changed_byte(lambda right, s: np.where(np.isnan(s), 0x7E, right))),
)  # fmt: skip
