"""Integer, logic and bit-field instructions. Arithmetic wraps.

A quotient or remainder by zero, which PTX leaves open, is all ones, as on an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from ptx_emulator.arithmetic import bits as bitwise
from ptx_emulator.registers import (
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
    """Apply the function to signed values."""
    signed, unsigned = SIGNED[size], UNSIGNED[size]
    return lambda *arrays: compute(*(array.view(signed) for array in arrays)).view(unsigned)


def _quotient_unsigned(a: Bits, b: Bits) -> Bits:
    quotient = a // np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, ~b.dtype.type(0), quotient)


def _remainder_unsigned(a: Bits, b: Bits) -> Bits:
    return np.where(b == 0, ~b.dtype.type(0), a % np.where(b == 0, b.dtype.type(1), b))


def _magnitude(a: Bits) -> Bits:
    """|a| of a signed array as unsigned; right for the most negative value, too."""
    return np.abs(a).view(UNSIGNED[a.itemsize])


def _quotient_signed(a: Bits, b: Bits) -> Bits:
    quotient = _quotient_unsigned(_magnitude(a), _magnitude(b)).view(a.dtype)
    return np.where(b == 0, a.dtype.type(-1), np.where((a < 0) != (b < 0), -quotient, quotient))


def _remainder_signed(a: Bits, b: Bits) -> Bits:
    remainder = _remainder_unsigned(_magnitude(a), _magnitude(b)).view(a.dtype)
    return np.where((a < 0) & (b != 0), -remainder, remainder)


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


def _saturated(compute: Compute) -> Compute:
    return lambda a, b: np.clip(compute(a.view(I32).astype(I64), b.view(I32)), -(1 << 31), (1 << 31) - 1).astype(U32)


def _dot4(a_signed: bool, b_signed: bool) -> Compute:
    kinds = (U8, SIGNED[1])

    def dot(a: Bits, b: Bits, c: Bits) -> Bits:
        a, b = same_shape(a, b)
        products = a.view(kinds[a_signed]).astype(I32) * b.view(kinds[b_signed]).astype(I32)
        return products.reshape(*a.shape, 4).sum(axis=-1, dtype=I32).view(U32) + c

    return dot


# `vabsdiff4` and its kin, on int64.
SIMD: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": lambda a, b: a + b + (a + b >= 0) >> 1,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}


def simd(name: str, signed: Sequence[bool], secondary: str, picks: Sequence[Sequence[int]], mask: int) -> Compute:
    """`vabsdiff4`, or `vabsdiff2` of halves: a function of a, b and c.

    signed: result, a, b; secondary: `sat`, `add` or empty; picks: for a and b, which parts of (b, a), from the lowest;
    mask: bit i for part i of the result, which is c's without it
    """
    operation, size = SIMD[name[:-1]], 4 // int(name[-1])
    kinds = [(SIGNED if each else UNSIGNED)[size] for each in signed]
    chosen = np.array([mask >> i & 1 for i in range(4 // size)], bool)

    def compute(a: Bits, b: Bits, c: Bits) -> Bits:
        a, b, c = same_shape(a, b, c)
        both = (b.astype(U64) << U64(32) | a).view(UNSIGNED[size]).reshape(*a.shape, -1)
        left, right = (
            np.ascontiguousarray(both[..., list(pick)]).view(kind).astype(I64)
            for pick, kind in zip(picks, kinds[1:], strict=True)
        )
        parts = operation(left, right)
        if secondary == "sat":
            parts = np.clip(parts, np.iinfo(kinds[0]).min, np.iinfo(kinds[0]).max)
        if secondary == "add":
            return (c.astype(I64) + (parts * chosen).sum(axis=-1)).astype(U32)
        rest = c.view(UNSIGNED[size]).reshape(parts.shape)
        return np.ascontiguousarray(np.where(chosen, parts.astype(UNSIGNED[size]), rest)).view(U32)[..., 0]

    return compute


def _if(holds: bool, lane: str) -> str:
    return lane if holds else ""


def _shifted(direction: str, size: int) -> str:
    """The compiled form of a shift; a register of 16 bits has zeros above them."""
    if size == 8:
        return f"x {direction} uint64(y & uint32(63)) if y < 64 else uint64(0)"
    return f"uint32(x {direction} (y & uint32(31))) if y < 32 else uint32(0)"


def _table() -> dict[str, Operation]:
    table: dict[str, Operation] = {}

    def define(name: str, compute: Compute, result: str, *sources: str, lane: str = "") -> None:
        table[name] = Operation(compute, result, sources, lane)

    for (width, size), sign in product(WIDTHS.items(), "us"):
        kind, is_signed = f"{sign}{width}", sign == "s"
        a, b = ("sx", "sy") if is_signed else ("x", "y")
        whole = size > 2  # a result of 16 bits would need the bits above it cleared
        wrap = _signed if is_signed else lambda compute, size: compute
        define(f"add.{kind}", np.add, kind, kind, kind, lane=_if(whole, "x + y"))
        define(f"sub.{kind}", np.subtract, kind, kind, kind, lane=_if(whole, "x - y"))
        define(f"mul.lo.{kind}", np.multiply, kind, kind, kind, lane=_if(whole, "x * y"))
        high = _if(kind == "u32", "(uint64(x) * uint64(y)) >> uint64(32)")
        define(f"mul.hi.{kind}", _high(size, is_signed), kind, kind, kind, lane=high)
        define(f"mad.lo.{kind}", _then_add(np.multiply), kind, kind, kind, kind, lane=_if(whole, "x * y + z"))
        define(f"mad.hi.{kind}", _then_add(_high(size, is_signed)), kind, kind, kind, kind)
        define(f"min.{kind}", wrap(np.minimum, size), kind, kind, kind, lane=_if(whole, f"min({a}, {b})"))
        define(f"max.{kind}", wrap(np.maximum, size), kind, kind, kind, lane=_if(whole, f"max({a}, {b})"))
        quotient = _signed(_quotient_signed, size) if is_signed else _quotient_unsigned
        remainder = _signed(_remainder_signed, size) if is_signed else _remainder_unsigned
        divided = "divided(sx, sy)" if is_signed else "x // max(y, uint32(1)) if y != 0 else ONES"
        rest = "remainder(sx, sy)" if is_signed else "x % max(y, uint32(1)) if y != 0 else ONES"
        define(f"div.{kind}", quotient, kind, kind, kind, lane=_if(size == 4, divided))
        define(f"rem.{kind}", remainder, kind, kind, kind, lane=_if(size == 4, rest))
        right = _if(whole, f"sx >> int{width}(min(y, uint32({8 * size - 1})))") if is_signed else _shifted(">>", size)
        define(f"shr.{kind}", bitwise.shift_right(size, is_signed), kind, kind, "u32", lane=right)
        if size < 8:
            double = f"{sign}{2 * int(width)}"
            wide = {"u16": "x * y", "u32": "uint64(x) * uint64(y)", "s32": "int64(sx) * int64(sy)"}.get(kind, "")
            added = _if(size == 4, f"uint64({wide}) + z")
            define(f"mul.wide.{kind}", _wide(size, is_signed), double, kind, kind, lane=wide)
            define(f"mad.wide.{kind}", _then_add(_wide(size, is_signed)), double, kind, kind, double, lane=added)
        if size > 2:
            define(f"bfe.{kind}", bitwise.extract(size, is_signed), kind, kind, "u32", "u32")
            define(f"bfind.{kind}", bitwise.find_leading(size, is_signed, False), "u32", kind)
            define(f"bfind.shiftamt.{kind}", bitwise.find_leading(size, is_signed, True), "u32", kind)
    for width, size in WIDTHS.items():
        bits = f"b{width}"
        define(f"neg.s{width}", np.negative, bits, bits, lane=_if(size > 2, f"uint{width}(0) - x"))
        define(f"abs.s{width}", _signed(np.abs, size), bits, bits)
        define(f"and.{bits}", np.bitwise_and, bits, bits, bits, lane="x & y")
        define(f"or.{bits}", np.bitwise_or, bits, bits, bits, lane="x | y")
        define(f"xor.{bits}", np.bitwise_xor, bits, bits, bits, lane="x ^ y")
        define(f"not.{bits}", np.bitwise_not, bits, bits, lane=_if(size > 2, "~x"))
        define(f"cnot.{bits}", lambda a: (a == 0).astype(a.dtype), bits, bits)
        left = _if(size > 2, _shifted("<<", size))
        define(f"shl.{bits}", bitwise.shift_left(size), bits, bits, "u32", lane=left)
        define(f"shr.{bits}", bitwise.shift_right(size, False), bits, bits, "u32", lane=_shifted(">>", size))
        if size > 2:
            ones, zeros = _if(size == 4, "ones(x)"), _if(size == 4, "leading_zeros(x)")
            define(f"popc.{bits}", lambda a: np.bitwise_count(a).astype(U32), "u32", bits, lane=ones)
            define(f"clz.{bits}", bitwise.count_leading_zeros(size), "u32", bits, lane=zeros)
            define(f"brev.{bits}", bitwise.reverse, bits, bits)
            define(f"bfi.{bits}", bitwise.insert(size), bits, bits, bits, "u32", "u32")
    define("add.sat.s32", _saturated(np.add), "s32", "s32", "s32")
    define("sub.sat.s32", _saturated(np.subtract), "s32", "s32", "s32")
    for name, compute in (("min", np.minimum), ("max", np.maximum)):
        define(f"{name}.u16x2", halves(compute), "b32", "b32", "b32")
        define(f"{name}.s16x2", halves(_signed(compute, 2)), "b32", "b32", "b32")
        define(f"{name}.relu.s32", _relu(_signed(compute, 4)), "s32", "s32", "s32")
    for kind in ("u16x2", "s16x2"):
        define(f"add.{kind}", halves(np.add), "b32", "b32", "b32")
    for (name, left), (mode, wraps) in product((("l", True), ("r", False)), (("wrap", True), ("clamp", False))):
        define(f"shf.{name}.{mode}.b32", bitwise.funnel(left, wraps), "b32", "b32", "b32", "u32")
    for a, b in product("us", "us"):
        define(f"dp4a.{a}32.{b}32", _dot4(a == "s", b == "s"), "u32", "u32", "u32", "u32")
    define("bmsk.clamp.b32", bitwise.bit_mask(True), "b32", "b32", "b32")
    define("bmsk.wrap.b32", bitwise.bit_mask(False), "b32", "b32", "b32")
    for mode in bitwise.PERMUTATIONS:
        define(f"prmt.b32.{mode}", bitwise.permute_by(mode), "b32", "b32", "b32", "b32")
    define("prmt.b32", bitwise.permute_any, "b32", "b32", "b32", "b32", lane="permuted(x, y, z)")
    define("mul24.lo.u32", lambda a, b: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)), "u32", "u32", "u32")
    for name, compute, sign in (("and", np.logical_and, "&"), ("or", np.logical_or, "|"), ("xor", np.logical_xor, "^")):
        define(f"{name}.pred", compute, "pred", "pred", "pred", lane=f"x {sign} y")
    define("not.pred", np.logical_not, "pred", "pred", lane="x ^ uint32(1)")
    return table


def _relu(compute: Compute) -> Compute:
    return lambda a, b: np.maximum(compute(a, b).view(I32), I32(0)).view(U32)


INTEGER = _table()
