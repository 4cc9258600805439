"""Floating-point arithmetic in float32, float64, f16 and bf16, single and packed, rounded once per instruction.

16-bit sums, differences and products are computed in float32 and rounded again, which is exact because float32 has more
than twice the precision; fused multiply-adds go through a sum rounded to odd (see `rounding`). Every NaN result has the
one pattern of its format; the payloads that float64 hardware keeps are not modelled. Approximate instructions are in
`approximate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np

from ptx_emulator.arithmetic.rounding import (
    INF_BF16,
    INF_F16,
    NAN_BF16,
    NAN_F16,
    NAN_F32,
    NAN_F64,
    bf16_from,
    bf16_values,
    canonical,
    f16_from,
    f16_values,
    f32_directed,
    flush_f32,
    fma_f64,
    to_odd_f32,
    to_odd_sum,
)
from ptx_emulator.registers import F32, F64, U16, U32, U64, Bits, Compute, Operation, halves

Values = np.ndarray


def _f32(compute: Callable[..., Values]) -> Compute:
    return lambda *arrays: canonical(compute(*(array.view(F32) for array in arrays)), NAN_F32)


def _f64(compute: Callable[..., Values]) -> Compute:
    return lambda *arrays: canonical(compute(*(array.view(F64) for array in arrays)), NAN_F64)


SMALLEST_NORMAL = 2.0**-126


def _flushed(compute: Compute, in_double: Callable[..., Values] | None = None) -> Compute:
    """Flush subnormal operands and results to zeros of the same sign.

    in_double: the operation in float64, because a result is flushed by its value before rounding
    """

    def flushed(*arrays: Bits) -> Bits:
        arrays = tuple(flush_f32(array) for array in arrays)
        out = flush_f32(compute(*arrays))
        if not in_double:
            return out
        tiny = np.abs(in_double(*(array.view(F32).astype(F64) for array in arrays))) < SMALLEST_NORMAL
        return np.where(tiny, out & U32(0x80000000), out)

    return flushed


def _saturated(compute: Compute) -> Compute:
    """Clamp the result to [0, 1]; NaN gives +0."""

    def clamp(*arrays: Bits) -> Bits:
        values = compute(*arrays).view(F32)
        return np.where(values > 0, np.minimum(values, F32(1)), F32(0)).view(U32)

    return clamp


def _fma_f32(mode: str) -> Callable[..., Values]:
    # A product of two float32 is exact in float64.
    return lambda a, b, c: f32_directed(_exact_sum(a.astype(F64) * b.astype(F64), c.astype(F64), mode), mode)


def _add_f32(mode: str) -> Callable[..., Values]:
    return lambda a, b: f32_directed(_exact_sum(a.astype(F64), b.astype(F64), mode), mode)


def _subtract_f32(mode: str) -> Callable[..., Values]:
    add = _add_f32(mode)
    return lambda a, b: add(a, -b)


def _exact_sum(a: Values, b: Values, mode: str) -> Values:
    """The float64 sum, rounded to odd.

    When rounding down (`rm`), an exact zero is -0 unless both terms are +0.
    """
    total = to_odd_sum(a, b)
    if mode == "rm":
        total = np.where((total == 0) & (np.signbit(a) | np.signbit(b)), F64(-0.0), total)
    return total


def _multiply_f32(mode: str) -> Callable[..., Values]:
    return lambda a, b: f32_directed(a.astype(F64) * b.astype(F64), mode)


def _directed(near: Callable[..., Values], beyond: Callable[..., Values], mode: str) -> Callable[..., Values]:
    """An operation in mode `rz`, `rm` or `rp`, from its nearest result.

    beyond: the sign of the nearest result less the exact one, of both and of the operands; NaN or 0 leaves the result
    """

    def compute(*values: Values) -> Values:
        found = near(*values)
        over = beyond(found, *values)
        down, up = over > 0, over < 0
        if mode == "rz":
            down, up = down & ~np.signbit(found), up & np.signbit(found)
        infinity = found.dtype.type(np.inf)
        found = np.where(down, np.nextafter(found, -infinity), found) if mode != "rp" else found
        return np.where(up, np.nextafter(found, infinity), found) if mode != "rm" else found

    return compute


# By how much a result in float32 is beyond the exact one, or its sign. Products of two float32 are exact in float64.
_BEYOND: dict[str, Callable[..., Values]] = {
    "div": lambda q, a, b: (q.astype(F64) * b.astype(F64) - a.astype(F64)) * np.sign(b),
    "rcp": lambda q, a: (q.astype(F64) * a.astype(F64) - 1) * np.sign(a),
    "sqrt": lambda q, a: q.astype(F64) * q.astype(F64) - a.astype(F64),
}
# The same for finite numbers in float64, in fractions.
_BEYOND_F64: dict[str, Callable[..., Fraction]] = {
    "add": lambda q, a, b: q - (a + b),
    "sub": lambda q, a, b: q - (a - b),
    "mul": lambda q, a, b: q - a * b,
    "fma": lambda q, a, b, c: q - (a * b + c),
    "div": lambda q, a, b: (q * b - a) * (1 if b > 0 else -1),
    "rcp": lambda q, a: (q * a - 1) * (1 if a > 0 else -1),
    "sqrt": lambda q, a: q * q - a,
}


def _beyond_f64(name: str) -> Callable[..., Values]:
    exact = _BEYOND_F64[name]

    def one(found: float, *values: float) -> float:
        if not all(map(math.isfinite, values)) or math.isnan(found) or name in ("div", "rcp") and values[-1] == 0:
            return 0.0
        if math.isinf(found):
            return found
        over = exact(*map(Fraction, (found, *values)))
        return (over > 0) - (over < 0) + 0.0

    return np.vectorize(one, otypes=[F64])


def _directed_f64(name: str, near: Callable[..., Values], mode: str) -> Compute:
    """An operation on float64 in one of the modes but to nearest."""
    directed = _directed(near, _beyond_f64(name), mode)
    if mode != "rm" or name not in ("add", "sub", "fma"):
        return _f64(directed)

    def down(*values: Values) -> Values:
        """An exact zero is -0 unless both terms are +0."""
        found = directed(*values)
        *first, last = values
        term = first[0] * first[1] if name == "fma" else first[0]
        negative = np.signbit(term) | np.signbit(-last if name == "sub" else last)
        return np.where((found == 0) & negative, F64(-0.0), found)

    return _f64(down)


def _extreme_f32(largest: bool, keeps_nan: bool) -> Compute:
    """min or max. A NaN operand is dropped, or with `keeps_nan` the result; -0 is less than +0."""
    pick = np.fmax if largest else np.fmin

    def extreme(*arrays: Bits) -> Bits:
        values = [array.view(F32) for array in arrays]
        out = values[0]
        for value in values[1:]:
            before, out = out, pick(out, value)
            if (out == 0).any():
                a, b = before.view(U32), value.view(U32)
                zeros = (before == 0) & (value == 0)
                out = np.where(zeros, a & b if largest else a | b, out.view(U32)).view(F32)
        if keeps_nan:
            unordered = np.isnan(values[0])
            for value in values[1:]:
                unordered = unordered | np.isnan(value)
            out = np.where(unordered, F32(np.nan), out)
        return canonical(out, NAN_F32)

    return extreme


def _extreme_16(largest: bool, keeps_nan: bool, infinity: int, nan: np.uint16) -> Compute:
    """min or max of 16-bit floats, which order as their bits do once the sign is handled."""
    pick = np.maximum if largest else np.minimum
    infinity, magnitude = U16(infinity), U16(0x7FFF)

    def ordered(bits: Bits) -> Bits:
        return np.where(bits > magnitude, ~bits, bits | U16(0x8000))

    def extreme(a: Bits, b: Bits) -> Bits:
        if np.maximum(a, b).max() <= infinity:
            return pick(a, b)
        key = pick(ordered(a), ordered(b))
        out = np.where(key > magnitude, key & magnitude, ~key)
        a_nan, b_nan = a & magnitude > infinity, b & magnitude > infinity
        if keeps_nan:
            return np.where(a_nan | b_nan, nan, out)
        return np.where(a_nan, np.where(b_nan, nan, b), np.where(b_nan, a, out))

    return extreme


def _table() -> dict[str, Operation]:
    table: dict[str, Operation] = {}

    def define(name: str, compute: Compute, kind: str, count: int, lane: str = "") -> None:
        table[name] = Operation(compute, kind, (kind,) * count, lane)

    _single(define)
    _double(define)
    for kind, values, rounded, infinity, nan in (
        ("f16", f16_values, f16_from, INF_F16, NAN_F16),
        ("bf16", bf16_values, bf16_from, INF_BF16, NAN_BF16),
    ):
        _sixteen(define, kind, values, rounded, infinity, nan)
    signed = "(x & TOP) | (y & MAGNITUDE)"
    define("copysign.f32", lambda a, b: a & U32(0x80000000) | b & U32(0x7FFFFFFF), "f32", 2, signed)
    define("copysign.f64", lambda a, b: a & U64(1 << 63) | b & U64((1 << 63) - 1), "f64", 2)
    for test, holds in _CLASSES.items():
        table[f"testp.{test}.f32"] = Operation(lambda a, holds=holds: holds(a.view(F32)), "pred", ("f32",))
        table[f"testp.{test}.f64"] = Operation(lambda a, holds=holds: holds(a.view(F64)), "pred", ("f64",))
    return table


_CLASSES: dict[str, Callable[[Values], Values]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & ((a == 0) | (np.abs(a) >= np.finfo(a.dtype).tiny)),
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
}


_DIRECTED = ("rz", "rm", "rp")
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}
# Compiled forms of float32. A product of two float32 is exact in float64.
_FUSED = "odd_sum(float64(fx) * float64(fy), float64(fz))"
_LANES = {f"{name}{mode}": f"pattern(fx {sign} fy)" for name, sign in _SIGNS.items() for mode in ("", ".rn")}
_LANES |= {f"{name}.rn": f"pattern(float32({_FUSED}))" for name in ("fma", "mad")}
_LANES |= {f"{name}.rz": f"toward_zero({_FUSED})" for name in ("fma", "mad")}
_LANES["add.rz"] = "toward_zero(odd_sum(float64(fx), float64(fy)))"
_LANES["mul.rz"] = "toward_zero(float64(fx) * float64(fy))"


def _single(define: Callable) -> None:
    in_double = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    in_double["fma"] = in_double["mad"] = lambda a, b, c: to_odd_sum(a * b, c)
    rounded: dict[str, tuple[Compute, int]] = {}
    for mode in ("rn", "rz", "rm", "rp"):
        nearest = mode == "rn"
        rounded[f"add.{mode}"] = _f32(np.add if nearest else _add_f32(mode)), 2
        rounded[f"sub.{mode}"] = _f32(np.subtract if nearest else _subtract_f32(mode)), 2
        rounded[f"mul.{mode}"] = _f32(np.multiply if nearest else _multiply_f32(mode)), 2
        rounded[f"fma.{mode}"] = _f32(_fma_f32(mode)), 3
        rounded[f"mad.{mode}"] = rounded[f"fma.{mode}"]
    for name in ("add", "sub", "mul"):
        rounded[name] = rounded[f"{name}.rn"]
    for name, (compute, count) in rounded.items():
        flushed = _flushed(compute, in_double[name.split(".")[0]])
        define(f"{name}.f32", compute, "f32", count, _LANES.get(name, ""))
        define(f"{name}.ftz.f32", flushed, "f32", count)
        define(f"{name}.sat.f32", _saturated(compute), "f32", count)
        define(f"{name}.ftz.sat.f32", _saturated(flushed), "f32", count)
        if not name.startswith("mad"):
            define(f"{name}.f32x2", halves(compute, U32, U64), "f32x2", count)
            define(f"{name}.ftz.f32x2", halves(flushed, U32, U64), "f32x2", count)
    for name, divide, count, lane in (
        ("div", np.divide, 2, "pattern(fx / fy)"),
        ("rcp", np.reciprocal, 1, "pattern(float32(1) / fx)"),
        ("sqrt", np.sqrt, 1, "pattern(sqrt(fx))"),
    ):
        define(f"{name}.rn.f32", _f32(divide), "f32", count, lane)
        define(f"{name}.rn.ftz.f32", _flushed(_f32(divide), divide), "f32", count)
        for mode in _DIRECTED:
            directed = _f32(_directed(divide, _BEYOND[name], mode))
            define(f"{name}.{mode}.f32", directed, "f32", count)
            define(f"{name}.{mode}.ftz.f32", _flushed(directed, divide), "f32", count)
    for (name, largest), (suffix, keeps) in product((("min", False), ("max", True)), (("", False), (".NaN", True))):
        compute = _extreme_f32(largest, keeps)
        for operands in (2, 3):
            arity = "/3" if operands == 3 else ""
            lane = "" if keeps or arity else f"extreme(x, y, {largest})"
            define(f"{name}{suffix}.f32{arity}", compute, "f32", operands, lane)
            define(f"{name}.ftz{suffix}.f32{arity}", _flushed(compute), "f32", operands)
    for name, compute, lane in (("abs", np.abs, "x & MAGNITUDE"), ("neg", np.negative, "x ^ TOP")):
        define(f"{name}.f32", _f32(compute), "f32", 1, f"{lane} if fx == fx else NAN")
        define(f"{name}.ftz.f32", _flushed(_f32(compute)), "f32", 1)


def _double(define: Callable) -> None:
    rounded: dict[str, tuple[Callable[..., Values], int]] = {
        "add": (np.add, 2), "sub": (np.subtract, 2), "mul": (np.multiply, 2), "div": (np.divide, 2),
        "fma": (fma_f64, 3), "mad": (fma_f64, 3), "rcp": (np.reciprocal, 1), "sqrt": (np.sqrt, 1),
    }  # fmt: skip
    for name, (compute, count) in rounded.items():
        lane = f"wide_pattern(fx {_SIGNS[name]} fy)" if name in _SIGNS else ""
        lane = "wide_pattern(fused(fx, fy, fz))" if name in ("fma", "mad") else lane
        if name in _SIGNS:
            define(f"{name}.f64", _f64(compute), "f64", count, lane)
        define(f"{name}.rn.f64", _f64(compute), "f64", count, lane)
        for mode in _DIRECTED:
            exact = "fma" if name == "mad" else name
            define(f"{name}.{mode}.f64", _directed_f64(exact, compute, mode), "f64", count)
    define("min.f64", _f64(np.fmin), "f64", 2)
    define("max.f64", _f64(np.fmax), "f64", 2)
    define("abs.f64", _f64(np.abs), "f64", 1)
    define("neg.f64", _f64(np.negative), "f64", 1)


def _sixteen(
    define: Callable,
    kind: str,
    values: Callable[[Bits], Values],
    rounded: Callable[[Values], Bits],
    infinity: int,
    nan: np.uint16,
) -> None:
    def both(name: str, compute: Compute, count: int, pair: str = "") -> None:
        define(f"{name}.{kind}", compute, kind, count)
        define(f"{name}.{kind}x2", halves(compute), f"{kind}x2", count, pair)

    def arithmetic(compute: Callable[..., Values]) -> Compute:
        return lambda *arrays: rounded(compute(*(values(array) for array in arrays)))

    def clamped(compute: Compute) -> Compute:
        return lambda *arrays: _clamp_f16(compute(*arrays))

    def fma(a: Bits, b: Bits, c: Bits) -> Bits:
        total = to_odd_sum(values(a).astype(F64) * values(b).astype(F64), values(c).astype(F64))
        return rounded(total if kind == "f16" else to_odd_f32(total))

    for name, compute in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        pair = "product_x2(x, y)" if (name, kind) == ("mul", "f16") else ""
        both(name, arithmetic(compute), 2, pair)
        both(f"{name}.rn", arithmetic(compute), 2, pair)
    both("fma.rn", fma, 3)
    both("fma.rn.relu", lambda a, b, c: _relu_16(fma(a, b, c), infinity, nan), 3)
    if kind == "f16":
        for name, compute in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
            both(f"{name}.sat", clamped(arithmetic(compute)), 2)
            both(f"{name}.rn.sat", clamped(arithmetic(compute)), 2)
        both("fma.rn.sat", clamped(fma), 3)
    for (name, largest), (suffix, keeps) in product((("min", False), ("max", True)), (("", False), (".NaN", True))):
        pair = "" if keeps else f"extreme_x2(x, y, uint32({infinity}), {largest})"
        both(f"{name}{suffix}", _extreme_16(largest, keeps, infinity, nan), 2, pair)
    both("abs", lambda a: _replace_nan(a & U16(0x7FFF), infinity, nan), 1, f"magnitude_x2(x, uint32({infinity}))")
    both("neg", lambda a: _replace_nan(a ^ U16(0x8000), infinity, nan), 1)


def _clamp_f16(bits: Bits) -> Bits:
    """Clamp to [0, 1]; NaN gives +0."""
    return np.where((bits > U16(0x7FFF)) | (bits == NAN_F16), U16(0), np.minimum(bits, U16(0x3C00)))


def _replace_nan(bits: Bits, infinity: int, nan: np.uint16) -> Bits:
    is_nan = bits & U16(0x7FFF) > U16(infinity)
    return np.where(is_nan, nan, bits) if is_nan.any() else bits


def _relu_16(bits: Bits, infinity: int, nan: np.uint16) -> Bits:
    """Replace negative values by +0; NaN stays."""
    return _replace_nan(np.where((bits > U16(0x7FFF)) & (bits != nan), U16(0), bits), infinity, nan)


FLOATING = _table()
