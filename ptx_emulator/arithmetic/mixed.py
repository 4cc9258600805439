"""Forms that Blackwell and Hopper kernels add: `xorsign`, mixed types, stochastic rounding, and scales that are powers
of two (`ue8m0`) or have three bits of mantissa (`ue5m3`, of sm_107a).

From the PTX ISA 9.0: "max", "fma (mixed precision)", "cvt". `cvt.rs` adds random bits to the bits of the mantissa that
are cut off and rounds away from zero where that carries. Which of the 32 random bits an element gets is drawn there in
a figure: here the upper 16 serve the first two of the four, the lower 16 the others, below the last bit kept. No GPU at
hand has the instruction, so this layout was not compared with one. Nor has one `ue5m3`, whose bytes are those of
CUDA 13.5's `cuda_fp8.hpp`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from ptx_emulator.arithmetic.floating import FLOATING
from ptx_emulator.arithmetic.rounding import E2M1, E4M3, E5M2, NAN_BF16, UE5M3, SmallFloat, bf16_values, f16_values
from ptx_emulator.registers import U16, U32, Bits, Compute, Operation, halves

_READ = {"f16": f16_values, "bf16": bf16_values}
_INFINITY = {"f16": U16(0x7C00), "bf16": U16(0x7F80), "f32": U32(0x7F800000)}


def _xorsign(extreme: Compute, kind: str) -> Compute:
    """min or max of magnitudes, with the sign of the product; a NaN keeps none."""
    infinity = _INFINITY[kind]
    sign = infinity.dtype.type(1 << 8 * infinity.itemsize - 1)

    def compute(a: Bits, b: Bits) -> Bits:
        out = extreme(a & ~sign, b & ~sign)
        return np.where(out > infinity, out, out | (a ^ b) & sign)

    return compute


def _mixed(compute: Compute, read: Callable[[Bits], np.ndarray], narrow: int) -> Compute:
    """A float32 operation whose first `narrow` sources are 16-bit floats, which it represents exactly."""
    return lambda *arrays: compute(*(read(array).view(U32) if i < narrow else array for i, array in enumerate(arrays)))


# ---- stochastic rounding --------------------------------------------------------------------------------------------


def stochastic(small: SmallFloat, values: Bits, random: Bits) -> Bits:
    """Codes, uint32, of float32 patterns, saturating. random: 16 bits for each, in uint32"""
    magnitude = (values & U32(0x7FFFFFFF)).astype(np.uint64)
    # In units of 2^-64 of the step between neighbours: exact, because a step is at least 2^-23 of the value.
    exponent = np.maximum(magnitude >> np.uint64(23), np.uint64(1)).astype(np.int64)
    significand = (magnitude & np.uint64(0x7FFFFF)) | np.where(magnitude >> np.uint64(23) > 0, np.uint64(1 << 23), 0)
    lowest = 128 - small.bias  # the float32 exponent of the smallest normal
    drop = 23 - small.mantissa + np.maximum(lowest - exponent, 0)
    cut = np.minimum(drop, 62).astype(np.uint64)
    kept = significand >> cut
    fraction = significand & (np.uint64(1) << cut) - np.uint64(1)
    top = np.where(cut >= 16, fraction >> np.maximum(cut, 16) - np.uint64(16), 0).astype(np.uint64)
    kept = kept + (top + random.astype(np.uint64) >> np.uint64(16))
    rank = kept + (np.maximum(exponent - lowest, 0).astype(np.uint64) << np.uint64(small.mantissa))
    codes = np.minimum(rank, np.uint64(small.largest)).astype(U32)
    signed = codes | (values >> U32(31)) << U32(small.exponent + small.mantissa)
    return np.where(magnitude > 0x7F800000, U32(small.nan), signed)


def _stochastic_four(small: SmallFloat, relu: bool) -> Compute:
    width = U32(1 + small.exponent + small.mantissa)
    kind = U16 if width == 4 else U32

    def compute(a: Bits, b: Bits, e: Bits, f: Bits, random: Bits) -> Bits:
        out = U32(0)
        for values, bits in ((a, random >> U32(16)), (b, random >> U32(16)), (e, random), (f, random)):
            if relu:
                values = np.where(
                    (values >> U32(31) != 0) & (values & U32(0x7FFFFFFF) <= U32(0x7F800000)), U32(0), values
                )
            out = out << width | stochastic(small, values, bits & U32(0xFFFF))
        return out.astype(kind)

    return compute


# ---- ue8m0 ----------------------------------------------------------------------------------------------------------


def ue8m0(bits: Bits, up: bool, finite: bool) -> Bits:
    """The exponent of float32 magnitudes, rounded up or toward zero, uint32: 2^(code - 127); 255 is NaN."""
    magnitude = bits & U32(0x7FFFFFFF)
    code, rest = magnitude >> U32(23), magnitude & U32(0x7FFFFF)
    if up:
        # A subnormal is at most 2^-127, which is code 0, if its top bit stands alone.
        code = code + np.where(code > 0, rest > 0, rest > 0x400000)
    code = np.where(code >= 255, U32(254 if finite else 255), code.astype(U32))
    return np.where(magnitude > U32(0x7F800000), U32(255), code)


def _scale_pair(up: bool, finite: bool) -> Compute:
    return lambda high, low: (ue8m0(high, up, finite) << U32(8) | ue8m0(low, up, finite)).astype(U16)


def _scale_pair_of_bf16(up: bool, finite: bool) -> Compute:
    convert = _scale_pair(up, finite)
    return lambda pair: convert(pair & U32(0xFFFF0000), pair << U32(16))


def _scales_to_bf16(pair: Bits) -> Bits:
    table = np.arange(256, dtype=U32) << U32(7)
    table[0], table[255] = 0x40, NAN_BF16
    return table[pair >> U16(8)] << U32(16) | table[pair & U16(255)]


def _ue5m3_pair(high: Bits, low: Bits) -> Bits:
    """Nearest-even, saturating bytes of float32 magnitudes."""
    upper, lower = (UE5M3.encode(half & U32(0x7FFFFFFF)) for half in (high, low))
    return (upper << U32(8) | lower).astype(U16)


def _ue5m3_to_bf16(pair: Bits) -> Bits:
    # Shifted up 20 bits, a byte is a float32 whose exponent is 112 too small; its upper half is a bf16, exactly.
    values = (np.arange(256, dtype=U32) << U32(20)).view(np.float32) * np.float32(2.0**112)
    table = values.view(U32) >> U32(16)
    table[255] = NAN_BF16
    return table[pair >> U16(8)] << U32(16) | table[pair & U16(255)]


def _table() -> dict[str, Operation]:
    table: dict[str, Operation] = {}
    for head, nan, kind in product(("min", "max"), ("", ".NaN"), ("f32", "f16", "bf16")):
        compute = _xorsign(FLOATING[f"{head}{nan}.{kind}"].compute, kind)
        table[f"{head}{nan}.xorsign.abs.{kind}"] = Operation(compute, kind, (kind, kind))
        if kind != "f32":
            table[f"{head}{nan}.xorsign.abs.{kind}x2"] = Operation(halves(compute), f"{kind}x2", (f"{kind}x2",) * 2)
    for head, mode, sat, (kind, read) in product(
        ("fma", "add", "sub"), (".rn", ".rz", ".rm", ".rp", ""), ("", ".sat"), _READ.items()
    ):
        if head == "fma" and not mode:
            continue
        narrow = 2 if head == "fma" else 1
        compute = _mixed(FLOATING[f"{head}{mode}{sat}.f32"].compute, read, narrow)
        table[f"{head}{mode}{sat}.f32.{kind}"] = Operation(compute, "f32", (*(kind,) * narrow, "f32"))
    for relu, (name, small) in product(("", ".relu"), {"e2m1": E2M1, "e4m3": E4M3, "e5m2": E5M2}.items()):
        result = "b16" if small is E2M1 else "b32"
        compute = _stochastic_four(small, bool(relu))
        table[f"cvt.rs{relu}.satfinite.{name}x4.f32"] = Operation(compute, result, ("f32",) * 4 + ("b32",))
    for mode, finite in product(("rz", "rp"), ("", ".satfinite")):
        how = mode == "rp", bool(finite)
        table[f"cvt.{mode}{finite}.ue8m0x2.f32"] = Operation(_scale_pair(*how), "b16", ("f32", "f32"))
        table[f"cvt.{mode}{finite}.ue8m0x2.bf16x2"] = Operation(_scale_pair_of_bf16(*how), "b16", ("b32",))
    table["cvt.rn.bf16x2.ue8m0x2"] = Operation(_scales_to_bf16, "b32", ("b16",))
    table["cvt.rn.satfinite.ue5m3x2.f32"] = Operation(_ue5m3_pair, "b16", ("f32", "f32"))
    table["cvt.rn.bf16x2.ue5m3x2"] = Operation(_ue5m3_to_bf16, "b32", ("b16",))
    return table


MIXED = _table()
