"""Tensor maps: what a TMA copy needs to know of a tensor in global memory, in 128 bytes.

The driver does not document their bits, so the layout here is our own. The meaning of the fields, the order of a box's
elements in shared memory and the swizzles are from the CUDA driver API, "cuTensorMapEncodeTiled", and the PTX ISA,
"Tensors" and "cp.async.bulk.tensor"; which address bits a swizzle XORs, from CUTLASS (`Swizzle<3, 4, 3>` and its kin).
Tiles alone, not im2col. What no public text says is from copies that an H200 made (tests/ptx_emulator/probes.py): in an
interleaved layout (NC/8HWC8) the innermost dimension counts slices of 16 or 32 bytes, and of the last dimension but one
a box has a single place, whatever its extent there; rows of a box that are shorter than its swizzle lie as far apart as
the swizzle is wide, and only the box's own bytes count.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from ptx_emulator.registers import U8, U32

# Element type → bits, in the order of CUtensorMapDataType; the last is packed without gaps.
BITS = {
    "uint8": 8, "uint16": 16, "uint32": 32, "int32": 32, "uint64": 64, "int64": 64, "float16": 16, "float32": 32,
    "float64": 64, "bfloat16": 16, "float32_ftz": 32, "tfloat32": 32, "tfloat32_ftz": 32, "uint4": 4,
}  # fmt: skip
TYPES = tuple(BITS)
FLOATS = frozenset(kind for kind in TYPES if "float" in kind)
NAN_PAIR = b"\xf7\x7f"  # 0x7FF7, a 16-bit NaN; repeated, it is a NaN in wider elements, too
_NAN_TF32 = U32(0x7FFFE000)


def loaded(content: np.ndarray, kind: str) -> np.ndarray:
    """Bytes of elements, (n, width) uint8, as a load writes them to shared memory.

    An H200 (driver 580.159.04) rounds tfloat32 to the nearest, ties to even, and leaves subnormals of `_ftz` as they
    are; the NaN that it writes for places outside of a tensor are those above.
    """
    if kind not in ("tfloat32", "tfloat32_ftz"):
        return content
    bits = np.ascontiguousarray(content).view(U32)
    magnitude = bits & U32(0x7FFFFFFF)
    even = bits + U32(0xFFF) + (bits >> U32(13) & U32(1))
    rounded = np.where(magnitude < U32(0x7F800000), even & U32(0xFFFFE000), bits)
    bits = np.where(magnitude > U32(0x7F800000), _NAN_TF32, rounded)
    return np.ascontiguousarray(bits).view(U8)


SIZE = 128  # bytes of a map; its address is a multiple of 64
MOST_DIMENSIONS, _LEAST_INTERLEAVED = 5, 3
_LAYOUT = struct.Struct("<4sBBBBBB6xQ5I4x4Q5H5B")
_MAGIC = b"TMAP"

# Swizzle, in the order of CUtensorMapSwizzle → (bits, lowest bit that changes, distance to the bits it is XORed with).
SWIZZLES = {
    "none": (0, 4, 3), "32B": (1, 4, 3), "64B": (2, 4, 3), "128B": (3, 4, 3), "128B_atom_32B": (2, 5, 2),
    "128B_atom_32B_flip_8B": (2, 5, 2), "128B_atom_64B": (1, 6, 1),
}  # fmt: skip
FLIPS = "128B_atom_32B_flip_8B"  # in odd lines of 128 bytes the halves of each 16 bytes swap; only for loads
_MODES, _ATOMS = ("none", "32B", "64B", "128B"), ("", "_atom_32B", "_atom_32B_flip_8B", "_atom_64B")
_TOGETHER = 16  # bytes
_START = 8 * _TOGETHER  # bits; a row of a box starts at a multiple of it, and a store writes this much as one
_SPANS = {"32B": 32, "64B": 64} | {f"128B{atom}": 128 for atom in _ATOMS}
# Interleave, in the order of CUtensorMapInterleave → bytes of a slice of channels.
SLICES = {"none": 0, "16B": 16, "32B": 32}
_INTERLEAVES = tuple(SLICES)


class MalformedMap(ValueError):
    """The bytes are no tensor map, or its fields contradict what the driver demands."""


class Box(NamedTuple):
    """Where the bytes of a box lie, one row for each unit of `width` bytes, at most 16, all in the tensor or all not.

    shared: byte offsets from an aligned start, before the swizzle; outer: byte offsets from the tensor's address
    inside: whether the unit is of the tensor
    padding: whether it lies behind the end of a row of the tensor, in the last 16 bytes that the row has a part of: a
    load fills it, and a store writes it; all (n,)
    """

    width: int
    shared: np.ndarray
    outer: np.ndarray
    inside: np.ndarray
    padding: np.ndarray


@dataclass(frozen=True)
class TensorMap:
    """Extents and strides count from the innermost dimension, which has no stride: its elements are dense.

    address: of the tensor, bytes; extents, box, steps: elements; strides: bytes, one fewer; steps: between elements
    fills_nan: whether elements outside of the tensor arrive as NaN, or else as zeros
    interleave: of channels, in slices of so many bytes, which the innermost dimension then counts
    """

    kind: str
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: str = "none"
    fills_nan: bool = False
    interleave: str = "none"

    @property
    def bytes(self) -> int:
        """Bytes of a box in shared memory, which an mbarrier counts, whether or not all is in the tensor."""
        return math.prod(self._counts()) * self.innermost_bits // 8

    @property
    def innermost_bits(self) -> int:
        """Bits from one place of the innermost dimension to the next: an element, or a slice of interleaved ones."""
        return 8 * SLICES[self.interleave] or BITS[self.kind]

    def _counts(self) -> tuple[int, ...]:
        counts = [self.box[0], *(-(-extent // step) for extent, step in zip(self.box[1:], self.steps[1:], strict=True))]
        if SLICES[self.interleave]:
            counts[-2] = 1
        return tuple(counts)

    def check(self) -> None:
        """Raises MalformedMap for what cuTensorMapEncodeTiled refuses."""
        rank, bits = len(self.extents), BITS[self.kind]
        if not 1 <= rank <= MOST_DIMENSIONS or not len(self.box) == len(self.steps) == rank == len(self.strides) + 1:
            raise MalformedMap(f"a tensor map of {rank} dimensions, {len(self.box)} of the box, "
                               f"{len(self.strides)} strides")  # fmt: skip
        align = max(16, SLICES[self.interleave])
        if self.address % align:
            raise MalformedMap(f"the tensor's address {self.address:#x} is not a multiple of {align}")
        for name, values, most in (("extent", self.extents, 1 << 32), ("box", self.box, 256), ("step", self.steps, 8)):
            wrong = [value for value in values if not 1 <= value <= most]
            if wrong:
                raise MalformedMap(f"a {name} of {wrong[0]}, where 1 to {most} are allowed")
        wrong = [stride for stride in self.strides if stride % align or not 0 <= stride < 1 << 40]
        if wrong:
            raise MalformedMap(f"a stride of {wrong[0]} bytes, which is not a multiple of {align} below 2^40")
        self._check_rows(self.box[0] * bits)
        if self.interleave == "none":
            pass
        elif rank < _LEAST_INTERLEAVED:
            raise MalformedMap(
                f"interleave {self.interleave} of a tensor of {rank} dimensions, where 3 to 5 are allowed"
            )
        elif self.interleave == "32B" and self.swizzle != "32B":
            raise MalformedMap(f"interleave 32B with swizzle {self.swizzle}, where it needs swizzle 32B")
        if self.fills_nan and self.kind not in FLOATS:
            raise MalformedMap(f"NaN for what lies outside of a tensor of {self.kind}")

    def _check_rows(self, bits: int) -> None:
        """Raise MalformedMap for a row of the box that the driver refuses. bits: bits of the row"""
        if bits % (8 * 16):
            raise MalformedMap(
                f"a box whose rows have {self.box[0]} elements of {BITS[self.kind]} bits, not a multiple of 16 bytes"
            )
        span = _SPANS.get(self.swizzle)
        if span and bits > 8 * span and self.interleave == "none":
            raise MalformedMap(f"a box with rows of {bits // 8} bytes, more than the {span} of swizzle {self.swizzle}")

    def check_emulated(self) -> None:
        """Raises MalformedMap for what no public text explains and no GPU was asked about."""
        if SLICES[self.interleave] and max(self.steps) > 1:
            raise MalformedMap(f"interleave {self.interleave} with a step of {max(self.steps)}; 1 is emulated")
        row, span = self.box[0] * self.innermost_bits // 8, _SPANS.get(self.swizzle, 0)
        if row < span and (SLICES[self.interleave] or self.swizzle not in _MODES):
            sentence = f"a box with rows of {row} bytes, less than the {span} of swizzle {self.swizzle}"
            raise MalformedMap(f"{sentence}: emulated where its atoms are of 16 bytes and nothing is interleaved")

    def encode(self) -> bytes:
        """The 128 bytes. Raises MalformedMap."""
        self.check()

        def padded(values: Sequence[int], count: int) -> tuple[int, ...]:
            return (*values, *(0,) * (count - len(values)))

        mode = next(mode for mode in reversed(_MODES) if self.swizzle.startswith(mode))
        head = (
            TYPES.index(self.kind), len(self.extents), _INTERLEAVES.index(self.interleave), _MODES.index(mode),
            self.fills_nan, _ATOMS.index(self.swizzle.removeprefix(mode)),
        )  # fmt: skip
        extents = tuple(extent - 1 for extent in self.extents)  # minus 1, so that 2^32 fits
        body = _LAYOUT.pack(
            _MAGIC, *head, self.address, *padded(extents, 5), *padded(self.strides, 4), *padded(self.box, 5),
            *padded(self.steps, 5),
        )  # fmt: skip
        return body.ljust(SIZE, b"\0")

    def fill(self) -> bytes:
        """The bytes that a load writes for one unit outside of the tensor."""
        return (NAN_PAIR * 8)[: self._width()] if self.fills_nan else bytes(self._width())

    def _width(self) -> int:
        """Bytes of a unit: as many as a swizzle keeps together, or fewer if the tensor's row ends within them."""
        ends = self.extents[0] * self.innermost_bits
        most = _TOGETHER // 2 if self.swizzle == FLIPS else _TOGETHER
        return next((width for width in (16, 8, 4, 2) if width <= most and ends % (8 * width) == 0), 1)

    def moved(self, address: int) -> TensorMap:
        """The map for a tensor at another address."""
        return replace(self, address=address)

    def units(self, start: Sequence[int]) -> Box:
        """The box whose first element has these coordinates, the innermost first; they may be negative.

        The innermost is a multiple of 16 bytes.
        """
        ends = (at + (count - 1) * step for at, count, step in zip(start, self._counts(), self._steps(), strict=True))
        if min(start) < 0 or any(end >= extent for end, extent in zip(ends, self.extents, strict=True)):
            return self._units(start)
        at = start[0] * self.innermost_bits // 8 + sum(
            i * stride for i, stride in zip(start[1:], self.strides, strict=True)
        )
        return self._first._replace(outer=self._first.outer + at)

    @cached_property
    def _first(self) -> Box:
        """The box at the origin of a tensor that holds it; every box that lies inside looks like it."""
        return self._units((0,) * len(self.extents))

    def _steps(self) -> tuple[int, ...]:
        return 1, *self.steps[1:]

    def _units(self, start: Sequence[int]) -> Box:
        width, bits = self._width(), self.innermost_bits
        # The innermost dimension is counted in bytes, because a unit may be several elements or a part of a slice.
        counts = self._counts()
        counts = (counts[0] * bits // (8 * width), *counts[1:])
        starts = (start[0] * bits // 8, *start[1:])
        ends = (self.extents[0] * bits // 8, *self.extents[1:])
        reaches = (-(-ends[0] // _TOGETHER) * _TOGETHER, *ends[1:])
        inside, near = np.ones((1,) * len(counts), bool), np.ones((1,) * len(counts), bool)
        outer = np.zeros((1,) * len(counts), np.int64)
        shared, pitch = np.zeros((1,) * len(counts), np.int64), width
        for axis, count in enumerate(counts):
            shape = [1] * len(counts)
            shape[axis] = count
            places = np.arange(count, dtype=np.int64).reshape(shape)
            index = starts[axis] + places * (self.steps[axis] if axis else width)
            inside = inside & (index >= 0) & (index < ends[axis])
            near = near & (index >= 0) & (index < reaches[axis])
            outer = outer + index * (self.strides[axis - 1] if axis else 1)
            shared = shared + places * pitch
            pitch *= count
            if axis == 0:
                pitch = max(pitch, _SPANS.get(self.swizzle, 0))
        shape = np.broadcast_shapes(shared.shape, inside.shape)
        # The innermost dimension runs fastest in shared memory.
        arrays = (shared, outer, inside, near & ~inside)
        return Box(width, *(np.broadcast_to(each, shape).ravel(order="F") for each in arrays))


def swizzled(addresses: np.ndarray, swizzle: str) -> np.ndarray:
    """The swizzled addresses of bytes of shared memory, from their absolute addresses."""
    bits, low, distance = SWIZZLES[swizzle]
    mask = (1 << bits) - 1 << low
    found = addresses ^ (addresses >> distance & mask)
    return found ^ (addresses >> 4 & 8) if swizzle == FLIPS else found


# The name of a field in `tensormap.replace` → its position among the fields.
FIELDS = {
    "global_address": 7, "rank": 2, "box_dim": 17, "global_dim": 8, "global_stride": 13, "element_stride": 22,
    "elemtype": 1, "interleave_layout": 3, "swizzle_mode": 4, "fill_mode": 5, "swizzle_atomicity": 6,
}  # fmt: skip
_PTX_TYPES = ("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float32_ftz", "float64",
              "bfloat16", "tfloat32", "tfloat32_ftz", "uint4")  # fmt: skip
_CHOICES = {"elemtype": _PTX_TYPES, "interleave_layout": _INTERLEAVES, "swizzle_mode": _MODES,
            "swizzle_atomicity": _ATOMS, "fill_mode": (False, True)}  # fmt: skip


def replaced(content: bytes, field: str, ordinal: int, value: int) -> bytes:
    """The 128 bytes with one field changed, as PTX counts it. Raises MalformedMap if they are no tensor map.

    All zeros count as a map with empty fields, because Triton's kernels build their maps from zeros, field by field.
    """
    fields = list(_LAYOUT.unpack(content[: _LAYOUT.size]))
    if not any(content):
        fields[0] = _MAGIC
    if fields[0] != _MAGIC:
        raise MalformedMap("the bytes are no tensor map")
    if field in _CHOICES and value >= len(_CHOICES[field]):
        raise MalformedMap(f"{field} of {value}, which is none of {', '.join(map(str, _CHOICES[field]))}")
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
    magic, kind, rank, interleave, mode, fills_nan, atom, address, *rest = _LAYOUT.unpack(content[: _LAYOUT.size])
    known = kind < len(TYPES) and interleave < len(SLICES) and mode < len(_MODES) and atom < len(_ATOMS)
    if magic != _MAGIC or not known or not 1 <= rank <= MOST_DIMENSIONS:
        raise MalformedMap("the bytes are no tensor map")
    if atom and _MODES[mode] != "128B":
        raise MalformedMap(f"swizzle {_MODES[mode]} in atoms{_ATOMS[atom].replace('_', ' ')}, which 128B alone has")
    extents, strides, box, steps = rest[:5], rest[5:9], rest[9:14], rest[14:19]
    found = TensorMap(
        TYPES[kind], address, tuple(extent + 1 for extent in extents[:rank]), tuple(strides[: rank - 1]),
        tuple(box[:rank]), tuple(steps[:rank]), _MODES[mode] + _ATOMS[atom], bool(fills_nan), _INTERLEAVES[interleave],
    )  # fmt: skip
    found.check()
    found.check_emulated()
    return found
