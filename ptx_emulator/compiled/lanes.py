"""Arithmetic of the compiled interpreter: the compiled forms of `ptx_emulator.arithmetic`, for rows of lanes.

A form is an expression of the operands x, y and z as patterns, of sx, sy and sz as signed integers, of fx, fy and fz as
floats, of `immediate`, and of the functions here. Its result is the pattern of the result; bits that do not fit fall
off. It has selects in place of branches wherever that lets LLVM vectorise the loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from numpy import float32, float64, int32, int64, sqrt, uint32, uint64  # noqa: F401 forms name them

from ptx_emulator.arithmetic.rounding import E2M1, E4M3
from ptx_emulator.compiled import opcodes
from ptx_emulator.compiled.jit import as_bits, as_double, as_float, as_wide_bits, fused, part  # noqa: F401 forms name some

NAN, NAN_16, NAN_64 = uint32(0x7FFFFFFF), uint32(0x7FFF), uint64(0xFFF8000000000000)
TOP, MAGNITUDE, ONES = uint32(0x80000000), uint32(0x7FFFFFFF), uint32(0xFFFFFFFF)
INFINITY = uint32(0x7F800000)
OF_E4M3, OF_E2M1 = (table.decode_table().astype(uint32) for table in (E4M3, E2M1))

# ---- integers -------------------------------------------------------------------------------------------------------


@part
def ones(x):
    """How many bits are 1."""
    v = x - ((x >> uint32(1)) & uint32(0x55555555))
    v = (v & uint32(0x33333333)) + ((v >> uint32(2)) & uint32(0x33333333))
    v = (v + (v >> uint32(4))) & uint32(0x0F0F0F0F)
    return uint32(v * uint32(0x01010101)) >> uint32(24)


@part
def leading_zeros(x):
    count, v = 0, x
    while count < 32 and v & TOP == 0:
        v, count = uint32(v << uint32(1)), count + 1
    return count


@part
def divided(x, y):
    """The quotient of signed numbers, cut off toward zero; all ones by 0."""
    a, b = int64(x), int64(y)
    quotient = abs(a) // max(abs(b), int64(1))
    quotient = quotient if (a < 0) == (b < 0) else -quotient
    return uint32(quotient & int64(0xFFFFFFFF)) if b != 0 else ONES


@part
def remainder(x, y):
    """The remainder of `divided`, with the sign of x; all ones for a divisor of 0."""
    a, b = int64(x), int64(y)
    rest = abs(a) % max(abs(b), int64(1))
    return uint32((-rest if a < 0 else rest) & int64(0xFFFFFFFF)) if b != 0 else ONES


@part
def looked_up(a, b, c, table):
    """`lop3`: the truth table's bit 4a + 2b + c for each bit of a, b, c."""
    m0, m1 = ONES if table & 1 else uint32(0), ONES if table & 2 else uint32(0)
    m2, m3 = ONES if table & 4 else uint32(0), ONES if table & 8 else uint32(0)
    m4, m5 = ONES if table & 16 else uint32(0), ONES if table & 32 else uint32(0)
    m6, m7 = ONES if table & 64 else uint32(0), ONES if table & 128 else uint32(0)
    without_a = (~b & ((~c & m0) | (c & m1))) | (b & ((~c & m2) | (c & m3)))
    with_a = (~b & ((~c & m4) | (c & m5))) | (b & ((~c & m6) | (c & m7)))
    return (~a & without_a) | (a & with_a)


@part
def permuted(a, b, selector):
    both = uint64(b) << uint64(32) | uint64(a)
    out = uint32(0)
    for k in range(4):
        pick = uint64(selector) >> uint64(4 * k) & uint64(15)
        byte = both >> (uint64(8) * (pick & uint64(7))) & uint64(0xFF)
        sign = uint64(0xFF) * (byte >> uint64(7))
        byte = sign if pick & uint64(8) else byte
        out = uint32(out | uint32(byte << uint64(8 * k)))
    return out


@part
def picked(a, b, selector):
    """`prmt` with a constant selector that asks for no sign: byte k is byte `digit & 7` of (b, a)."""
    s0, s1 = uint64(8 * (selector & 7)), uint64(8 * (selector >> 4 & 7))
    s2, s3 = uint64(8 * (selector >> 8 & 7)), uint64(8 * (selector >> 12 & 7))
    byte, both = uint64(0xFF), uint64(b) << uint64(32) | uint64(a)
    low = (both >> s0 & byte) | (both >> s1 & byte) << uint64(8)
    return low | (both >> s2 & byte) << uint64(16) | (both >> s3 & byte) << uint64(24)


