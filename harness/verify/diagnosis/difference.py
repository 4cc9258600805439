"""Where two arrays of a field first part, to the last byte, and how far a value is outside an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.contract.field import Field
from harness.contract.interval import Interval, order
from harness.errors import ContractError
from harness.expected.expected import Expected

_TILE = (128, 4)
_GROUPS = 4  # rows r, r+32, r+64, r+96 of a tile lie side by side


@dataclass(frozen=True)
class Difference:
    """How an array differs from what its field must be.

    kind: `dtype`, `shape` or `strides`, which make a comparison of entries meaningless, else `bytes`, or `padding` if
        only padding is wrong
    count, total: entries that differ, and entries of the allocation
    index: the first wrong entry in the array, preferably one that is not padding
    compact: the same entry in compact order; equals `index` unless the field is swizzled
    expected, actual: the bytes of that entry; for the first three kinds in words
    """

    field: str
    kind: str
    count: int
    total: int
    index: tuple[int, ...]
    compact: tuple[int, ...]
    expected: bytes | str
    actual: bytes | str

    @property
    def share(self) -> float:
        return self.count / self.total

    def __str__(self) -> str:
        if isinstance(self.expected, str):
            return f"{self.field}: {self.kind} is {self.actual}, must be {self.expected}"
        where = f"first at {list(self.index)}"
        return f"{self.field}: {self.count} of {self.total} entries differ ({self.kind}), {where}"


def compare(name: str, field: Field, expected: np.ndarray, actual: np.ndarray) -> Difference | None:
    """None if `actual` has the field's dtype and shape, lies C-contiguous, and holds the expected bytes.

    A NaN in an amax field never passes, not even beside an expected NaN: an amax cannot be one. Elsewhere a NaN is
    compared by its bytes like any value. Raises ContractError if `expected` itself does not fit the field.
    """
    if expected.dtype.name != field.dtype or expected.shape != field.shape:
        raise ContractError(
            f"{name}: the oracle gave {expected.dtype.name}{expected.shape}, the field is {field.dtype}{field.shape}"
        )
    layouts = (
        ("dtype", field.dtype, actual.dtype.name),
        ("shape", str(field.shape), str(actual.shape)),
        ("strides", "C-contiguous", "C-contiguous" if actual.flags.c_contiguous else str(actual.strides)),
    )
    for kind, must_be, found in layouts:
        if must_be != found:
            return Difference(name, kind, expected.size, expected.size, (), (), must_be, found)
    wrong = wrong_entries(name, expected, actual)
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    valued = wrong & owned(field)
    kind = "bytes" if valued.any() else "padding"
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(valued if kind == "bytes" else wrong)), wrong.shape))
    where = compact_index(field, index)
    return Difference(name, kind, count, wrong.size, index, where, expected[index].tobytes(), actual[index].tobytes())


def wrong_entries(name: str, expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Mask, in the array's own order, of entries whose bytes differ; both arrays have the same dtype and shape."""
    bits = np.dtype(f"u{expected.dtype.itemsize}")
    wrong = np.ascontiguousarray(expected).view(bits) != np.ascontiguousarray(actual).view(bits)
    return wrong | np.isnan(expected) if name.endswith("amax") else wrong


def owned(field: Field) -> np.ndarray:
    """Mask, in the array's own order, of entries that hold a value and not padding."""
    if field.parts:
        return np.concatenate([owned(part).reshape(-1) for part in field.parts]).reshape(field.shape)
    if field.valid is None:
        return np.ones(field.shape, bool)
    mask = np.zeros(field.shape, bool)
    mask[tuple(slice(extent) for extent in field.valid)] = True
    return swizzled(mask) if field.swizzled else mask


def compacted(field: Field, array: np.ndarray) -> np.ndarray:
    return unswizzled(array) if field.swizzled else array


