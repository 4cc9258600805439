"""Whether two arrays of a field are the same to the last byte, and where they first part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.contract.field import Field
from harness.errors import ContractError

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

    An entry of a 16x16 block stands for its own line, so that the coordinate names the line of the wrong byte.
    """
    line = compact[0] if field.shape != (1,) else 0
    element = compact[1] * field.block[1] if len(compact) == 2 else 0
    return (element, line) if field.transposed else (line, element)
