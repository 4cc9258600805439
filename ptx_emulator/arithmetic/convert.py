"""`cvt`: between integers, floats, and the packed 8-bit and 4-bit formats.

Rules that are easy to get wrong: float to integer clamps, and NaN gives 0 (or only the top bit, if either side has 64
bits); the first source of a packed conversion goes to the upper half; packed formats saturate, and NaN becomes the
positive NaN, or in e2m1, which has none, the largest code.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from ptx_emulator.arithmetic.rounding import (
    E2M1,
    E4M3,
    E5M2,
    NAN_F16,
    NAN_F32,
    NAN_F64,
    SmallFloat,
    bf16_from,
    bf16_values,
    canonical,
    f16_from,
    f16_values,
    f32_directed,
    flush_f32,
    to_odd_f32,
    to_odd_sum,
)
from ptx_emulator.registers import F32, F64, SIGNED, U8, U16, U32, U64, UNSIGNED, Bits, Compute, Operation

Values = np.ndarray
INTEGERS = {f"{sign}{8 * size}": (size, sign == "s") for size in (1, 2, 4, 8) for sign in "us"}


def _limits(name: str) -> tuple[int, int]:
    size, is_signed = INTEGERS[name]
    return (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if is_signed else (0, (1 << 8 * size) - 1)


def _fits(target: str, source: str) -> bool:
    """Whether `target` represents every value of `source`."""
    (low, high), (source_low, source_high) = _limits(target), _limits(source)
    return low <= source_low and source_high <= high


def _integer_values(name: str) -> Callable[[Bits], Values]:
    size, is_signed = INTEGERS[name]
    return lambda bits: bits.view(SIGNED[size] if is_signed else UNSIGNED[size])


# ---- integer to integer ---------------------------------------------------------------------------------------------


def _resize(source: str, target: str) -> Compute:
    read, kind = _integer_values(source), UNSIGNED[INTEGERS[target][0]]
    return lambda bits: read(bits).astype(kind)


def _resize_saturating(source: str, target: str) -> Compute:
    read, kind = _integer_values(source), UNSIGNED[INTEGERS[target][0]]
    source_low, source_high = _limits(source)
    low, high = _limits(target)
    low, high = max(low, source_low), min(high, source_high)
    return lambda bits: np.clip(read(bits), low, high).astype(kind)


def _resized(source: str, target: str) -> str:
    """The compiled form; a register of less than 32 bits has zeros above them."""
    (size, is_signed), wanted = INTEGERS[source], INTEGERS[target][0]
    if wanted == size:
        return "x"
    if wanted < size:
        narrow = "uint32(x)" if wanted == 4 else ""
        return narrow if size == 8 else f"x & {(1 << 8 * wanted) - 1:#x}"
    if not is_signed:
        return "uint64(x)" if wanted == 8 else "x"
    if wanted == 8:
        return "int64(sx)" if size == 4 else ""
    return f"int32(x << uint32({32 - 8 * size})) >> int32({32 - 8 * size})" if wanted == 4 else ""


# ---- float to integer -----------------------------------------------------------------------------------------------

_TO_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _to_integer(read: Callable[[Bits], Values], wide_source: bool, mode: str, target: str) -> Compute:
    round_to_integral = _TO_INTEGRAL[mode]
    size, is_signed = INTEGERS[target]
    low, high = _limits(target)
    unsigned = UNSIGNED[size]
    kind = SIGNED[size] if is_signed else unsigned
    nan = unsigned(1 << 8 * size - 1) if wide_source or size == 8 else unsigned(0)

    def convert(bits: Bits) -> Bits:
        integral = round_to_integral(read(bits).astype(F64))
        # float64 cannot represent 2^63 - 1, so compare with high + 1.
        below, above = integral < low, integral >= high + 1
        out = np.where(below | above, 0, integral).astype(kind).view(unsigned)
        if below.any() or above.any():
            out = np.where(above, kind(high).view(unsigned), np.where(below, kind(low).view(unsigned), out))
        return np.where(np.isnan(integral), nan, out)

    return convert


# ---- integer to float -----------------------------------------------------------------------------------------------


def _odd_f64(source: str) -> Callable[[Bits], Values]:
    """Convert an integer to float64, rounded to odd (see `rounding`)."""
    read, size = _integer_values(source), INTEGERS[source][0]
    if size < 8:
        return lambda bits: read(bits).astype(F64)
    low = U64(0xFFFFFFFF)
    return lambda bits: to_odd_sum((read(bits) >> 32).astype(F64) * F64(1 << 32), (bits & low).astype(F64))


def _from_integer(source: str, target: str, mode: str) -> Compute:
    exact, read = _odd_f64(source), _integer_values(source)
    if target == "f64":
        return lambda bits: read(bits).astype(F64).view(U64)
    if target == "f32":
        return lambda bits: f32_directed(exact(bits), mode).view(U32)
    if target == "f16":
        return lambda bits: f16_from(exact(bits), mode)
    return lambda bits: bf16_from(to_odd_f32(exact(bits)), mode)


# ---- float to float -------------------------------------------------------------------------------------------------


def _f32_values(bits: Bits) -> Values:
    return bits.view(F32)


def _f64_values(bits: Bits) -> Values:
    return bits.view(F64)


_READ = {"f16": f16_values, "bf16": bf16_values, "f32": _f32_values, "f64": _f64_values}


def _finite(bits: Bits, largest: int) -> Bits:
    """Replace infinity in a 16-bit format by the largest finite value."""
    return np.where(bits & U16(0x7FFF) == U16(largest + 1), bits - U16(1), bits)


def _relu(bits: Bits, nan: np.unsignedinteger) -> Bits:
    """Replace negative values, -0 included, by +0; NaN is positive already."""
    return np.where((bits >> U16(15) != 0) & (bits != nan), U16(0), bits)


def _narrow(target: str, mode: str, finite: bool, relu: bool) -> Callable[[Values], Bits]:
    rounded, largest = (f16_from, 0x7BFF) if target == "f16" else (bf16_from, 0x7F7F)

    def convert(values: Values) -> Bits:
        bits = rounded(values, mode)
        bits = _finite(bits, largest) if finite else bits
        return _relu(bits, NAN_F16) if relu else bits

    return convert


def _pack(narrow: Callable[[Values], Bits]) -> Compute:
    return lambda high, low: narrow(high.view(F32)).astype(U32) << U32(16) | narrow(low.view(F32))


def _saturate_unit(bits: Bits) -> Bits:
    values = bits.view(F32)
    return np.where(values > 0, np.minimum(values, F32(1)), F32(0)).view(U32)


# ---- 8-bit and 4-bit floats -----------------------------------------------------------------------------------------


def _encode_pair(small: SmallFloat, relu: bool) -> Compute:
    kind, shift = (U16, U32(8)) if small.exponent + small.mantissa == 7 else (U8, U32(4))
    clamp = _not_negative if relu else _f32_values

    def convert(high: Bits, low: Bits) -> Bits:
        return (small.encode(clamp(high)) << shift | small.encode(clamp(low))).astype(kind)

    return convert


def _not_negative(bits: Bits) -> Values:
    values = bits.view(F32)
    return np.where(np.signbit(values) & ~np.isnan(values), F32(0), values)


def _encode_f16_pair(small: SmallFloat, relu: bool) -> Compute:
    convert = _encode_pair(small, relu)
    return lambda pair: convert(
        *(f16_values(half.astype(U16)).view(U32) for half in (pair >> U32(16), pair & U32(0xFFFF)))
    )


def _decode_pair(small: SmallFloat, relu: bool) -> Compute:
    table = small.decode_table().astype(U32)
    if relu:
        table = np.where((table >> U32(15) != 0) & (table != NAN_F16), U32(0), table)
    width = 1 + small.exponent + small.mantissa

    def convert(codes: Bits) -> Bits:
        return table[codes >> codes.dtype.type(width)] << U32(16) | table[codes & codes.dtype.type((1 << width) - 1)]

    return convert


def _table() -> dict[str, Operation]:
    table: dict[str, Operation] = {}
    for source, target in product(INTEGERS, INTEGERS):
        lane = _resized(source, target)
        table[f"cvt.{target}.{source}"] = Operation(_resize(source, target), target, (source,), lane)
        if not _fits(target, source):
            table[f"cvt.sat.{target}.{source}"] = Operation(_resize_saturating(source, target), target, (source,))
    for (source, read), mode, target in product(_READ.items(), _TO_INTEGRAL, INTEGERS):
        if source == "bf16" and target in ("u8", "s8"):
            continue
        compute = _to_integer(read, source == "f64", mode, target)
        table[f"cvt.{mode}.{target}.{source}"] = Operation(compute, target, (source,))
        if source != "bf16":
            table[f"cvt.{mode}.sat.{target}.{source}"] = Operation(compute, target, (source,))
        if source == "f32":
            table[f"cvt.{mode}.ftz.{target}.{source}"] = Operation(
                lambda bits, compute=compute: compute(flush_f32(bits)), target, (source,)
            )
    for source in INTEGERS:
        for target, modes in {
            "f64": ("rn",),
            "f32": ("rn", "rz", "rm", "rp"),
            "f16": ("rn", "rz"),
            "bf16": ("rn", "rz"),
        }.items():
            for mode in modes if target != "bf16" or source not in ("u8", "s8") else ():
                exact = {"cvt.rn.f32.s32": "as_bits(float32(sx))", "cvt.rn.f32.u32": "as_bits(float32(x))"}
                name = f"cvt.{mode}.{target}.{source}"
                compute = _from_integer(source, target, mode)
                table[name] = Operation(compute, target, (source,), exact.get(name, ""))
    _floats(table)
    _packed(table)
    return table


def _floats(table: dict[str, Operation]) -> None:
    def define(name: str, compute: Compute, target: str, source: str, lane: str = "") -> None:
        table[f"cvt.{name}.{target}.{source}".replace("..", ".")] = Operation(compute, target, (source,), lane)

    define("", lambda a: canonical(f16_values(a), NAN_F32), "f32", "f16", "pattern(of_half(x))")
    define("", lambda a: bf16_values(a).view(U32), "f32", "bf16", "x << uint32(16)")
    define("", lambda a: canonical(a.view(F32).astype(F64), NAN_F64), "f64", "f32", "wide_pattern(float64(fx))")
    define("", lambda a: canonical(f16_values(a).astype(F64), NAN_F64), "f64", "f16")
    define("", lambda a: canonical(bf16_values(a).astype(F64), NAN_F64), "f64", "bf16")
    # Triton uses it for e4m3 values, which convert exactly; the ISA does not say how others round.
    define("", lambda a: bf16_from(f16_values(a)), "bf16", "f16")
    define("sat", _saturate_unit, "f32", "f32")
    define("ftz", lambda a: canonical(flush_f32(a).view(F32), NAN_F32), "f32", "f32")
    define("ftz.sat", lambda a: _saturate_unit(flush_f32(a)), "f32", "f32")
    for mode in ("rn", "rz", "rm", "rp"):
        lane = "pattern(float32(fx))" if mode == "rn" else ""
        define(mode, lambda a, mode=mode: canonical(f32_directed(a.view(F64), mode), NAN_F32), "f32", "f64", lane)
    define("rn", lambda a: f16_from(a.view(F64)), "f16", "f64")
    define("rn", lambda a: bf16_from(to_odd_f32(a.view(F64))), "bf16", "f64")
    for mode, integral in _TO_INTEGRAL.items():
        define(mode, lambda a, integral=integral: canonical(integral(a.view(F32)), NAN_F32), "f32", "f32")
        define(
            f"{mode}.ftz",
            lambda a, integral=integral: canonical(integral(flush_f32(a).view(F32)), NAN_F32),
            "f32",
            "f32",
        )
        define(mode, lambda a, integral=integral: canonical(integral(a.view(F64)), NAN_F64), "f64", "f64")
        define(mode, lambda a, integral=integral: f16_from(integral(f16_values(a))), "f16", "f16")
        define(mode, lambda a, integral=integral: bf16_from(integral(bf16_values(a))), "bf16", "bf16")


# Compiled forms. The first source of a packed conversion goes to the upper half.
_NARROWED = {
    ("f16", "rn"): "to_half(f{})",
    ("f16", "rz"): "half_toward_zero(f{})",
    ("bf16", "rn"): "to_bf16({}, True)",
    ("bf16", "rz"): "to_bf16({}, False)",
}
_ENCODED = {
    "e4m3": "encode(x, 4, 3, 0x7E, 0x7F) << uint32(8) | encode(y, 4, 3, 0x7E, 0x7F)",
    "e2m1": "encode(x, 2, 1, 0x7, 0x7) << uint32(4) | encode(y, 2, 1, 0x7, 0x7)",
}
_DECODED = {
    "e4m3": "OF_E4M3[x >> uint32(8) & uint32(255)] << uint32(16) | OF_E4M3[x & uint32(255)]",
    "e2m1": "OF_E2M1[x >> uint32(4) & uint32(15)] << uint32(16) | OF_E2M1[x & uint32(15)]",
}


def _packed(table: dict[str, Operation]) -> None:
    for mode, relu, finite, target in product(("rn", "rz"), ("", ".relu"), ("", ".satfinite"), ("f16", "bf16")):
        narrow = _narrow(target, mode, bool(finite), bool(relu))
        name, lane = f"cvt.{mode}{relu}{finite}", "" if relu or finite else _NARROWED[target, mode]
        pair = lane and f"{lane.format('x')} << uint32(16) | {lane.format('y')}"
        table[f"{name}.{target}.f32"] = Operation(
            lambda a, narrow=narrow: narrow(a.view(F32)), target, ("f32",), lane.format("x")
        )
        table[f"{name}.{target}x2.f32"] = Operation(_pack(narrow), f"{target}x2", ("f32", "f32"), pair)
    for (name, small), relu in product({"e4m3": E4M3, "e5m2": E5M2, "e2m1": E2M1}.items(), ("", ".relu")):
        width = "b8" if small is E2M1 else "b16"
        encoded = "" if relu else _ENCODED.get(name, "")
        decoded = "" if relu else _DECODED.get(name, "")
        table[f"cvt.rn.satfinite{relu}.{name}x2.f32"] = Operation(
            _encode_pair(small, bool(relu)), width, ("f32", "f32"), encoded
        )
        table[f"cvt.rn{relu}.f16x2.{name}x2"] = Operation(_decode_pair(small, bool(relu)), "f16x2", (width,), decoded)
        if small is not E2M1:
            table[f"cvt.rn.satfinite{relu}.{name}x2.f16x2"] = Operation(
                _encode_f16_pair(small, bool(relu)), width, ("b32",)
            )


CONVERT = _table()
