"""Comparisons, for `setp` and `set`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ptx_emulator.arithmetic.rounding import bf16_values, f16_values, flush_f32
from ptx_emulator.registers import F32, F64, SIGNED, UNSIGNED, Bits, Compute, Operation

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


def comparison(mnemonic: str) -> tuple[Compare, str, str] | None:
    """`setp.lt.and.s32` → the comparison, the operands' type, and `and`; None if unknown."""
    parts = mnemonic.split(".")[1:]
    combine = parts.pop(1) if len(parts) > 1 and parts[1] in COMBINE else ""
    found = COMPARISONS.get(".".join(parts))
    return (found.compare, found.kind, combine) if found else None


def _sets() -> dict[str, Operation]:
    """`set.lt.u32.f32`: all ones (or 1.0) where the comparison holds."""
    table: dict[str, Operation] = {}
    for name, (compare, kind, _) in COMPARISONS.items():
        if kind == "b16":
            continue
        relation, source = name.split(".", 1)
        table[f"set.{relation}.u32.{source}"] = Operation(_all_ones(compare), "u32", (kind, kind))
        table[f"set.{relation}.s32.{source}"] = Operation(_all_ones(compare), "s32", (kind, kind))
        if kind not in ("f16", "bf16"):
            table[f"set.{relation}.f32.{source}"] = Operation(_one(compare), "f32", (kind, kind))
    return table


def _all_ones(compare: Compare) -> Compute:
    return lambda a, b: -compare(a, b).astype(UNSIGNED[4])


def _one(compare: Compare) -> Compute:
    return lambda a, b: compare(a, b).astype(F32).view(UNSIGNED[4])


SETS = _sets()
