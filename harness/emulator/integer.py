"""Integer, logic and bit-field instructions. All arithmetic wraps; a shift by the width or more gives zeros or sign bits, as PTX defines."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np

from harness.emulator.operation import (
    I32,
    I64,
    SIGNED,
    U8,
    U32,
    U64,
    UNSIGNED,
    Bits,
    Compute,
    Operation,
    halves,
    same_shape,
)

WIDTHS = {"16": 2, "32": 4, "64": 8}


def _signed(compute: Compute, size: int) -> Compute:
    """The function applied to the registers' two's complement values."""
    signed, unsigned = SIGNED[size], UNSIGNED[size]
    return lambda *arrays: compute(*(array.view(signed) for array in arrays)).view(unsigned)


def _quotient_unsigned(a: Bits, b: Bits) -> Bits:
    quotient = a // np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, ~b.dtype.type(0), quotient)


def _remainder_unsigned(a: Bits, b: Bits) -> Bits:
    return np.where(b == 0, a, a % np.where(b == 0, b.dtype.type(1), b))


def _magnitude(a: Bits) -> Bits:
    """|a| of a signed array as unsigned; the most negative value keeps its bits, which is right."""
    return np.abs(a).view(UNSIGNED[a.itemsize])


def _quotient_signed(a: Bits, b: Bits) -> Bits:
    quotient = _quotient_unsigned(_magnitude(a), _magnitude(b)).view(a.dtype)
    return np.where(b == 0, a.dtype.type(-1), np.where((a < 0) != (b < 0), -quotient, quotient))


def _remainder_signed(a: Bits, b: Bits) -> Bits:
    remainder = _remainder_unsigned(_magnitude(a), _magnitude(b)).view(a.dtype)
    return np.where(a < 0, -remainder, remainder)


def _high_product_u64(a: Bits, b: Bits) -> Bits:
    low = U64(0xFFFFFFFF)
    half = U64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    cross = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (cross & low)
    return a1 * b1 + (cross >> half) + (other >> half)


def _high_product_s64(a: Bits, b: Bits) -> Bits:
    high = _high_product_u64(a, b)
    zero = U64(0)
    high = high - np.where(a.view(I64) < 0, b, zero)
    return high - np.where(b.view(I64) < 0, a, zero)


def _wide(size: int, is_signed: bool) -> Compute:
    kinds = SIGNED if is_signed else UNSIGNED
    narrow, wide, out = kinds[size], kinds[2 * size], UNSIGNED[2 * size]
    return lambda a, b: (a.view(narrow).astype(wide) * b.view(narrow).astype(wide)).view(out)


def _high(size: int, is_signed: bool) -> Compute:
    if size == 8:
        return _high_product_s64 if is_signed else _high_product_u64
    multiply, out, bits = _wide(size, is_signed), UNSIGNED[size], UNSIGNED[2 * size](8 * size)
    return lambda a, b: (multiply(a, b) >> bits).astype(out)


def _then_add(compute: Compute) -> Compute:
    return lambda a, b, c: compute(a, b) + c


def _saturating_add(a: Bits, b: Bits) -> Bits:
    return np.clip(a.view(I32).astype(I64) + b.view(I32), -(1 << 31), (1 << 31) - 1).astype(I32).view(U32)


def _saturating_subtract(a: Bits, b: Bits) -> Bits:
    return np.clip(a.view(I32).astype(I64) - b.view(I32), -(1 << 31), (1 << 31) - 1).astype(I32).view(U32)


def _shift_left(size: int) -> Compute:
    kind, bits = UNSIGNED[size], 8 * size

    def shift(a: Bits, n: Bits) -> Bits:
        if n.size == 1:
            amount = int(n.item())
            return a << kind(amount) if amount < bits else np.zeros_like(a)
        return np.where(n < bits, a << np.minimum(n, U32(bits - 1)).astype(kind), kind(0))

    return shift


def _shift_right(size: int, is_signed: bool) -> Compute:
    kind, signed, bits = UNSIGNED[size], SIGNED[size], 8 * size

    def shift_signed(a: Bits, n: Bits) -> Bits:
        return (a.view(signed) >> np.minimum(n, U32(bits - 1)).astype(signed)).view(kind)

    def shift_unsigned(a: Bits, n: Bits) -> Bits:
        if n.size == 1:
            amount = int(n.item())
            return a >> kind(amount) if amount < bits else np.zeros_like(a)
        return np.where(n < bits, a >> np.minimum(n, U32(bits - 1)).astype(kind), kind(0))

    return shift_signed if is_signed else shift_unsigned


def _funnel(left: bool, wrap: bool) -> Compute:
    def shift(low: Bits, high: Bits, n: Bits) -> Bits:
        n = n & U32(31) if wrap else np.minimum(n, U32(32))
        both = high.astype(U64) << U64(32) | low
        return ((both << n.astype(U64)) >> U64(32) if left else both >> n.astype(U64)).astype(U32)

    return shift


def _count_leading_zeros(size: int) -> Compute:
    bits = 8 * size

    def count(a: Bits) -> Bits:
        zeros = np.zeros(a.shape, U32)
        step = bits // 2
        while step:
            small = a < a.dtype.type(1) << a.dtype.type(bits - step)
            zeros += small * U32(step)
            a = np.where(small, a << a.dtype.type(step), a)
            step //= 2
        return zeros + (a == 0)

    return lambda a: count(a).astype(U32)


def _find_leading(size: int, is_signed: bool, as_shift: bool) -> Compute:
    count, last = _count_leading_zeros(size), U32(8 * size - 1)
    signed = SIGNED[size]

    def find(a: Bits) -> Bits:
        a = np.where(a.view(signed) < 0, ~a, a) if is_signed else a
        zeros = count(a)
        return np.where(zeros > last, U32(0xFFFFFFFF), zeros if as_shift else last - zeros)

    return find


_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], U8)


def _reverse(a: Bits) -> Bits:
    return np.ascontiguousarray(_REVERSED[a.view(U8)]).view(a.dtype).byteswap()


def _extract(size: int, is_signed: bool) -> Compute:
    kind, bits = UNSIGNED[size], 8 * size
    right, left = _shift_right(size, is_signed), _shift_left(size)

    def extract(a: Bits, position: Bits, length: Bits) -> Bits:
        position, length = position & U32(255), length & U32(255)
        # The field is moved up against the top bit, so that shifting back down extends it.
        end = np.minimum(position + length, U32(bits))
        kept = end - np.minimum(position, end)
        field = right(left(a, U32(bits) - end), np.minimum(U32(bits) - kept, U32(bits)))
        if is_signed:
            # A field that runs past the top, or starts there, is filled with the sign bit.
            top = np.where(a.view(SIGNED[size]) < 0, ~kind(0), kind(0))
            past = right(a, position)
            field = np.where(position >= bits, top, np.where(position + length > bits, past, field))
        return np.where(length == 0, kind(0), field)

    return extract


def _insert(size: int) -> Compute:
    kind, left = UNSIGNED[size], _shift_left(size)

    def insert(a: Bits, b: Bits, position: Bits, length: Bits) -> Bits:
        position, length = position & U32(255), length & U32(255)
        mask = left(left(kind(1) + np.zeros_like(a), length) - kind(1), position)
        return (b & ~mask) | (left(a, position) & mask)

    return insert


def _dot4(a_signed: bool, b_signed: bool) -> Compute:
    kinds = (U8, SIGNED[1])

    def dot(a: Bits, b: Bits, c: Bits) -> Bits:
        a, b = same_shape(a, b)
        products = a.view(kinds[a_signed]).astype(I32) * b.view(kinds[b_signed]).astype(I32)
        return products.reshape(*a.shape, 4).sum(axis=-1, dtype=I32).view(U32) + c

    return dot


@cache
def permute(selector: int) -> Compute:
    """`prmt` with a constant selector: byte i of the result is byte `selector >> 4i & 7` of (b, a), or that byte's sign eight times."""
    picks = [selector >> 4 * i & 15 for i in range(4)]
    parts: list[
        tuple[int, int, int]
    ] = []  # source, shift left (right if negative), mask of bytes taken with that shift
    for target, pick in enumerate(picks):
        source, shift = pick >> 2 & 1, 8 * (target - (pick & 3))
        known = next((i for i, part in enumerate(parts) if part[:2] == (source, shift)), None)
        if pick & 8:
            continue
        if known is None:
            parts.append((source, shift, 0xFF << 8 * target))
        else:
            parts[known] = (source, shift, parts[known][2] | 0xFF << 8 * target)
    signs = [(pick >> 2 & 1, pick & 3, target) for target, pick in enumerate(picks) if pick & 8]

    def move(register: Bits, shift: int, mask: int) -> Bits:
        if shift > 0:
            register = register << U32(shift)
            return register if (0xFFFFFFFF << shift) & 0xFFFFFFFF == mask else register & U32(mask)
        if shift < 0:
            register = register >> U32(-shift)
            return register if 0xFFFFFFFF >> -shift == mask else register & U32(mask)
        return register & U32(mask)

    def compute(a: Bits, b: Bits) -> Bits:
        out: Bits | None = None
        for source, shift, mask in parts:
            moved = move(b if source else a, shift, mask)
            out = moved if out is None else out | moved
        for source, byte, target in signs:
            sign = ((b if source else a).view(I32) << I32(24 - 8 * byte) >> I32(31)).view(U32) & U32(0xFF << 8 * target)
            out = sign if out is None else out | sign
        return out

    return compute


