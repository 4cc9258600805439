"""Products and divisions as wrong kernels do them, in float32 and rounded where they round, by the cause they show.

`changed_steps` puts them into the replayed steps of a recipe, `changed_blocks` into its oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

from harness.expected.formats import BLOCK
from harness.verify.diagnosis.casts import Way

_FLT_MAX = np.finfo(np.float32).max
_ONE, _SIX = np.float32(1), np.float32(6)
_SIXTH = _ONE / _SIX

SCALE_ORDER = "order of the scale product"
PRODUCT_ORDER, FORMULA_OF_DECODE = "order of the product", "S_dec by another formula"
BLOCK_PART = "amax of a part of the block"


def _bytes(name: str, formula: str, function: Callable[..., np.ndarray]) -> Way:
    return Way(name, f"{formula} gives these bytes", function)


def _codes(name: str, formula: str, function: Callable[..., np.ndarray]) -> Way:
    return Way(name, f"{formula} gives these codes", function)


# =====================================================================================================================
# (block_amax, S_enc) → scale before its cast
# =====================================================================================================================


def _in_float64(amax: np.ndarray, s_enc: np.ndarray) -> np.ndarray:
    return (amax.astype(np.float64) * s_enc / 6).astype(np.float32)


MULTIPLY_FORM = _bytes("multiply instead of divide scale form", "RN(block_amax * RN(S_enc * (1/6)))",
                       lambda amax, s: amax * (s * _SIXTH))  # fmt: skip
DIVIDE_FORM = _bytes("divide instead of multiply scale form", "RN(RN(block_amax / 6) * S_enc)",
                     lambda amax, s: amax / _SIX * s)  # fmt: skip
SCALE_PRODUCTS = (
    _bytes(SCALE_ORDER, "RN(RN(block_amax * S_enc) * (1/6))", lambda amax, s: (amax * s) * _SIXTH),
    _bytes(SCALE_ORDER, "RN(RN(block_amax * S_enc) / 6)", lambda amax, s: (amax * s) / _SIX),
    _bytes(SCALE_ORDER, "RN(block_amax * RN(S_enc / 6))", lambda amax, s: amax * (s / _SIX)),
    _bytes(SCALE_ORDER, "RN(RN(block_amax * (1/6)) * S_enc)", lambda amax, s: (amax * _SIXTH) * s),
    _bytes(SCALE_ORDER, "RN(RN(block_amax / 6) / S_dec)", lambda amax, s: (amax / _SIX) / (_ONE / s)),
    _bytes(SCALE_ORDER, "RN(block_amax / RN(6 * S_dec))", lambda amax, s: amax / (_SIX * (_ONE / s))),
    _bytes("scale product not rounded between", "block_amax * S_enc / 6, rounded once,", _in_float64),
    _bytes("scale not divided by 6", "block_amax * S_enc", lambda amax, s: amax * s),
    _bytes("scale of another greatest code", "block_amax / 4", lambda amax, s: amax / np.float32(4) * s),
    _bytes("scale of another greatest code", "block_amax / 7", lambda amax, s: amax / np.float32(7) * s),
    _bytes("scale of another greatest code", "block_amax / 8", lambda amax, s: amax / np.float32(8) * s),
)


# =====================================================================================================================
# (scale_inv as float32, S_enc, S_dec) → multiplier
# =====================================================================================================================


def _guarded(multiplier: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The multiplier where the scale is not 0, and 0 where it is."""
    return lambda scale, s, d: np.where(scale == 0, np.float32(0), multiplier(scale, s, d))


