"""Tensor maps: what a TMA copy needs to know of a tensor in global memory, in 128 bytes.

Their bits are the driver's own affair, so these are of our making. The meaning of the fields, the order of the elements
of a box in shared memory and the swizzles are from the CUDA driver API, "cuTensorMapEncodeTiled", and the PTX ISA,
"Tensors" and "cp.async.bulk.tensor"; which address bits a swizzle XORs, from CUTLASS (`Swizzle<3, 4, 3>` and its kin).
Tiles alone: neither im2col nor interleaved layouts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

SIZE = 128  # bytes, of which the address is a multiple of 64
MOST_DIMENSIONS = 5
_LAYOUT = struct.Struct("<4sBBBBB7xQ5I4x4Q5H5B")
_MAGIC = b"TMAP"

# Element type → bits, in the order of CUtensorMapDataType; the last is packed without gaps.
BITS = {
    "uint8": 8, "uint16": 16, "uint32": 32, "int32": 32, "uint64": 64, "int64": 64, "float16": 16, "float32": 32,
    "float64": 64, "bfloat16": 16, "float32_ftz": 32, "tfloat32": 32, "tfloat32_ftz": 32, "uint4": 4,
}  # fmt: skip
TYPES = tuple(BITS)
_NAN = {"float16": 0x7FFF, "bfloat16": 0x7FFF, "float32": 0x7FFFFFFF, "float32_ftz": 0x7FFFFFFF,
        "tfloat32": 0x7FFFFFFF, "tfloat32_ftz": 0x7FFFFFFF, "float64": 0x7FF8000000000000}  # fmt: skip

# Swizzle, in the order of CUtensorMapSwizzle → (bits, lowest bit that changes, distance to the bits it is XORed with).
SWIZZLES = {"none": (0, 4, 3), "32B": (1, 4, 3), "64B": (2, 4, 3), "128B": (3, 4, 3), "128B_atom_32B": (2, 5, 2)}
_SWIZZLE_NAMES = tuple(SWIZZLES)
_TOGETHER = 16  # bytes
_SPANS = {"32B": 32, "64B": 64, "128B": 128, "128B_atom_32B": 128}


class MalformedMap(ValueError):
    """The bytes are no tensor map, or its fields contradict what the driver demands."""


class Box(NamedTuple):
    """Where the bytes of a box lie, one row for each unit of `width` bytes, at most 16, all in the tensor or all not.

    shared: byte offsets from an aligned start, before the swizzle; outer: byte offsets from the tensor's address
    inside: whether the unit is of the tensor; all (n,)
    """

    width: int
    shared: np.ndarray
    outer: np.ndarray
    inside: np.ndarray


@dataclass(frozen=True)
class TensorMap:
    """Extents and strides count from the innermost dimension, which has no stride: its elements are dense.

    address: of the tensor, bytes; extents, box, steps: elements; strides: bytes, one fewer; steps: between elements
    fills_nan: whether elements outside of the tensor arrive as NaN, or else as zeros
    """

    kind: str
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: str = "none"
    fills_nan: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of a box in shared memory, which an mbarrier counts, whether or not all is in the tensor."""
        return math.prod(self._counts()) * BITS[self.kind] // 8

    def _counts(self) -> tuple[int, ...]:
        return self.box[0], *(-(-extent // step) for extent, step in zip(self.box[1:], self.steps[1:], strict=True))

    def check(self) -> None:
        """Raises MalformedMap for what cuTensorMapEncodeTiled refuses."""
        rank, bits = len(self.extents), BITS[self.kind]
        if not 1 <= rank <= MOST_DIMENSIONS or not len(self.box) == len(self.steps) == rank == len(self.strides) + 1:
            raise MalformedMap(f"a tensor map of {rank} dimensions, {len(self.box)} of the box, "
                               f"{len(self.strides)} strides")  # fmt: skip
        if self.address % 16:
            raise MalformedMap(f"the tensor's address {self.address:#x} is not a multiple of 16")
        for name, values, most in (("extent", self.extents, 1 << 32), ("box", self.box, 256), ("step", self.steps, 8)):
            wrong = [value for value in values if not 1 <= value <= most]
            if wrong:
                raise MalformedMap(f"a {name} of {wrong[0]}, where 1 to {most} are allowed")
        wrong = [stride for stride in self.strides if stride % 16 or not 0 <= stride < 1 << 40]
        if wrong:
            raise MalformedMap(f"a stride of {wrong[0]} bytes, which is not a multiple of 16 below 2^40")
        inner = self.box[0] * bits // 8
        if inner % 16 or self.box[0] * bits % 8:
            raise MalformedMap(
                f"a box whose rows have {self.box[0]} elements of {bits} bits, not a multiple of 16 bytes"
            )
        span = _SPANS.get(self.swizzle)
        if span and inner > span:
            raise MalformedMap(f"a box with rows of {inner} bytes, more than the {span} of swizzle {self.swizzle}")
        if self.fills_nan and self.kind not in _NAN:
            raise MalformedMap(f"NaN for what lies outside of a tensor of {self.kind}")

    def encode(self) -> bytes:
        """The 128 bytes. Raises MalformedMap."""
        self.check()

        def padded(values: Sequence[int], count: int) -> tuple[int, ...]:
            return (*values, *(0,) * (count - len(values)))

        head = TYPES.index(self.kind), len(self.extents), 0, _SWIZZLE_NAMES.index(self.swizzle), self.fills_nan
        extents = tuple(extent - 1 for extent in self.extents)  # 2^32 fits
        body = _LAYOUT.pack(
            _MAGIC, *head, self.address, *padded(extents, 5), *padded(self.strides, 4), *padded(self.box, 5),
            *padded(self.steps, 5),
        )  # fmt: skip
        return body.ljust(SIZE, b"\0")

    def fill(self) -> bytes:
        """One unit of what arrives from outside of the tensor."""
        width, element = self._width(), max(1, BITS[self.kind] // 8)
        return _NAN[self.kind].to_bytes(element, "little") * (width // element) if self.fills_nan else bytes(width)

    def _width(self) -> int:
        """Bytes of a unit: as many as a swizzle keeps together, or fewer where the tensor ends between."""
        ends = self.extents[0] * BITS[self.kind]
        return next((width for width in (_TOGETHER, 8, 4, 2) if ends % (8 * width) == 0), 1)

    def moved(self, address: int) -> TensorMap:
        """The same map of a tensor at another address."""
        return replace(self, address=address)

    def units(self, start: Sequence[int]) -> Box:
        """The box whose first element has these coordinates, the innermost first; they may be negative.

        The innermost is a multiple of 16 bytes.
        """
        ends = (at + (count - 1) * step for at, count, step in zip(start, self._counts(), self._steps(), strict=True))
        if min(start) < 0 or any(end >= extent for end, extent in zip(ends, self.extents, strict=True)):
            return self._units(start)
        at = start[0] * BITS[self.kind] // 8 + sum(i * stride for i, stride in zip(start[1:], self.strides, strict=True))
        return self._first._replace(outer=self._first.outer + at)

    @cached_property
    def _first(self) -> Box:
        """The box at the origin of a tensor that holds it; every box that lies inside looks like it."""
        return self._units((0,) * len(self.extents))

    def _steps(self) -> tuple[int, ...]:
        return 1, *self.steps[1:]

    def _units(self, start: Sequence[int]) -> Box:
        width, bits = self._width(), BITS[self.kind]
        per_unit = 8 * width // bits  # elements
        counts = list(self._counts())
        counts[0] //= per_unit
        inside, outer = np.ones((1,) * len(counts), bool), np.zeros((1,) * len(counts), np.int64)
        shared, pitch = np.zeros((1,) * len(counts), np.int64), width
        for axis, (count, extent) in enumerate(zip(counts, self.extents, strict=True)):
            shape = [1] * len(counts)
            shape[axis] = count
            steps = np.arange(count, dtype=np.int64).reshape(shape)
            index = start[axis] + steps * (per_unit if axis == 0 else self.steps[axis])
            inside = inside & (index >= 0) & (index < extent)
            outer = outer + index * (self.strides[axis - 1] if axis else 0)
            if axis == 0:
                outer = outer + index * bits // 8
            shared = shared + steps * pitch
            pitch *= count
        shape = np.broadcast_shapes(shared.shape, inside.shape)
        # The innermost runs fastest in shared memory.
        return Box(width, *(np.broadcast_to(each, shape).ravel(order="F") for each in (shared, outer, inside)))


def swizzled(addresses: np.ndarray, swizzle: str) -> np.ndarray:
    """Where bytes of shared memory go, by their absolute addresses."""
    bits, low, distance = SWIZZLES[swizzle]
    mask = (1 << bits) - 1 << low
    return addresses ^ (addresses >> distance & mask)


# What `tensormap.replace` may change → where it lies among the fields.
FIELDS = {
    "global_address": 6, "rank": 2, "box_dim": 16, "global_dim": 7, "global_stride": 12, "element_stride": 21,
    "elemtype": 1, "interleave_layout": 3, "swizzle_mode": 4, "fill_mode": 5,
}  # fmt: skip
_PTX_TYPES = ("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float32_ftz", "float64",
              "bfloat16", "tfloat32", "tfloat32_ftz", "uint4")  # fmt: skip


def replaced(content: bytes, field: str, ordinal: int, value: int) -> bytes:
    """The 128 bytes with one field changed, as PTX counts it. Raises MalformedMap if they are no tensor map."""
    fields = list(_LAYOUT.unpack(content[: _LAYOUT.size]))
    if fields[0] != _MAGIC or (field == "elemtype" and value >= len(_PTX_TYPES)):
        raise MalformedMap("the bytes are no tensor map, or the type is unknown")
    if field == "elemtype":
        value = TYPES.index(_PTX_TYPES[value])
    number = {"rank": value + 1, "global_dim": value - 1}.get(field, value)
    try:
        fields[FIELDS[field] + ordinal] = number
        return _LAYOUT.pack(*fields).ljust(SIZE, b"\0")
    except struct.error as error:
        raise MalformedMap(f"{field} of {value}") from error


@lru_cache(maxsize=256)
def decode(content: bytes) -> TensorMap:
    """The map in 128 bytes. Raises MalformedMap."""
    magic, kind, rank, interleave, swizzle, fills_nan, address, *rest = _LAYOUT.unpack(content[: _LAYOUT.size])
    if magic != _MAGIC or kind >= len(TYPES) or swizzle >= len(_SWIZZLE_NAMES) or not 1 <= rank <= MOST_DIMENSIONS:
        raise MalformedMap("the bytes are no tensor map")
    extents, strides, box, steps = rest[:5], rest[5:9], rest[9:14], rest[14:19]
    found = TensorMap(
        TYPES[kind], address, tuple(extent + 1 for extent in extents[:rank]), tuple(strides[: rank - 1]),
        tuple(box[:rank]), tuple(steps[:rank]), _SWIZZLE_NAMES[swizzle], bool(fills_nan),
    )  # fmt: skip
    found.check()
    return found