def _permute_any(a: Bits, b: Bits, selector: Bits) -> Bits:
    if selector.size == 1:
        return permute(int(selector.item()) & 0xFFFF)(a, b)
    both = b.astype(U64) << U64(32) | a
    out = U32(0)
    for i in range(4):
        pick = selector >> U32(4 * i) & U32(15)
        byte = (both >> (U64(8) * (pick & U32(7)))).astype(U32) & U32(0xFF)
        byte = np.where(pick & U32(8), U32(0xFF) * (byte >> U32(7)), byte)
        out = out | byte << U32(8 * i)
    return out


_TWO_INPUT = (  # by truth table: bit 2a + b
    lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), a.dtype),
    lambda a, b: ~(a | b),
    lambda a, b: ~a & b,
    lambda a, b: ~a,
    lambda a, b: a & ~b,
    lambda a, b: ~b,
    lambda a, b: a ^ b,
    lambda a, b: ~(a & b),
    lambda a, b: a & b,
    lambda a, b: ~(a ^ b),
    lambda a, b: b,
    lambda a, b: ~a | b,
    lambda a, b: a,
    lambda a, b: a | ~b,
    lambda a, b: a | b,
    lambda a, b: np.full(np.broadcast_shapes(a.shape, b.shape), ~a.dtype.type(0)),
)