def swizzled(array: np.ndarray) -> np.ndarray:
    """A compact (R, C) array of whole 128x4 tiles in tile order, same shape."""
    rows, cols = array.shape
    tiles = array.reshape(rows // _TILE[0], _GROUPS, _TILE[0] // _GROUPS, cols // _TILE[1], _TILE[1])
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(rows, cols)


def unswizzled(array: np.ndarray) -> np.ndarray:
    rows, cols = array.shape
    tiles = array.reshape(rows // _TILE[0], cols // _TILE[1], _TILE[0] // _GROUPS, _GROUPS, _TILE[1])
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(rows, cols)


def compact_index(field: Field, index: tuple[int, ...]) -> tuple[int, ...]:
    """The index in compact order of an entry of the array."""
    if not field.swizzled:
        return index
    offset = index[0] * field.shape[1] + index[1]
    tile, within = divmod(offset, _TILE[0] * _TILE[1])
    tile_row, tile_col = divmod(tile, field.shape[1] // _TILE[1])
    lane, place = divmod(within, _GROUPS * _TILE[1])
    group, col = divmod(place, _TILE[1])
    return tile_row * _TILE[0] + group * (_TILE[0] // _GROUPS) + lane, tile_col * _TILE[1] + col


def first_input(field: Field, compact: tuple[int, ...]) -> tuple[int, int]:
    """(row, col) of the first input element behind an entry, given in compact order.

    An entry of a 16x16 block stands for its own line, so that the coordinate names the line of the wrong byte; one of
    a block of a column stands for its first row.
    """
    down = field.block[0] if field.block[1] == 1 else 1
    line = compact[0] * down if field.shape != (1,) else 0
    element = compact[1] * field.block[1] if len(compact) == 2 else 0
    return (element, line) if field.transposed else (line, element)


Arrays = Mapping[str, np.ndarray]


def resolved(expected: Expected, runs: Sequence[Arrays]) -> tuple[int, dict[str, np.ndarray]]:
    """Choose the run to explain, and the bytes it should have had.

    This is the first wrong run; for an interval, the right value is the permitted one nearest to the actual value.
    If no run is outside, it is the first run that differs from run 0, compared with run 0's bytes.
    """
    for number, run in enumerate(runs):
        values = {
            name: value.nearest(run[name]) if isinstance(value, Interval) and comparable(value, run[name]) else value
            for name, value in expected.values.items()
        }
        values = {name: value.low if isinstance(value, Interval) else value for name, value in values.items()}
        if _differs(expected, values, run):
            return number, values
    bounded = {name: runs[0][name] for name, value in expected.values.items() if isinstance(value, Interval)}
    values = {**expected.values, **bounded}
    return next((i for i, run in enumerate(runs) if _differs(expected, values, run)), 0), values


def comparable(interval: Interval, actual: np.ndarray) -> bool:
    return actual.dtype == interval.dtype and actual.shape == interval.shape


def beyond(interval: Interval, actual: np.ndarray, first: tuple[int, ...]) -> tuple[str, str]:
    """Text on how far one entry is outside, and on the entry that is furthest outside if that is another one."""
    low, high, value = (array.astype(np.float64) for array in (interval.low, interval.high, actual))
    keys, nearest = (order(array).astype(np.int64) for array in (actual, interval.nearest(actual)))
    with np.errstate(invalid="ignore"):
        # A wrong NaN, or a number in place of a NaN, counts as the furthest.
        off = np.where(keys < nearest, low - value, np.where(keys > nearest, value - high, 0))
    off = np.where((keys != nearest) & np.isnan(off), np.inf, off)

    def describe(at: tuple[int, ...]) -> str:
        if np.isnan(value[at]):
            return "a NaN where there may be none" if not np.isnan(low[at]) else "a NaN with other bits"
        if np.isnan(low[at]):
            return "no NaN where there must be one"
        return f"{off[at]:.4g} {'below the lowest' if keys[at] < nearest[at] else 'above the highest'}"

    steps, wide = int(abs(keys[first] - nearest[first])), high[first] - low[first]
    text = f"{describe(first)}, {steps} {'step' if steps == 1 else 'steps'} of {actual.dtype.name}"
    if 0 < wide < np.inf and off[first] < np.inf:
        text += f", {off[first] / wide:.3g} times the interval"
    furthest = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    return text, "" if furthest == first else f"{list(furthest)}, {describe(furthest)}"


def _differs(expected: Expected, values: Arrays, run: Arrays) -> bool:
    return any(compare(name, field, values[name], run[name]) for name, field in expected.fields.items())
