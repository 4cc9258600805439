"""Atomics: one lane after another in ascending order, vectorised where the result allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from ptx_emulator.arithmetic.floating import FLOATING
from ptx_emulator.arithmetic.rounding import flush_f32
from ptx_emulator.registers import I32, I64, U32, U64, Bits, Compute


@dataclass(frozen=True)
class Atomic:
    """One read-modify-write operation.

    apply: (old, operand, or two for `cas`) → new, on unsigned arrays; size: bytes
    accumulate: a ufunc for lanes that hit one address, and its dtype; None if they need a loop
    swaps: True for `cas`, which has two operands
    """

    apply: Compute
    size: int
    accumulate: tuple[np.ufunc, type] | None = None
    swaps: bool = False


def run(atomic: Atomic, memory: np.ndarray, index: np.ndarray, operand: Bits, second: Bits | None = None) -> Bits:
    """Update `memory[index]`, lane after lane; returns the old value for each. index, operand, second: (n,)"""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    if len(starts) == len(index):
        found = memory[index]
        memory[index] = atomic.apply(found, operand, second) if atomic.swaps else atomic.apply(found, operand)
        return found
    found = np.empty_like(operand)
    for start, end in zip(starts, np.append(starts[1:], len(index)), strict=True):
        lanes = order[start:end]
        cell = ordered[start]
        if atomic.accumulate:
            ufunc, kind = atomic.accumulate
            values = np.concatenate([memory[cell : cell + 1], operand[lanes]]).view(kind)
            values = ufunc.accumulate(values, dtype=kind).view(operand.dtype)
            found[lanes], memory[cell] = values[:-1], values[-1]
        else:
            for lane in lanes:
                here = slice(lane, lane + 1)
                found[lane] = memory[cell]
                operands = (operand[here], second[here]) if atomic.swaps else (operand[here],)
                memory[cell] = atomic.apply(memory[cell : cell + 1], *operands)[0]
    return found


def _increment(old: Bits, limit: Bits) -> Bits:
    return np.where(old >= limit, U32(0), old + U32(1))


def _decrement(old: Bits, limit: Bits) -> Bits:
    return np.where((old == 0) | (old > limit), limit, old - U32(1))


def _swap_if(old: Bits, expected: Bits, new: Bits) -> Bits:
    return np.where(old == expected, new, old)


def _flushing_add(old: Bits, value: Bits) -> Bits:
    return flush_f32(FLOATING["add.f32"].compute(flush_f32(old), flush_f32(value)))


def _as(kind: type, ufunc: Callable) -> Compute:
    return lambda old, value: ufunc(old.view(kind), value.view(kind)).view(old.dtype)


def _table() -> dict[str, Atomic]:
    table: dict[str, Atomic] = {}
    for size, unsigned, signed in ((4, U32, I32), (8, U64, I64)):
        width = 8 * size
        for sign, kind in (("u", unsigned), ("s", signed)):
            table[f"add.{sign}{width}"] = Atomic(np.add, size, (np.add, unsigned))
            table[f"min.{sign}{width}"] = Atomic(_as(kind, np.minimum), size, (np.minimum, kind))
            table[f"max.{sign}{width}"] = Atomic(_as(kind, np.maximum), size, (np.maximum, kind))
        for name, ufunc in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
            table[f"{name}.b{width}"] = Atomic(ufunc, size, (ufunc, unsigned))
        table[f"exch.b{width}"] = Atomic(lambda old, value: value, size)
        table[f"cas.b{width}"] = Atomic(_swap_if, size, swaps=True)
    table["cas.b16"] = Atomic(_swap_if, 2, swaps=True)
    table["inc.u32"] = Atomic(_increment, 4)
    table["dec.u32"] = Atomic(_decrement, 4)
    table["add.f32"] = Atomic(FLOATING["add.f32"].compute, 4)
    table["add.f64"] = Atomic(FLOATING["add.f64"].compute, 8)
    for kind, size in (("f16", 2), ("bf16", 2), ("f16x2", 4), ("bf16x2", 4)):
        table[f"add.noftz.{kind}"] = Atomic(_two_dimensional(FLOATING[f"add.{kind}"].compute), size)
    return table


def _vectors() -> dict[str, Atomic]:
    """The operation on each element of `add.noftz.v2.f16` and its like."""
    table = {f"add.v{count}.f32": Atomic(FLOATING["add.f32"].compute, 4) for count in (2, 4)}
    for kind, operation in product(("f16", "bf16", "f16x2", "bf16x2"), ("add", "min", "max")):
        single = Atomic(_two_dimensional(FLOATING[f"{operation}.{kind}"].compute), 4 if kind.endswith("x2") else 2)
        counts = (2, 4) if kind.endswith("x2") else (2, 4, 8)
        table |= {f"{operation}.noftz.v{count}.{kind}": single for count in counts}
    return table


def _two_dimensional(compute: Compute) -> Compute:
    """Add a dimension for a function on registers, because memory has one."""
    return lambda old, value: compute(old[None, :], value[None, :])[0]


ATOMICS = _table()
VECTORS = _vectors()
# Float32 atomics flush subnormal operands and results in global memory, but not in shared memory.
GLOBAL_ADD_F32 = Atomic(_flushing_add, 4)
