"""`cvt` between float32, the 16-bit floats and the packed 8-bit and 4-bit formats, and products of packed f16."""

from __future__ import annotations

import numpy as np

from ptx_emulator.arithmetic.small_floats import E2M1, E4M3
from ptx_emulator.compiled import opcodes as op
from ptx_emulator.compiled.jit import as_bits, as_float, part
from ptx_emulator.compiled.singles import MAGNITUDE, NAN

NAN_16 = np.uint32(0x7FFF)
INFINITY = np.uint32(0x7F800000)
OF_E4M3 = E4M3.decode_table().astype(np.uint32)
OF_E2M1 = E2M1.decode_table().astype(np.uint32)


@part
def of_half(half):
    """An f16 pattern as float32: its bits are those of the value times 2^-112, except for infinity and NaN."""
    magnitude = half & np.uint32(0x7FFF)
    value = as_float(np.uint32(magnitude << np.uint32(13))) * np.float32(2.0**112)
    bits = as_bits(value) if magnitude < np.uint32(0x7C00) else np.uint32(magnitude << np.uint32(13) | INFINITY)
    return as_float(np.uint32(bits | (half & np.uint32(0x8000)) << np.uint32(16)))


@part
def to_half(value):
    """float32 to f16, to nearest-even."""
    bits = as_bits(value)
    magnitude = bits & MAGNITUDE
    # Adding 0.5 rounds a value below 2^-14 to a multiple of 2^-24.
    tiny = np.uint32(as_bits(np.float32(as_float(magnitude) + np.float32(0.5))) - np.uint32(0x3F000000))
    normal = (magnitude + np.uint32(0xFFF) + (magnitude >> np.uint32(13) & np.uint32(1))) >> np.uint32(13)
    normal = min(np.uint32(normal - np.uint32(112 << 10)), np.uint32(0x7C00))
    out = tiny if magnitude < np.uint32(0x38800000) else normal
    signed = out | (bits >> np.uint32(16) & np.uint32(0x8000))
    return np.uint32(NAN_16 if magnitude > INFINITY else signed)


@part
def _to_half_toward_zero(value):
    bits = as_bits(value)
    magnitude = bits & MAGNITUDE
    tiny = np.uint32(min(as_float(magnitude), np.float32(1)) * np.float32(2.0**24))
    normal = np.uint32((magnitude >> np.uint32(13)) - np.uint32(112 << 10))
    normal = np.uint32(0x7C00) if magnitude == INFINITY else min(normal, np.uint32(0x7BFF))
    out = tiny if magnitude < np.uint32(0x38800000) else normal
    signed = out | (bits >> np.uint32(16) & np.uint32(0x8000))
    return np.uint32(NAN_16 if magnitude > INFINITY else signed)


@part
def _to_bf16(bits, nearest):
    rounded = np.uint64(bits) + (
        np.uint64(0x7FFF) + np.uint64(bits >> np.uint32(16) & np.uint32(1)) if nearest else np.uint64(0)
    )
    return np.uint32(NAN_16 if bits & MAGNITUDE > INFINITY else np.uint32(rounded >> np.uint64(16)))


@part
def _encode(bits, exponent, mantissa, largest, nan):
    """The code of a float32 in a small format; see `ptx_emulator.arithmetic.small_floats`."""
    magnitude = bits & MAGNITUDE
    bias = (1 << exponent - 1) - 1
    drop = np.uint32(23 - mantissa)
    half_less_one = np.uint32((1 << 22 - mantissa) - 1)
    ranks = (magnitude + half_less_one + (magnitude >> drop & np.uint32(1))) >> drop
    ranks = np.uint32(ranks - np.uint32(127 - bias << mantissa))
    steps = min(as_float(magnitude) * np.float32(2.0 ** (bias - 1 + mantissa)), np.float32(1 << mantissa))
    # Adding 2^23 rounds to an integer, to nearest-even.
    subnormal = np.uint32(as_bits(np.float32(steps + np.float32(8388608.0))) & np.uint32(0x7FFFFF))
    code = subnormal if magnitude < np.uint32(128 - bias << 23) else min(ranks, np.uint32(largest))
    signed = code | (bits >> np.uint32(31)) << np.uint32(exponent + mantissa)
    return np.uint32(np.uint32(nan) if magnitude > INFINITY else signed)


@part
def conversions(code, out, x, y, fx, fy):
    """The first source of a packed conversion goes to the upper half."""
    n = out.size
    if code == op.F32_F16:
        for i in range(n):
            value = of_half(x[i])
            out[i] = as_bits(value) if value == value else NAN
    elif code == op.F32_BF16:
        for i in range(n):
            out[i] = x[i] << np.uint32(16)
    elif code == op.F16_F32:
        for i in range(n):
            out[i] = to_half(fx[i])
    elif code == op.BF16_F32:
        for i in range(n):
            out[i] = _to_bf16(x[i], True)
    elif code == op.F16X2_F32:
        for i in range(n):
            out[i] = to_half(fx[i]) << np.uint32(16) | to_half(fy[i])
    elif code == op.F16X2_F32_RZ:
        for i in range(n):
            out[i] = _to_half_toward_zero(fx[i]) << np.uint32(16) | _to_half_toward_zero(fy[i])
    elif code == op.BF16X2_F32:
        for i in range(n):
            out[i] = _to_bf16(x[i], True) << np.uint32(16) | _to_bf16(y[i], True)
    elif code == op.BF16X2_F32_RZ:
        for i in range(n):
            out[i] = _to_bf16(x[i], False) << np.uint32(16) | _to_bf16(y[i], False)
    elif code == op.E4M3X2_F32:
        for i in range(n):
            out[i] = _encode(x[i], 4, 3, 0x7E, 0x7F) << np.uint32(8) | _encode(y[i], 4, 3, 0x7E, 0x7F)
    elif code == op.E2M1X2_F32:
        for i in range(n):
            out[i] = _encode(x[i], 2, 1, 0x7, 0x7) << np.uint32(4) | _encode(y[i], 2, 1, 0x7, 0x7)
    elif code == op.F16X2_E4M3X2:
        for i in range(n):
            out[i] = OF_E4M3[x[i] >> np.uint32(8) & np.uint32(255)] << np.uint32(16) | OF_E4M3[x[i] & np.uint32(255)]
    elif code == op.F16X2_E2M1X2:
        for i in range(n):
            out[i] = OF_E2M1[x[i] >> np.uint32(4) & np.uint32(15)] << np.uint32(16) | OF_E2M1[x[i] & np.uint32(15)]
    elif code == op.F32_S32:
        for i in range(n):
            out[i] = as_bits(np.float32(np.int32(x[i])))
    elif code == op.F32_U32:
        for i in range(n):
            out[i] = as_bits(np.float32(x[i]))


@part
def multiply_halves(out, x, y):
    """`mul.f16x2`: a product of two f16 is exact in float32."""
    for i in range(out.size):
        low = to_half(of_half(x[i] & np.uint32(0xFFFF)) * of_half(y[i] & np.uint32(0xFFFF)))
        high = to_half(of_half(x[i] >> np.uint32(16)) * of_half(y[i] >> np.uint32(16)))
        out[i] = low | high << np.uint32(16)