def lookup3(table: int) -> Compute:
    """`lop3` with truth table `table`: bit 4a + 2b + c of it for each bit of a, b, c."""
    with_c = sum((table >> 2 * i + 1 & 1) << i for i in range(4))
    without_c = sum((table >> 2 * i & 1) << i for i in range(4))
    one, zero = _TWO_INPUT[with_c], _TWO_INPUT[without_c]
    if with_c == without_c:
        return lambda a, b, c: one(a, b)
    if with_c == 15 - without_c:
        return lambda a, b, c: zero(a, b) ^ c
    if without_c == 0:
        return lambda a, b, c: one(a, b) & c
    if with_c == 15:
        return lambda a, b, c: zero(a, b) | c
    if with_c == 0:
        return lambda a, b, c: zero(a, b) & ~c
    if without_c == 15:
        return lambda a, b, c: one(a, b) | ~c
    return lambda a, b, c: (one(a, b) & c) | (zero(a, b) & ~c)


def _table() -> dict[str, Operation]:
    table: dict[str, Operation] = {}

    def define(name: str, compute: Compute, result: str, *sources: str) -> None:
        table[name] = Operation(compute, result, sources)

    for (width, size), sign in product(WIDTHS.items(), "us"):
        kind = f"{sign}{width}"
        is_signed = sign == "s"
        wrap = _signed if is_signed else lambda compute, size: compute
        define(f"add.{kind}", np.add, kind, kind, kind)
        define(f"sub.{kind}", np.subtract, kind, kind, kind)
        define(f"mul.lo.{kind}", np.multiply, kind, kind, kind)
        define(f"mul.hi.{kind}", _high(size, is_signed), kind, kind, kind)
        define(f"mad.lo.{kind}", _then_add(np.multiply), kind, kind, kind, kind)
        define(f"mad.hi.{kind}", _then_add(_high(size, is_signed)), kind, kind, kind, kind)
        define(f"min.{kind}", wrap(np.minimum, size), kind, kind, kind)
        define(f"max.{kind}", wrap(np.maximum, size), kind, kind, kind)
        quotient = _signed(_quotient_signed, size) if is_signed else _quotient_unsigned
        remainder = _signed(_remainder_signed, size) if is_signed else _remainder_unsigned
        define(f"div.{kind}", quotient, kind, kind, kind)
        define(f"rem.{kind}", remainder, kind, kind, kind)
        define(f"shr.{kind}", _shift_right(size, is_signed), kind, kind, "u32")
        if size < 8:
            double = f"{sign}{2 * int(width)}"
            define(f"mul.wide.{kind}", _wide(size, is_signed), double, kind, kind)
            define(f"mad.wide.{kind}", _then_add(_wide(size, is_signed)), double, kind, kind, double)
        if size > 2:
            define(f"bfe.{kind}", _extract(size, is_signed), kind, kind, "u32", "u32")
            define(f"bfind.{kind}", _find_leading(size, is_signed, False), "u32", kind)
            define(f"bfind.shiftamt.{kind}", _find_leading(size, is_signed, True), "u32", kind)
    for width, size in WIDTHS.items():
        bits = f"b{width}"
        define(f"neg.s{width}", np.negative, bits, bits)
        define(f"abs.s{width}", _signed(np.abs, size), bits, bits)
        define(f"and.{bits}", np.bitwise_and, bits, bits, bits)
        define(f"or.{bits}", np.bitwise_or, bits, bits, bits)
        define(f"xor.{bits}", np.bitwise_xor, bits, bits, bits)
        define(f"not.{bits}", np.bitwise_not, bits, bits)
        define(f"cnot.{bits}", lambda a: (a == 0).astype(a.dtype), bits, bits)
        define(f"shl.{bits}", _shift_left(size), bits, bits, "u32")
        define(f"shr.{bits}", _shift_right(size, False), bits, bits, "u32")
        if size > 2:
            define(f"popc.{bits}", lambda a: np.bitwise_count(a).astype(U32), "u32", bits)
            define(f"clz.{bits}", _count_leading_zeros(size), "u32", bits)
            define(f"brev.{bits}", _reverse, bits, bits)
            define(f"bfi.{bits}", _insert(size), bits, bits, bits, "u32", "u32")
    for name in ("add", "sub"):
        define(f"{name}.sat.s32", _saturating_add if name == "add" else _saturating_subtract, "s32", "s32", "s32")
    for name, compute in (("min", np.minimum), ("max", np.maximum)):
        define(f"{name}.u16x2", halves(compute), "b32", "b32", "b32")
        define(f"{name}.s16x2", halves(_signed(compute, 2)), "b32", "b32", "b32")
        define(f"{name}.relu.s32", _relu(_signed(compute, 4)), "s32", "s32", "s32")
    for kind in ("u16x2", "s16x2"):
        define(f"add.{kind}", halves(np.add), "b32", "b32", "b32")
    for (name, left), (mode, wraps) in product((("l", True), ("r", False)), (("wrap", True), ("clamp", False))):
        define(f"shf.{name}.{mode}.b32", _funnel(left, wraps), "b32", "b32", "b32", "u32")
    for a, b in product("us", "us"):
        define(f"dp4a.{a}32.{b}32", _dot4(a == "s", b == "s"), "u32", "u32", "u32", "u32")
    define("prmt.b32", _permute_any, "b32", "b32", "b32", "b32")
    define("mul24.lo.u32", lambda a, b: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)), "u32", "u32", "u32")
    for name, compute in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        define(f"{name}.pred", compute, "pred", "pred", "pred")
    define("not.pred", np.logical_not, "pred", "pred")
    return table


def _relu(compute: Compute) -> Compute:
    return lambda a, b: np.maximum(compute(a, b).view(I32), I32(0)).view(U32)


INTEGER = _table()
