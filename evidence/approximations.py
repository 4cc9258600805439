"""Measure a GPU's approximate instructions for every input against the emulator's formulas, in a table per chip.

`measure` sweeps all 2^32 inputs of a float32 instruction, a binade at a time, or all 2^16 of a narrower one, on the
GPU, and leaves the table of `ptx_emulator.approximate.measured`. `div` has two operands, and stays within PTX's
bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from harness.jit.nvrtc import build
from ptx_emulator.approximate.bounds import APPROXIMATE, Approximation, Range
from ptx_emulator.approximate.measured import KEYS, Chip, Measured, pack

Array = Any
Instruction = Callable[[Array], Array]  # bits of inputs → bits of results, on the GPU

MOST_BYTES = 4 << 20  # bytes of all tables of a chip
MOST_EXCEPTIONS = 1 << 16  # limit for results of an instruction that contradict PTX
UNARY = tuple(name for name, found in APPROXIMATE.items() if found.count == 1)
_TURNS = tuple(name for name in KEYS if "turns" in name)
# Instruction → candidate keys for its steps; the first one that determines them is used.
CANDIDATES = {
    "rcp": ("fraction",), "sqrt": ("fraction, parity of the exponent",), "rsqrt": ("fraction, parity of the exponent",),
    "ex2": tuple(f"sign, {bits} bits behind the point" for bits in (23, 24, 25)), "lg2": (), "sin": _TURNS,
    "cos": _TURNS, "tanh": (),
}  # fmt: skip
_FEWEST = 8  # a table must explain at least this many binades
_FEW_ZEROS = 1 << 12  # at most this many zeros of an unexpected sign are stored by input


class ContradictionError(Exception):
    """A GPU gives many results that PTX, as the emulator reads it, excludes."""


def _source(name: str, found: Approximation) -> str:
    kind, letter = ("unsigned", "f") if found.form.bits == 32 else ("unsigned short", "h")
    result, given = ("float", "__uint_as_float(x[i])") if letter == "f" else ("unsigned short", "x[i]")
    back = "__float_as_uint(y)" if letter == "f" else "y"
    return f"""extern "C" __global__ void k(const {kind}* x, {kind}* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {result} y;
  asm volatile("{name} %0, %1;" : "={letter}"(y) : "{letter}"({given}));
  out[i] = {back};
}}"""


def compiled(name: str, arch: str) -> bytes:
    """Compile a kernel that executes an instruction once for each input."""
    text = _source(name, APPROXIMATE[name])
    return build("k.cu", {"k.cu": text}, (), ("-std=c++17", "-ftz=false", "-fmad=false", f"-arch={arch}")).cubin


def on_gpu(name: str, arch: str) -> Instruction:
    """A function that runs the instruction on the current GPU, on CuPy arrays."""
    import cupy

    module = cupy.cuda.function.Module()
    module.load(compiled(name, arch))
    kernel, threads = module.get_function("k"), 256

    def run(bits: Array) -> Array:
        out = cupy.empty_like(bits)
        kernel((-(-bits.size // threads),), (threads,), (bits, out, np.uint32(bits.size)))
        return out

    return run


@dataclass
class _Key:
    """The steps found so far under one candidate key. known: by value of the key"""

    name: str
    table: Array
    known: Array
    conforms: list[bool] = field(default_factory=list)


def sweep(name: str, run: Instruction, xp: ModuleType = np, binades: range | None = None, apart: int = 1) -> Measured:
    """Measure one instruction. Raises ContradictionError.

    binades: by sign and exponent of inputs, all for None; apart: inputs of a binade from one to the next
    """
    found = APPROXIMATE[name]
    unsigned = found.form.unsigned(np)
    count, size = 1 << found.form.bits - found.form.fraction, 1 << found.form.fraction
    names = CANDIDATES[name.split(".")[0]] if found.form.bits == 32 else ("input",)
    keys = [_Key(each, xp.zeros(KEYS[each].count, xp.int64), xp.zeros(KEYS[each].count, bool), [False] * count)
            for each in names]  # fmt: skip
    least, most, bounded = np.zeros(count, np.int64), np.zeros(count, np.int64), np.ones(count, bool)
    inputs, results = [np.zeros(0, unsigned)], [np.zeros(0, unsigned)]
    # The binades of 1 and 1/2 first, because their inputs have every value of a key.
    first_two = (count // 4 - 1, count // 4 - 2)
    for done, number in enumerate(sorted(binades or range(count), key=lambda each: (each not in first_two, each))):
        if done == len(first_two):  # a candidate that explains neither of them is dropped
            keys = [key for key in keys if any(key.conforms)]
        bits = (number * size + xp.arange(0, size, apart)).astype(found.form.unsigned(xp))
        seen = _without_few_zeros(xp, _compared(xp, found, bits, run(bits)), _FEW_ZEROS - sum(map(len, inputs)))
        if bool(seen.odd.any()):
            inputs.append(_host(bits[seen.odd]))
            results.append(_host(seen.given[seen.odd]))
        if sum(map(len, inputs)) > MOST_EXCEPTIONS:
            first = f"{int(inputs[1][0]):#x} gives {int(results[1][0]):#x}"
            raise ContradictionError(f"{name}: more than {MOST_EXCEPTIONS} results are none that PTX allows; {first}")
        if bool(seen.usable.any()):
            steps = (seen.order - seen.within.near)[seen.usable]
            least[number], most[number] = int(steps.min()), int(steps.max())
        bounded[number] = not bool(seen.beyond.any())
        for key in keys:
            if not bool(seen.usable.any()):
                key.conforms[number] = True
                continue
            steps = KEYS[key.name].steps(xp, found, bits, seen.within, seen.order)
            # A table does not store the sign of a zero.
            key.conforms[number] = not bool(seen.other_zero.any()) and _conforms(
                xp, key, KEYS[key.name].of(xp, bits), steps, seen.usable
            )
    return _measured(keys, least, most, np.concatenate(inputs), np.concatenate(results), bounded)


class _Seen(NamedTuple):
    """Results of a binade. usable: results that PTX leaves open and that steps can express

    odd: results that contradict values that PTX fixes; beyond: results outside of PTX's bounds
    other_zero: zeros with the opposite sign of the nearest value
    """

    within: Range
    given: Array
    order: Array
    usable: Array
    odd: Array
    beyond: Array
    other_zero: Array


def _compared(xp: ModuleType, found: Approximation, bits: Array, given: Array) -> _Seen:
    with np.errstate(all="ignore"):
        within = found.range(xp, bits)
        order = found.form.order(xp, given)
        is_nan = xp.isnan(found.form.values(xp, given))
        expected = xp.where(order == within.near, within.bits, found.given(xp, order, within.bits))
    wrong = given != expected
    other_zero = ~within.fixed & wrong & (order == 0) & (within.near != 0)
    odd = xp.where(within.fixed, given != within.bits, is_nan | (wrong & ~other_zero))
    usable = ~within.fixed & ~odd
    beyond = usable & ((order < within.low) | (order > within.high))
    return _Seen(within, given, order, usable, odd, beyond, other_zero)


def _without_few_zeros(xp: ModuleType, seen: _Seen, most: int) -> _Seen:
    """Treat zeros of the other sign as exceptions, stored by input, unless there are more than `most`."""
    if not 0 < int(seen.other_zero.sum()) <= most:
        return seen
    odd, usable = seen.odd | seen.other_zero, seen.usable & ~seen.other_zero
    return seen._replace(odd=odd, usable=usable, other_zero=xp.zeros_like(seen.other_zero))


def _conforms(xp: ModuleType, key: _Key, at: Array, steps: Array, usable: Array) -> bool:
    """Whether all inputs of a binade have the steps of their keys; the first binade with a key sets its steps."""
    at, steps = at[usable], steps[usable]
    if bool((key.known[at] & (key.table[at] != steps)).any()):
        return False
    fresh = ~key.known[at]
    before = key.table[at[fresh]]
    key.table[at[fresh]] = steps[fresh]
    if bool((key.table[at] != steps).any()):
        key.table[at[fresh]] = before
        return False
    key.known[at] = True
    return True


def _measured(
    keys: list[_Key], least: np.ndarray, most: np.ndarray, inputs: np.ndarray, results: np.ndarray, bounded: np.ndarray
) -> Measured:
    order = np.argsort(inputs)
    same, none = least == most, np.zeros(len(least), bool)
    gained = [int(np.count_nonzero(np.array(key.conforms) & ~same)) for key in keys]
    bounds = (_narrow(least), _narrow(most), inputs[order], results[order], bounded)
    best = int(np.argmax(gained)) if keys else 0
    if not keys or gained[best] < min(_FEWEST, int(np.count_nonzero(~same)) or 1):
        return Measured("", np.zeros(0, np.int8), none, *bounds)
    key = keys[best]
    return Measured(key.name, _narrow(_host(key.table)), np.array(key.conforms), *bounds)


def _narrow(steps: np.ndarray) -> np.ndarray:
    """Convert numbers to the smallest integer type that holds them."""
    kinds = (kind for kind in (np.int8, np.int16, np.int32) if (steps == steps.astype(kind)).all())
    return steps.astype(next(kinds, np.int64))


def _host(array: Array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()


def fitted(chip: Chip, most: int = MOST_BYTES) -> Chip:
    """The chip without its largest tables, as few as are needed to take at most `most` bytes."""
    found = dict(chip.instructions)
    while sum(map(len, pack(Chip(chip.name, found)).values())) > most:
        with_table = [name for name, each in found.items() if each.key]
        if not with_table:
            break
        largest = max(with_table, key=lambda name: sum(map(len, pack(Chip("", {name: found[name]})).values())))
        found[largest] = found[largest].without_table()
    return Chip(chip.name, found)


def measure(name: str, arch: str) -> Measured:
    """Measure an instruction on the current GPU. arch: `sm_90a`. Raises ContradictionError."""
    import cupy

    return sweep(name, on_gpu(name, arch), cupy)


def row(name: str, found: Measured) -> dict[str, object]:
    """The terminal's table row for an instruction."""
    share = exact_share(found)
    return {
        "instruction": name, "key": found.key or "none", "binades known": f"{100 * share:.0f} %",
        "fewest steps": int(found.least.min()), "most": int(found.most.max()), "by input": len(found.inputs),
        "binades beyond its bounds": int(np.count_nonzero(~found.bounded)),
    }  # fmt: skip


def exact_share(found: Measured) -> float:
    """The share of input binades with exactly known results."""
    known = found.least == found.most
    return float((known | found.conforms if found.key else known).mean())


def write(chip: Chip, path: Path) -> int:
    """Write a chip's table, and return its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **pack(chip))
    return path.stat().st_size
