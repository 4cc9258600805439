"""A chip's approximate results, for its targets, from a table of `python -m evidence exhaustive --approximate`.

Results are steps from the formula's nearest value. Where all inputs of a key agree, in a binade of inputs, a table has
their steps, and the result is exact. In other binades the fewest and the most are bounds, and so are PTX's, if no input
of that binade was found beyond them. Results that contradict what PTX says exactly stand beside them, by input.
"""

from __future__ import annotations

import bz2
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ptx_emulator.approximate.bounds import PI_2, Approximation, Range
from ptx_emulator.approximate.formats import F32
from ptx_emulator.registers import Bits

FOLDER = Path(__file__).parent / "chips"
MADE = {"sm_90": "an H200"}  # the tables that there are
Array = Any


class Key(NamedTuple):
    """Groups inputs: those with one key may share a number of steps. of: (xp, bits) → int64, below `count`

    argument: (xp, values) → float64, the argument for the formula, if a chip does not see all bits of its operand
    outwards: steps count away from zero, so that positive and negative values have the same steps
    """

    count: int
    of: Callable[[ModuleType, Array], Array]
    argument: Callable[[ModuleType, Array], Array] | None = None
    outwards: bool = False

    def steps(self, xp: ModuleType, found: Approximation, bits: Array, within: Range, order: Array) -> Array:
        """Steps from the nearest value to `order`; they equal the table's if the input conforms."""
        base = self._base(xp, found, bits, within)
        steps = order - base
        return xp.where(base < 0, -steps, steps) if self.outwards else steps

    def order(self, xp: ModuleType, found: Approximation, bits: Array, within: Range, table: Array) -> Array:
        """The order that a table gives; the inverse of `steps`."""
        base, steps = self._base(xp, found, bits, within), table[self.of(xp, bits)].astype(xp.int64)
        return base + (xp.where(base < 0, -steps, steps) if self.outwards else steps)

    def _base(self, xp: ModuleType, found: Approximation, bits: Array, within: Range) -> Array:
        if self.argument is None:
            return within.near
        given = found.form.flushed(xp, bits) if found.flushes else bits
        with np.errstate(all="ignore"):
            values = self.argument(xp, found.form.values(xp, given))
            return found.form.order(xp, found.rounded(xp, found.formula(xp, values)))


def _fixed_point(bits: int) -> Key:
    """A key of the sign and this many fraction bits of the magnitude, as fixed-point arithmetic cuts off the rest."""
    scale = float(1 << bits)

    def whole(xp: ModuleType, values: Array) -> Array:
        return xp.floor(xp.clip(xp.abs(values), 0.0, 2.0**20) * scale)

    def of(xp: ModuleType, given: Array) -> Array:
        values = F32.values(xp, xp.where(given & 0x7F800000 == 0x7F800000, 0, given).astype(xp.uint32))
        below = whole(xp, values).astype(xp.int64) & (1 << bits) - 1
        return below | (given >> 31).astype(xp.int64) << bits

    def argument(xp: ModuleType, values: Array) -> Array:
        return xp.where(xp.isfinite(values), xp.copysign(whole(xp, values) / scale, values), values)

    return Key(2 << bits, of, argument)


_TURNS = 0.15915493667125702  # 1 / (2 pi), as the float32 by which a GPU multiplies an angle


def _turns(bits: int, cut: bool) -> Key:
    """A key of the sign and this many fraction bits of the angle in turns.

    cut: whether the product is cut, or rounded
    """
    scale = float(1 << bits)

    def below(xp: ModuleType, values: Array) -> Array:
        turns = xp.abs(xp.where(xp.isfinite(values), values, 0.0)) * _TURNS
        # The product has 53 bits, and 24 are left.
        kept = (turns.view(xp.int64) >> 29 << 29).view(xp.float64)
        turns = kept if cut else F32.values(xp, F32.rounded(xp, turns))
        return xp.floor((turns - xp.floor(turns)) * scale)

    def of(xp: ModuleType, given: Array) -> Array:
        values = F32.values(xp, xp.where(given & 0x7F800000 == 0x7F800000, 0, given).astype(xp.uint32))
        return below(xp, values).astype(xp.int64) | (given >> 31).astype(xp.int64) << bits

    def argument(xp: ModuleType, values: Array) -> Array:
        return xp.copysign(below(xp, values) / scale * (4 * PI_2), values)

    return Key(2 << bits, of, argument)


KEYS = {
    "fraction": Key(1 << 23, lambda xp, given: (given & 0x7FFFFF).astype(xp.int64), outwards=True),
    "fraction, parity of the exponent": Key(1 << 24, lambda xp, given: (given & 0xFFFFFF).astype(xp.int64)),
    "sign, 23 bits behind the point": _fixed_point(23),
    "sign, 24 bits behind the point": _fixed_point(24),
    "sign, 25 bits behind the point": _fixed_point(25),
    **{f"sign, {bits} bits of turns": _turns(bits, cut=True) for bits in (23, 24, 25)},
    **{f"sign, {bits} bits of rounded turns": _turns(bits, cut=False) for bits in (23, 24, 25)},
    "input": Key(1 << 16, lambda xp, given: given.astype(xp.int64)),  # of 16 bits
}


