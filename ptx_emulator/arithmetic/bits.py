"""Shifts, bit fields, byte permutations and three-input logic.

A shift by the width or more gives zeros or sign bits, as PTX defines.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ptx_emulator.registers import I32, SIGNED, U8, U32, U64, UNSIGNED, Bits, Compute


def shift_left(size: int) -> Compute:
    kind, bits = UNSIGNED[size], 8 * size

    def shift(a: Bits, n: Bits) -> Bits:
        if n.size == 1:
            amount = int(n.item())
            return a << kind(amount) if amount < bits else np.zeros_like(a)
        return np.where(n < bits, a << np.minimum(n, U32(bits - 1)).astype(kind), kind(0))

    return shift


def shift_right(size: int, is_signed: bool) -> Compute:
    kind, signed, bits = UNSIGNED[size], SIGNED[size], 8 * size

    def shift_signed(a: Bits, n: Bits) -> Bits:
        return (a.view(signed) >> np.minimum(n, U32(bits - 1)).astype(signed)).view(kind)

    def shift_unsigned(a: Bits, n: Bits) -> Bits:
        if n.size == 1:
            amount = int(n.item())
            return a >> kind(amount) if amount < bits else np.zeros_like(a)
        return np.where(n < bits, a >> np.minimum(n, U32(bits - 1)).astype(kind), kind(0))

    return shift_signed if is_signed else shift_unsigned


def funnel(left: bool, wrap: bool) -> Compute:
    def shift(low: Bits, high: Bits, n: Bits) -> Bits:
        n = n & U32(31) if wrap else np.minimum(n, U32(32))
        both = high.astype(U64) << U64(32) | low
        return ((both << n.astype(U64)) >> U64(32) if left else both >> n.astype(U64)).astype(U32)

    return shift


def count_leading_zeros(size: int) -> Compute:
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


def find_leading(size: int, is_signed: bool, as_shift: bool) -> Compute:
    count, last = count_leading_zeros(size), U32(8 * size - 1)
    signed = SIGNED[size]

    def find(a: Bits) -> Bits:
        a = np.where(a.view(signed) < 0, ~a, a) if is_signed else a
        zeros = count(a)
        return np.where(zeros > last, U32(0xFFFFFFFF), zeros if as_shift else last - zeros)

    return find


_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], U8)


def reverse(a: Bits) -> Bits:
    return np.ascontiguousarray(_REVERSED[a.view(U8)]).view(a.dtype).byteswap()


def _field(size: int) -> Compute:
    """Read the position or length operand: its low 8 bits, or for 64-bit fields all of it.

    PTX allows at most 255; an H200 does this with more.
    """
    return (lambda n: n & U32(255)) if size == 4 else (lambda n: n)


def extract(size: int, is_signed: bool) -> Compute:
    right, left, operand = shift_right(size, is_signed), shift_left(size), _field(size)

    def extract(a: Bits, position: Bits, length: Bits) -> Bits:
        above = U32(8 * size) - np.minimum(operand(length), U32(8 * size))
        # Bits beyond the top are sign bits already; shifting left and right extends the field by its own sign.
        return right(left(right(a, operand(position)), above), above)

    return extract


def insert(size: int) -> Compute:
    kind, left, operand = UNSIGNED[size], shift_left(size), _field(size)

    def insert(a: Bits, b: Bits, position: Bits, length: Bits) -> Bits:
        position, length = operand(position), operand(length)
        mask = left(left(kind(1) + np.zeros_like(a), length) - kind(1), position)
        return (b & ~mask) | (left(a, position) & mask)

    return insert


@cache
def permute(selector: int) -> Compute:
    """`prmt` with a constant selector.

    Byte i of the result is byte `selector >> 4i & 7` of (b, a), or with bit 3 of that digit its sign.
    """
    picks = [selector >> 4 * i & 15 for i in range(4)]
    parts: list[tuple[int, int, int]] = []  # source, left shift (right if negative), mask of the bytes
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


def permute_any(a: Bits, b: Bits, selector: Bits) -> Bits:
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


# `prmt.b32.f4e` and its kin: the selector of each mode by the lower two bits of the third operand.
PERMUTATIONS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def permute_by(mode: str) -> Compute:
    """`prmt` in a mode, of which the third operand chooses one of four permutations."""
    selectors = np.array(PERMUTATIONS[mode], U32)
    return lambda a, b, choice: permute_any(a, b, selectors[choice & U32(3)])


def bit_mask(clamps: bool) -> Compute:
    """`bmsk`: `length` ones from a position on. clamps: operands count whole, not their lower five bits alone"""

    def compute(position: Bits, length: Bits) -> Bits:
        start, count = position & U32(31), length & U32(31)
        if clamps:
            start, count = np.minimum(position, U32(32)), np.minimum(length, U32(32))
        end = np.minimum(start + count, U32(32)).astype(U64)
        below = (U64(1) << start.astype(U64)) - U64(1)
        return ((U64(1) << end) - U64(1) & ~below).astype(U32)

    return compute


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