# ---- packed 16-bit floats -------------------------------------------------------------------------------------------


@part
def magnitude_x2(x, infinity):
    low, high = x & uint32(0x7FFF), x >> uint32(16) & uint32(0x7FFF)
    low = NAN_16 if low > infinity else low
    high = NAN_16 if high > infinity else high
    return low | high << uint32(16)


@part
def extreme_x2(x, y, infinity, largest):
    low = _extreme_16(x & uint32(0xFFFF), y & uint32(0xFFFF), infinity, largest)
    return low | _extreme_16(x >> uint32(16), y >> uint32(16), infinity, largest) << uint32(16)


@part
def _extreme_16(a, b, infinity, largest):
    """min or max of 16-bit floats as patterns: a NaN is dropped, -0 is below +0."""
    a_key = (~a & uint32(0xFFFF)) if a & uint32(0x8000) else a | uint32(0x8000)
    b_key = (~b & uint32(0xFFFF)) if b & uint32(0x8000) else b | uint32(0x8000)
    out = a if (a_key >= b_key) == largest else b
    a_nan, b_nan = a & uint32(0x7FFF) > infinity, b & uint32(0x7FFF) > infinity
    out = b if a_nan else out
    out = a if b_nan else out
    return uint32(uint32(0x7FFF) if a_nan and b_nan else out)


@part
def product_x2(x, y):
    """`mul.f16x2`: a product of two f16 is exact in float32."""
    low = to_half(of_half(x & uint32(0xFFFF)) * of_half(y & uint32(0xFFFF)))
    return low | to_half(of_half(x >> uint32(16)) * of_half(y >> uint32(16))) << uint32(16)


# ---- float32 and float64 --------------------------------------------------------------------------------------------


@part
def pattern(value):
    """The bits of a result, in which every NaN is one."""
    return as_bits(value) if value == value else NAN


@part
def odd_sum(a, b):
    """a + b of float64, rounded to odd; see `ptx_emulator.arithmetic.rounding`."""
    total = a + b
    from_b = total - a
    error = (a - (total - from_b)) + (b - from_b)
    bits = as_wide_bits(total)
    outwards = int64(1) if (error > 0) == (total > 0) else int64(-1)
    inexact = (abs(error) > 0) & (bits & int64(1) == 0)
    return as_double(bits + outwards if inexact else bits)


@part
def toward_zero(value):
    """The pattern of a float64 rounded to float32 toward zero."""
    near = float32(value)
    bits = pattern(near)
    return uint32(bits - uint32(1)) if abs(float64(near)) > abs(value) else bits


@part
def extreme(a, b, largest):
    """min or max of float32 patterns: a NaN is dropped, -0 is below +0."""
    x, y = as_float(a), as_float(b)
    out = a if (x > y) == largest else b
    out = (a & b if largest else a | b) if x == y else out
    out = b if x != x else out
    out = (NAN if x != x else a) if y != y else out
    return uint32(out)


@part
def wide_pattern(value):
    return uint64(as_wide_bits(value)) if value == value else NAN_64


# ---- conversions ----------------------------------------------------------------------------------------------------


@part
def of_half(half):
    """An f16 pattern as float32: its bits are those of the value times 2^-112, except for infinity and NaN."""
    magnitude = half & uint32(0x7FFF)
    value = as_float(uint32(magnitude << uint32(13))) * float32(2.0**112)
    bits = as_bits(value) if magnitude < uint32(0x7C00) else uint32(magnitude << uint32(13) | INFINITY)
    return as_float(uint32(bits | (half & uint32(0x8000)) << uint32(16)))


@part
def to_half(value):
    """float32 to f16, to nearest-even."""
    bits = as_bits(value)
    magnitude = bits & MAGNITUDE
    # Adding 0.5 rounds a value below 2^-14 to a multiple of 2^-24.
    tiny = uint32(as_bits(float32(as_float(magnitude) + float32(0.5))) - uint32(0x3F000000))
    normal = (magnitude + uint32(0xFFF) + (magnitude >> uint32(13) & uint32(1))) >> uint32(13)
    normal = min(uint32(normal - uint32(112 << 10)), uint32(0x7C00))
    out = tiny if magnitude < uint32(0x38800000) else normal
    signed = out | (bits >> uint32(16) & uint32(0x8000))
    return uint32(NAN_16 if magnitude > INFINITY else signed)