@dataclass(frozen=True)
class Measured:
    """One instruction of a chip, int64 steps.

    key: of KEYS, by which `table` has steps, in the binades that conform; none if it is empty
    conforms, least, most: by sign and exponent of an input; inputs, results: (n,) bits, sorted by input
    bounded: whether all results lie within PTX's bounds, also by sign and exponent; empty if nobody looked
    """

    key: str
    table: np.ndarray
    conforms: np.ndarray
    least: np.ndarray
    most: np.ndarray
    inputs: np.ndarray
    results: np.ndarray
    bounded: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))

    def range(self, found: Approximation, bits: Bits) -> Range:
        """The range of `Approximation.range` as the table has it, also beyond PTX's bounds; a known result is fixed."""
        within, binade = found.range(np, bits), bits.astype(np.int64) >> found.form.fraction
        low, high = (within.near + of[binade].astype(np.int64) for of in (self.least, self.most))
        known = within.fixed | (low == high)
        if self.key:
            conforms = self.conforms[binade]
            order = KEYS[self.key].order(np, found, bits, within, self.table)
            low, high = (np.where(conforms, order, each) for each in (low, high))
            known = known | conforms
        if len(self.bounded):
            open_ = ~known & self.bounded[binade]
            low, high = (
                np.where(open_, np.maximum(low, within.low), low),
                np.where(open_, np.minimum(high, within.high), high),
            )
        moved = ~within.fixed & known & (low != within.near)
        results = np.where(moved, found.given(np, low, within.bits), within.bits)
        if len(self.inputs):
            place = np.minimum(np.searchsorted(self.inputs, bits), len(self.inputs) - 1)
            hit = self.inputs[place] == bits
            results, known = np.where(hit, self.results[place], results), known | hit
        return Range(low, within.near, high, results, known)

    def without_table(self) -> Measured:
        """A copy with the bounds of each binade alone."""
        return replace(self, key="", table=self.table[:0])


class Chip(NamedTuple):
    """name: of the GPU; instructions: by mnemonic"""

    name: str
    instructions: Mapping[str, Measured]


@lru_cache(maxsize=256)
def _compressed(content: bytes) -> bytes:
    return bz2.compress(content)  # a quarter smaller than LZMA: steps are few, and repeat with the intervals of a unit


def pack(chip: Chip) -> dict[str, np.ndarray]:
    """The arrays of a file; equal tables are kept once."""
    blobs: dict[bytes, str] = {}

    def put(array: np.ndarray) -> list[str]:
        content = _compressed(np.ascontiguousarray(array).tobytes())
        return [blobs.setdefault(content, f"blob{len(blobs)}"), array.dtype.str]

    said = {
        name: {"key": each.key, "arrays": {of.name: put(getattr(each, of.name)) for of in fields(each)[1:]}}
        for name, each in chip.instructions.items()
    }
    header = json.dumps({"chip": chip.name, "instructions": said}).encode()
    found = {name: np.frombuffer(content, np.uint8) for content, name in blobs.items()}
    return {"header": np.frombuffer(header, np.uint8), **found}


def read(path: Path) -> Chip:
    """Read the table in a file that `pack` made; each instruction is unpacked when it is first asked for."""
    with np.load(path, allow_pickle=False) as file:
        blobs = {name: file[name].tobytes() for name in file.files}
    said = json.loads(blobs["header"])
    return Chip(said["chip"], _Unpacked(said["instructions"], blobs))


class _Unpacked(Mapping[str, Measured]):
    """The instructions of a file. said: of each, its key, and blob and type of each array"""

    def __init__(self, said: Mapping[str, Any], blobs: Mapping[str, bytes]):
        self._said = said
        self._found: dict[str, Measured] = {}
        self._array = cache(lambda name, kind: np.frombuffer(bz2.decompress(blobs[name]), np.dtype(kind)))

    def __getitem__(self, name: str) -> Measured:
        if name not in self._found:
            said = self._said[name]
            self._found[name] = Measured(said["key"], **{of: self._array(*each) for of, each in said["arrays"].items()})
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)


@lru_cache(maxsize=16)
def measured(target: str) -> Mapping[str, Measured]:
    """The measured instructions of a target's chip, such as `sm_90a`; empty if there is no table.

    An installation may leave out a table that was made, which a warning says where a kernel needs it.
    """
    path = FOLDER / f"{target.rstrip('af')}.npz"
    if path.exists():
        return read(path).instructions
    if path.stem in MADE:
        sentence = (
            f"{path.name}, which has what {MADE[path.stem]} gives, is not in {FOLDER}: approximate instructions of "
        )
        sentence += f"{target} give what PTX allows in place of it, and other bits in each order"
        warnings.warn(sentence, stacklevel=2)
    return {}
