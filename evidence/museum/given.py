"""The tensor maps and contents of the museum's arrays, for the emulator and a GPU."""

from __future__ import annotations

import math

import numpy as np

from evidence.museum.exhibit import Array, Map
from ptx_emulator.tensor_map import BITS, TensorMap

OPTIONS = ("-std=c++17", "-ftz=false", "-fmad=false", "-lineinfo")


def map_of(found: Map, address: int) -> TensorMap:
    """The tensor map of a dense array."""
    width = BITS[found.kind] // 8
    strides = tuple(width * math.prod(found.extents[: i + 1]) for i in range(len(found.extents) - 1))
    return TensorMap(found.kind, address, found.extents, strides, found.box, (1,) * len(found.box))


def contents(array: Array) -> np.ndarray:
    """The bytes of an array before the launches."""
    data = np.zeros(array.size, np.uint8)
    if array.content in ("ramp", "inverse"):
        data[:] = np.arange(array.size, dtype=np.int64) % 251
        data ^= 0xFF if array.content == "inverse" else 0
    elif array.content in ("nan", "unwritten"):
        data[:] = 0xFF
    return data
