"""Count the different values in a case's expected fields, to notice a case that compares only one value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval
from harness.suite.suite_file import declared_degenerate
from harness.verify.witness import magnitudes

# (number of entries, the fewest different values they may have), for codes, scale bytes, amaxes and outputs.
_CODES = ((256, 3), (1024, 8))
_SCALES = ((64, 3),)
_AMAXES = ((16, 2),)
_VALUES = ((16, 2), (1024, 8))
_MOST = 1 << 20  # entries; of a larger field about this many are looked at
_FEWEST = 1 << 12  # the least for each tensor of a group


def objection(case: Case, fields: Mapping[str, Field], values: Mapping[str, Demand]) -> str:
    """A sentence about a field with too few different values; empty if there is none, or the suite gives a reason."""
    for name, entries, found, least in counted(fields, values):
        if case.elements and found < least and not declared_degenerate(case, name):
            return (
                f"the expected {name} has {found} different values among {entries}; there must be {least}, or a reason "
                "in the suite, under `degenerate`"
            )
    return ""


def counted(fields: Mapping[str, Field], values: Mapping[str, Demand]) -> Iterator[tuple[str, int, int, int]]:
    """Yield (field, number of entries, different values, required number) for every field."""
    for name, field in fields.items():
        value = values[name]
        kind, entries, independent = _entries(field, value.low if isinstance(value, Interval) else value)
        least = max((k for size, k in kind if independent >= size), default=1 if independent else 0)
        yield name, independent, _different(entries), least


def _different(entries: np.ndarray) -> int:
    if entries.itemsize > 2:
        return int(np.unique(entries).size)
    return int(np.count_nonzero(np.bincount(entries.view(f"u{entries.itemsize}"))))  # cheaper than sorting


def _entries(field: Field, value: np.ndarray, most: int = _MOST) -> tuple[tuple[tuple[int, int], ...], np.ndarray, int]:
    """A field's limits, about `most` of its entries, and how many entries are not copies by definition."""
    if field.parts:
        most = max(_FEWEST, most // len(field.parts))
        each = [_entries(part, field.part(value, number), most) for number, part in enumerate(field.parts) if part.size]
        if not each:
            return _VALUES, np.empty(0, np.uint8), 0
        return each[0][0], np.concatenate([entries for _, entries, _ in each]), sum(count for *_, count in each)
    if field.valid is not None:
        stored = value.reshape(-1)[magnitudes.places(field.shape, field.valid, field.swizzled, most)]
        return _SCALES, stored.reshape(-1), math.prod(field.valid) // (16 if field.block[0] == 16 else 1)
    if field.dtype == "uint8" and field.block == (1, 2):
        some = _some(value, most)
        return _CODES, np.concatenate([some & 15, some >> 4]), 2 * value.size
    return _VALUES if field.block == (1, 1) else _AMAXES, _some(value.view(f"u{value.itemsize}"), most), value.size


def _some(array: np.ndarray, most: int) -> np.ndarray:
    flat = array.reshape(-1)
    return flat[:: magnitudes.step(flat.size, most)]
