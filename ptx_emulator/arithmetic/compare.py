"""Comparisons, for `setp` and `set`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ptx_emulator.arithmetic.rounding import bf16_values, f16_values, flush_f16, flush_f32
from ptx_emulator.registers import F32, F64, SIGNED, U16, U32, Bits, Operation, same_shape

Compare = Callable[[Bits, Bits], Bits]


class Comparison(NamedTuple):
    """kind: the type of both operands; lane: the compiled form, see `Operation`"""

    compare: Compare
    kind: str
    lane: str = ""


_ORDERED = {
    "eq": (np.equal, "=="),
    "ne": (np.not_equal, "!="),
    "lt": (np.less, "<"),
    "le": (np.less_equal, "<="),
    "gt": (np.greater, ">"),
    "ge": (np.greater_equal, ">="),
}
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _unordered(a: Bits, b: Bits) -> Bits:
    return np.isnan(a) | np.isnan(b)


def _float_comparisons() -> dict[str, tuple[Compare, str]]:
    """`ltu` → the comparison, and its compiled form."""
    table: dict[str, tuple[Compare, str]] = {
        "num": (lambda a, b: ~_unordered(a, b), "(fx == fx) & (fy == fy)"),
        "nan": (_unordered, "(fx != fx) | (fy != fy)"),
    }
    opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
    for name, (compare, sign) in _ORDERED.items():
        unordered = f"not fx {opposite[sign]} fy" if sign in opposite else _UNLIKE_OR_NAN[name]
        table[f"{name}u"] = (lambda a, b, compare=compare: compare(a, b) | _unordered(a, b)), unordered
        table[name] = compare, f"fx {sign} fy"
    # PTX's `ne` is ordered: false for a NaN, unlike NumPy's.
    table["ne"] = (lambda a, b: (a != b) & ~_unordered(a, b)), "(fx < fy) | (fx > fy)"
    return table


_UNLIKE_OR_NAN = {"eq": "not ((fx < fy) | (fx > fy))", "ne": "fx != fy"}


def _comparisons() -> dict[str, Comparison]:
    """By relation and type, such as `lt.s32`."""
    table: dict[str, Comparison] = {}
    for size, width in ((2, 16), (4, 32), (8, 64)):
        for name, (compare, sign) in _ORDERED.items():
            signed = SIGNED[size]
            unsigned_lane = f"x {sign} y"
            # A register of 16 bits has zeros above its sign.
            signed_lane = unsigned_lane if name in ("eq", "ne") else f"sx {sign} sy" if size > 2 else ""
            table[f"{name}.u{width}"] = Comparison(compare, f"u{width}", unsigned_lane)
            table[f"{name}.s{width}"] = Comparison(
                lambda a, b, compare=compare, signed=signed: compare(a.view(signed), b.view(signed)),
                f"s{width}",
                signed_lane,
            )
        for name in ("eq", "ne"):
            table[f"{name}.b{width}"] = table[f"{name}.u{width}"]._replace(kind=f"b{width}")
        for name, same in _UNSIGNED_NAMES.items():
            table[f"{name}.u{width}"] = table[f"{same}.u{width}"]
    readers = {
        "f32": lambda bits: bits.view(F32),
        "ftz.f32": lambda bits: flush_f32(bits).view(F32),
        "f64": lambda bits: bits.view(F64),
        "f16": f16_values,
        "ftz.f16": lambda bits: f16_values(flush_f16(bits)),
        "bf16": bf16_values,
    }
    for name, (compare, lane) in _float_comparisons().items():
        for kind, read in readers.items():
            table[f"{name}.{kind}"] = Comparison(
                lambda a, b, compare=compare, read=read: compare(read(a), read(b)),
                kind.split(".")[-1],
                lane if kind == "f32" else "",
            )
    return table


COMPARISONS = _comparisons()
COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


_PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}


def comparison(mnemonic: str) -> tuple[Compare, str, str] | None:
    """`setp.lt.and.s32` → the comparison, the operands' type, and `and`; None if unknown.

    Of a pair, `f16x2`, the comparison is of one half.
    """
    parts = mnemonic.split(".")[1:]
    combine = parts.pop(1) if len(parts) > 1 and parts[1] in COMBINE else ""
    *head, kind = parts
    found = COMPARISONS.get(".".join([*head, _PAIRS.get(kind, kind)]))
    return (found.compare, kind if kind in _PAIRS else found.kind, combine) if found else None


# What `set` writes where a comparison holds.
_YES = {
    "u16": U16(0xFFFF), "s16": U16(0xFFFF), "u32": U32(0xFFFFFFFF), "s32": U32(0xFFFFFFFF),
    "f16": U16(0x3C00), "bf16": U16(0x3F80), "f32": U32(0x3F800000),
}  # fmt: skip
_OF_HALF = ("u16", "s16", "u32", "s32", "f16", "bf16")
_RESULTS = {"f16": _OF_HALF, "bf16": tuple(kind for kind in _OF_HALF if kind != "f16"),
            "f16x2": ("u32", "s32", "f16x2"), "bf16x2": ("u32", "s32", "bf16x2")}  # fmt: skip
_OF_WORD = ("u32", "s32", "f32", "f16", "bf16")


def setting(mnemonic: str) -> Operation | None:
    """`set.lt.and.ftz.u32.f32`, whose last source is a predicate if it combines; None if PTX has no such `set`."""
    head, *parts = mnemonic.split(".")
    if head != "set" or len(parts) < 3:
        return None
    result = parts.pop(-2)
    found = comparison(".".join([head, *parts]))
    if not found or result not in _RESULTS.get(found[1], _OF_WORD) or "ftz" in parts and result.startswith("bf16"):
        return None
    compare, kind, combine = found
    paired = kind in _PAIRS
    yes = _YES[result.removesuffix("x2") if result in _PAIRS else "u16" if paired else result]

    def compute(a: Bits, b: Bits, *predicate: Bits) -> Bits:
        if paired:
            a, b = (each.view(U16).reshape(*each.shape, 2) for each in same_shape(a, b))
            predicate = tuple(each[..., None] for each in predicate)
        holds = compare(a, b)
        holds = COMBINE[combine](holds, *predicate) if combine else holds
        values = np.where(holds, yes, yes.dtype.type(0))
        return np.ascontiguousarray(values).view(U32)[..., 0] if paired else values

    return Operation(compute, result, (kind, kind, "pred") if combine else (kind, kind))


def settings() -> list[str]:
    """`set` without a predicate, with the results that are as wide as the source or that every source has."""
    names = []
    for name in COMPARISONS:
        *relation, source = name.split(".")
        head = ".".join(["set", *relation])
        if source in _PAIRS.values() and "ftz" not in relation:
            names += [f"{head}.{kind}.{source}" for kind in _RESULTS[source]]
            names += [f"{head}.{kind}.{source}x2" for kind in _RESULTS[f"{source}x2"]]
        elif source not in _PAIRS.values():
            names += [f"{head}.{kind}.{source}" for kind in _OF_WORD[:3]]
    return names
