"""What a chip does, by a table that `harness exhaustive --approximate` measured on it, for the targets it executes.

Results are steps from the formula's nearest value. Where all inputs of a key agree, in a binade of inputs, a table has
their steps, and the result is exact. In other binades the fewest and the most are bounds. Results that contradict what
PTX says stand beside them, by input.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from harness.emulator.approximate.bounds import Approximation, Range
from harness.emulator.registers import Bits

FOLDER = Path(__file__).parent / "chips"
Array = Any


class Key(NamedTuple):
    """Inputs of one key may give one number of steps. of: (xp, bits) → int64, below `count`"""

    count: int
    of: Callable[[ModuleType, Array], Array]


def _fraction(bits: int) -> Key:
    """Bits of a number behind its point, as fixed-point arithmetic sees it."""

    def of(xp: ModuleType, given: Array) -> Array:
        finite = given & 0x7F800000 != 0x7F800000
        values = xp.where(finite, given, 0).astype(xp.uint32).view(xp.float32).astype(xp.float64)
        scaled = xp.floor((values - xp.floor(values)) * float(1 << bits))
        return xp.minimum(scaled, float((1 << bits) - 1)).astype(xp.int64)

    return Key(1 << bits, of)


KEYS = {
    "fraction": Key(1 << 23, lambda xp, given: (given & 0x7FFFFF).astype(xp.int64)),
    "fraction, parity of the exponent": Key(1 << 24, lambda xp, given: (given & 0xFFFFFF).astype(xp.int64)),
    "23 bits behind the point": _fraction(23),
    "input": Key(1 << 16, lambda xp, given: given.astype(xp.int64)),  # of 16 bits
}


@dataclass(frozen=True)
class Measured:
    """One instruction of a chip, int64 steps.

    key: of KEYS, by which `table` has steps, in the binades that conform; none if it is empty
    conforms, least, most: by sign and exponent of an input; inputs, results: (n,) bits, sorted by input
    """

    key: str
    table: np.ndarray
    conforms: np.ndarray
    least: np.ndarray
    most: np.ndarray
    inputs: np.ndarray
    results: np.ndarray

    def range(self, found: Approximation, bits: Bits) -> Range:
        """As `Approximation.range`; where the result is known, it is fixed."""
        within, binade = found.range(np, bits), bits.astype(np.int64) >> found.form.fraction
        low, high = self.least[binade].astype(np.int64), self.most[binade].astype(np.int64)
        if self.key:
            steps = self.table[KEYS[self.key].of(np, bits)]
            low, high = (np.where(self.conforms[binade], steps, each) for each in (low, high))
        known = within.fixed | (low == high)
        moved = ~within.fixed & known & (low != 0)
        results = np.where(moved, found.given(np, within.near + low, within.bits), within.bits)
        if len(self.inputs):
            place = np.minimum(np.searchsorted(self.inputs, bits), len(self.inputs) - 1)
            hit = self.inputs[place] == bits
            results, known = np.where(hit, self.results[place], results), known | hit
        return Range(within.near + low, within.near, within.near + high, results, known)

    def without_table(self) -> Measured:
        """The bounds of each binade alone."""
        return replace(self, key="", table=self.table[:0])


class Chip(NamedTuple):
    """name: of the GPU; instructions: by mnemonic"""

    name: str
    instructions: Mapping[str, Measured]


@lru_cache(maxsize=256)
def _compressed(content: bytes) -> bytes:
    return lzma.compress(content, preset=3)


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
    """The table in a file of `pack`."""
    with np.load(path, allow_pickle=False) as file:
        said = json.loads(file["header"].tobytes())

        def get(name: str, kind: str) -> np.ndarray:
            return np.frombuffer(lzma.decompress(file[name].tobytes()), np.dtype(kind))

        instructions = {
            name: Measured(each["key"], **{of: get(*array) for of, array in each["arrays"].items()})
            for name, each in said["instructions"].items()
        }
    return Chip(said["chip"], instructions)


@lru_cache(maxsize=16)
def measured(target: str) -> Mapping[str, Measured]:
    """The measured instructions of a target's chip, such as `sm_90a`; empty if there is no table."""
    path = FOLDER / f"{target.rstrip('af')}.npz"
    return read(path).instructions if path.exists() else {}