def _clamped(multiplier: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda scale, s, d: np.fmin(multiplier(scale, s, d), _FLT_MAX)


def _stepped(multiplier: Callable[..., np.ndarray], ulps: int) -> Callable[..., np.ndarray]:
    def of(scale: np.ndarray, s: np.ndarray, d: np.ndarray) -> np.ndarray:
        right = np.asarray(multiplier(scale, s, d), np.float32)
        moved = (right.view(np.int32) + np.int32(ulps)).view(np.float32)
        return np.where((right == 0) | (scale == 0) | ~np.isfinite(moved), right, moved)

    return of


_DIRECT = "direct instead of reciprocal multiplier", "S_enc / scale_inv gives these codes"
_RECIPROCAL = "reciprocal instead of direct multiplier", "1 / (scale_inv * S_dec) gives these codes"
_FOR_DIVISION = "reciprocal for a division"


def _direct(scale: np.ndarray, s: np.ndarray, d: np.ndarray) -> np.ndarray:
    return s / scale


def _reciprocal(scale: np.ndarray, s: np.ndarray, d: np.ndarray) -> np.ndarray:
    return _ONE / (scale * d)


def _of_both(formula: str, multiplier: Callable[..., np.ndarray]) -> list[Way]:
    return [_codes(_FOR_DIVISION, formula, bound(multiplier)) for bound in (_clamped, _guarded)]


def _one_ulp(multiplier: Callable[..., np.ndarray]) -> list[Way]:
    each = (("more", 1), ("less", -1))
    return [_codes("1-ulp multiplier", f"the multiplier, one last bit {way},", _stepped(multiplier, ulps))
            for way, ulps in each]  # fmt: skip


MULTIPLIERS = {
    "reciprocal": (
        Way(*_DIRECT, _clamped(_direct)),
        Way(*_DIRECT, _guarded(_direct)),
        *_of_both("S_enc * (1 / scale_inv)", lambda scale, s, d: s * (_ONE / scale)),
        *_of_both("(1 / scale_inv) * (1 / S_dec)", lambda scale, s, d: (_ONE / scale) * (_ONE / d)),
        *_of_both("(1 / scale_inv) / S_dec", lambda scale, s, d: (_ONE / scale) / d),
        Way("missing clamp of the multiplier", "1 / 0 is inf where a block's scale underflowed to 0", _reciprocal),
        Way("zeros for an underflowed block", "the multiplier of a block whose scale is 0 was 0",
            _guarded(_reciprocal)),
        *_one_ulp(_clamped(_reciprocal)),
        _codes("S_dec left out", "1 / scale_inv", lambda scale, s, d: _ONE / scale),
    ),
    "direct": (
        Way(*_RECIPROCAL, _clamped(_reciprocal)),
        Way(*_RECIPROCAL, _guarded(_reciprocal)),
        *_of_both("S_enc * (1 / scale_inv)", lambda scale, s, d: s * (_ONE / scale)),
        *_of_both("(1 / scale_inv) / (1 / S_enc)", lambda scale, s, d: (_ONE / scale) / d),
        Way("S_enc / 0 for an underflowed block", "the multiplier of a block whose scale is 0 was inf", _direct),
        Way("S_enc / 0 for an underflowed block", "the multiplier of a block whose scale is 0 was FLT_MAX",
            _clamped(_direct)),
        *_one_ulp(_guarded(_direct)),
    ),
}  # fmt: skip


# =====================================================================================================================
# (x, scale_inv as float32, S_enc, S_dec, right multiplier) → product
# =====================================================================================================================


def _to(dtype: object) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: values.astype(dtype).astype(np.float32)


def _cut(bits: int) -> Callable[[np.ndarray], np.ndarray]:
    """Toward zero, by the last bits of a mantissa."""
    return lambda values: (np.asarray(values, np.float32).view(np.uint32) >> bits << bits).view(np.float32)


_bf16, _fp16 = _to(ml_dtypes.bfloat16), _to(np.float16)
PRODUCTS = (
    _codes("division for a multiplication", "x / (scale_inv * S_dec)", lambda x, scale, s, d, m: x / (scale * d)),
    _codes("division for a multiplication", "x * S_enc / scale_inv", lambda x, scale, s, d, m: (x * s) / scale),
    _codes(PRODUCT_ORDER, "(x * S_enc) * (1 / scale_inv)", lambda x, scale, s, d, m: (x * s) * (_ONE / scale)),
    _codes(PRODUCT_ORDER, "(x * (1 / scale_inv)) * S_enc", lambda x, scale, s, d, m: (x * (_ONE / scale)) * s),
    _codes(PRODUCT_ORDER, "(x / scale_inv) * S_enc", lambda x, scale, s, d, m: (x / scale) * s),
    _codes(PRODUCT_ORDER, "(x / S_dec) / scale_inv", lambda x, scale, s, d, m: (x / d) / scale),
    _codes(PRODUCT_ORDER, "(x / scale_inv) / S_dec", lambda x, scale, s, d, m: (x / scale) / d),
    _codes("product rounded to bf16", "x * m, rounded to bf16,", lambda x, scale, s, d, m: _bf16(x * m)),
    _codes("product rounded to fp16", "x * m, rounded to fp16,", lambda x, scale, s, d, m: _fp16(x * m)),
    *(
        Way(f"multiplier {how} {name}", f"x times m, {how} {name}, gives these codes",
            lambda x, scale, s, d, m, to=to: x * to(m))
        for how, name, to in (
            ("rounded to", "fp16", _fp16), ("rounded to", "bf16", _bf16), ("cut to", "fp16", _cut(13)),
            ("cut to", "bf16", _cut(16)),
        )
    ),
    _codes("product cut to bf16", "x * m, cut to bf16,", lambda x, scale, s, d, m: _cut(16)(x * m)),
    _codes("product not rounded", "x / (scale_inv * S_dec), rounded once to a code,",
        lambda x, scale, s, d, m: _nearly_exact(x, scale, d)),
)  # fmt: skip


def _nearly_exact(x: np.ndarray, scale: np.ndarray, s_dec: np.ndarray) -> np.ndarray:
    """The float32 product that a cast rounds as it would round the exact quotient: to odd, from float64."""
    exact = x.astype(np.float64) / (scale.astype(np.float64) * s_dec)
    nearest = exact.astype(np.float32)
    cut = np.where(np.abs(nearest.astype(np.float64)) > np.abs(exact), np.nextafter(nearest, np.float32(0)), nearest)
    sticky = (cut.astype(np.float64) != exact) & np.isfinite(exact)
    return np.where(sticky, (cut.view(np.uint32) | 1).view(np.float32), cut).astype(np.float32)


# =====================================================================================================================
# (amax, E) → S_enc, and (amax, S_enc, E) → S_dec
# =====================================================================================================================


def _global(ratio: Callable[[np.ndarray, np.float32], np.ndarray], **guards: float) -> Callable:
    """S_enc by some quotient. guards: the values of a `zero` amax and of an `inf` one where they are not 1"""

    def s_enc(amax: np.ndarray, e4m3_max: int) -> np.ndarray:
        s = np.fmin(ratio(amax, np.float32(e4m3_max)), guards.get("most", _FLT_MAX))
        s = np.where(s == 0, np.float32(guards.get("inf", 1)), s)
        return np.where(amax == 0, np.float32(guards.get("zero", 1)), s).astype(np.float32)

    return s_enc


def _quotient(amax: np.ndarray, e: np.float32) -> np.ndarray:
    return (e * _SIX) / amax


ENCODE_SCALES = (
    _bytes("order of S_enc", "RN(E / amax) * 6", _global(lambda amax, e: e / amax * _SIX)),
    _bytes("order of S_enc", "RN(6 / amax) * E", _global(lambda amax, e: _SIX / amax * e)),
    _bytes("order of S_enc", "E / RN(amax / 6)", _global(lambda amax, e: e / (amax / _SIX))),
    _bytes("order of S_enc", "1 / RN(amax / 2688)", _global(lambda amax, e: _ONE / (amax / (e * _SIX)))),
    _bytes(_FOR_DIVISION, "S_enc by (6 * E) * (1 / amax)", _global(lambda amax, e: (e * _SIX) * (_ONE / amax))),
    _bytes(_FOR_DIVISION, "S_enc by 1 / (amax * RN(1 / (6 * E)))",
        _global(lambda amax, e: _ONE / (amax * (_ONE / (e * _SIX))))),
    Way("S_enc without its clamp", "S_enc is inf, and not FLT_MAX, for these amaxes", _global(_quotient, most=np.inf)),
    Way("S_enc of an infinite amax", "S_enc is 0, and not 1, for an amax that is inf", _global(_quotient, inf=0)),
    Way("S_enc of an amax of 0", "S_enc is FLT_MAX, and not 1, for an amax of 0", _global(_quotient, zero=_FLT_MAX)),
    Way("S_enc of an amax of 0", "S_enc is 0, and not 1, for an amax of 0", _global(_quotient, zero=0)),
    _bytes("1-ulp S_enc", "S_enc, one last bit more,",
        _global(lambda amax, e: np.nextafter(_quotient(amax, e), np.float32(np.inf)))),
    _bytes("1-ulp S_enc", "S_enc, one last bit less,",
        _global(lambda amax, e: np.nextafter(_quotient(amax, e), np.float32(0)))),
)  # fmt: skip
DECODE_SCALES = (
    _codes(FORMULA_OF_DECODE, "S_dec = amax / (6 * E)", lambda amax, s, e: amax / (e * _SIX)),
    _codes(FORMULA_OF_DECODE, "S_dec = amax * (1 / (6 * E))", lambda amax, s, e: amax * (_ONE / (e * _SIX))),
    _codes(FORMULA_OF_DECODE, "S_dec = amax / 6 / E", lambda amax, s, e: amax / _SIX / e),
    _codes(FORMULA_OF_DECODE, "S_dec = amax / E / 6", lambda amax, s, e: amax / e / _SIX),
)  # fmt: skip


# =====================================================================================================================
# (lines, blocks, 16) magnitudes → amax of each block
# =====================================================================================================================


def _subsets() -> Iterator[tuple[str, list[int]]]:
    """Elements of a block that a broken reduction has in its amax, and how they are called."""
    everything = range(BLOCK)
    for step in (1, 2, 4, 8):
        for bit in (0, step):
            kept = [i for i in everything if i & step == bit]
            yield f"the elements {kept[0]}, {kept[1]}, … (without the step of {step} of its reduction)", kept
    for count in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15):
        yield f"the first {count} elements", list(range(count))
        yield f"the last {count} elements", list(range(BLOCK - count, BLOCK))
    for step in (4, 8):
        yield f"every {step}th element", list(range(0, BLOCK, step))
    yield "the elements 4 to 11", list(range(4, 12))


BLOCK_AMAXES = tuple(
    Way(BLOCK_PART, f"the amax of {called} of a block gives these bytes",
        lambda magnitudes, kept=tuple(kept): magnitudes[..., list(kept)].max(axis=-1, initial=np.float32(0)))
    for called, kept in _subsets()
)  # fmt: skip


# Causes that change nothing but a rounding. Others that nobody listed may give the same few bytes.
ROUNDINGS = frozenset(
    way.name
    for way in (MULTIPLY_FORM, DIVIDE_FORM, *SCALE_PRODUCTS, *PRODUCTS, *ENCODE_SCALES, *DECODE_SCALES)
    if not way.name.startswith(("S_enc", "scale of another", "scale not"))
) | {_DIRECT[0], _RECIPROCAL[0], "1-ulp multiplier", "fast_math where exact was asked", "fast_math ignored"}