@part
def half_toward_zero(value):
    bits = as_bits(value)
    magnitude = bits & MAGNITUDE
    tiny = uint32(min(as_float(magnitude), float32(1)) * float32(2.0**24))
    normal = uint32((magnitude >> uint32(13)) - uint32(112 << 10))
    normal = uint32(0x7C00) if magnitude == INFINITY else min(normal, uint32(0x7BFF))
    out = tiny if magnitude < uint32(0x38800000) else normal
    signed = out | (bits >> uint32(16) & uint32(0x8000))
    return uint32(NAN_16 if magnitude > INFINITY else signed)


@part
def to_bf16(bits, nearest):
    rounded = uint64(bits) + (uint64(0x7FFF) + uint64(bits >> uint32(16) & uint32(1)) if nearest else uint64(0))
    return uint32(NAN_16 if bits & MAGNITUDE > INFINITY else uint32(rounded >> uint64(16)))


@part
def encode(bits, exponent, mantissa, largest, nan):
    """The code of a float32 in a small format; see `ptx_emulator.arithmetic.rounding`."""
    magnitude = bits & MAGNITUDE
    bias = (1 << exponent - 1) - 1
    drop = uint32(23 - mantissa)
    half_less_one = uint32((1 << 22 - mantissa) - 1)
    ranks = (magnitude + half_less_one + (magnitude >> drop & uint32(1))) >> drop
    ranks = uint32(ranks - uint32(127 - bias << mantissa))
    steps = min(as_float(magnitude) * float32(2.0 ** (bias - 1 + mantissa)), float32(1 << mantissa))
    # Adding 2^23 rounds to an integer, to nearest-even.
    subnormal = uint32(as_bits(float32(steps + float32(8388608.0))) & uint32(0x7FFFFF))
    code = subnormal if magnitude < uint32(128 - bias << 23) else min(ranks, uint32(largest))
    signed = code | (bits >> uint32(31)) << uint32(exponent + mantissa)
    return uint32(uint32(nan) if magnitude > INFINITY else signed)


# ---- rows of lanes --------------------------------------------------------------------------------------------------

_TOGETHER = 12  # forms of one compiled function, which LLVM compiles the slower the larger it is
_NARROW = "code, immediate, out, x, y, z"
_ALL = f"{_NARROW}, wide_out, wide_x, wide_y, wide_z"


def _lines(number: int, form: opcodes.Form) -> Iterator[str]:
    target, *sources = form.wide
    reads = {}
    for name, wide in zip("xyz", sources, strict=False):
        element = f"wide_{name}[i]" if wide else f"{name}[i]"
        signed = f"int64({element})" if wide else f"int32({element})"
        floating = f"as_double(int64({element}))" if wide else f"as_float({element})"
        reads |= {name: element, f"s{name}": signed, f"f{name}": floating}
    result = re.sub(r"\b[sf]?[xyz]\b", lambda name: reads[name[0]], form.lane)
    yield f"    if code == {number}:"
    yield "        for i in range(out.size):"
    yield f"            {'wide_out' if target else 'out'}[i] = {result}"
    yield "        return"


def _compiled(numbers: range, rows: str) -> Callable[..., None]:
    """A function that computes the forms of these numbers for the lanes of rows; a form uses those of its operands."""
    space, lines = dict(globals()), [f"def forms({rows}):"]
    for first in numbers[::_TOGETHER]:
        some, name = range(first, min(first + _TOGETHER, numbers.stop)), f"forms_from_{first}"
        source = [f"def {name}({rows}):", *(line for each in some for line in _lines(each, opcodes.FORMS[each]))]
        exec("\n".join(source), space)
        space[name] = part(space[name])
        lines += [f"    if code < {some.stop}:", f"        return {name}({rows})"]
    exec("\n".join(lines), space)
    return part(space["forms"])


narrow_forms = _compiled(range(opcodes.FIRST_WIDE), _NARROW)
wide_forms = _compiled(range(opcodes.FIRST_WIDE, len(opcodes.FORMS)), _ALL)
