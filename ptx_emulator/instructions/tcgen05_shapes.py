"""The products that `tcgen05.mma` has: kinds, the instruction descriptor, and where rows and columns of D lie.

From the PTX ISA, "Matrix Shape", "Instruction Descriptor" and "Data Path Layout Organization", checked against
CUTLASS's include/cute/arch/mma_sm100_desc.hpp and atom/mma_traits_sm100_frag.hpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ptx_emulator.arithmetic import matrix_product as products
from ptx_emulator.arithmetic.rounding import bf16_values, f16_values
from ptx_emulator.instructions.descriptors import CHUNK
from ptx_emulator.machine.tensor_memory import LANES, QUARTER
from ptx_emulator.races.tensor_shadow import Region
from ptx_emulator.registers import F32, U32, Bits

_FLOAT32, _E2M1 = 1, 1  # types of D, and of A and B, in an instruction descriptor
# Modifier → scales per row for one instruction, which is 64 elements deep.
SCALES = {
    "mxf4": {"scale_vec::2X": 2, "block32": 2},
    "mxf4nvf4": {"scale_vec::4X": 4, "block16": 4, "scale_vec::2X": 2, "block32": 2},
}


class Kind(NamedTuple):
    """A kind without scales. width: bytes of an element; types: by number, the function from patterns to values"""

    width: int
    types: dict[int, Callable[[Bits], np.ndarray]]


def _tf32_values(bits: Bits) -> np.ndarray:
    """The values of float32 patterns, with the last 13 bits ignored."""
    return (bits & U32(0xFFFFE000)).view(F32)


KINDS = {
    "f16": Kind(2, {0: f16_values, 1: bf16_values}),
    "tf32": Kind(4, {2: _tf32_values}),
    "f8f6f4": Kind(1, {0: lambda bits: products.BYTES["e4m3"][bits], 1: lambda bits: products.BYTES["e5m2"][bits]}),
}
WIDTH = 32  # bytes of a row of A or B, for every type


class Descriptor(NamedTuple):
    """The fields of an instruction descriptor that all kinds share; `bits` is the whole descriptor."""

    bits: int
    rows: int
    columns: int
    a: int
    b: int
    signs: tuple[int, int]
    across: tuple[bool, bool]


def described(bits: int) -> Descriptor:
    """Decode an instruction descriptor of 32 bits."""
    return Descriptor(
        bits, (bits >> 24 & 31) << 4, (bits >> 17 & 63) << 3, bits >> 7 & 7, bits >> 10 & 7,
        (1 - 2 * (bits >> 13 & 1), 1 - 2 * (bits >> 14 & 1)), (bool(bits >> 15 & 1), bool(bits >> 16 & 1)),
    )  # fmt: skip


class Shape(NamedTuple):
    """What one block has of a product. blocks: 1, or 2 of a pair; rows: of A and of D; columns: of B"""

    blocks: int
    rows: int
    columns: int

    @property
    def folded(self) -> bool:
        """Whether D takes half as many columns: the other half of each row is 64 lanes behind (Layout B)."""
        return self.blocks == 2 and self.rows < LANES


def shape_of(descriptor: Descriptor, blocks: int) -> Shape:
    return Shape(blocks, descriptor.rows // blocks, descriptor.columns // blocks)


def is_emulated(kind: str, scales: int, descriptor: Descriptor, shape: Shape, in_tensor: bool) -> bool:
    """Whether a product of these types is emulated. in_tensor: whether A lies in tensor memory"""
    bits = descriptor.bits
    if shape.folded and (scales or in_tensor):
        return False  # its scales, and A, lie in other lanes, too
    if bits & 0b1111 or (not scales and bits >> 30):
        return False
    if scales:
        wrong = {descriptor.a, descriptor.b} != {_E2M1} or bits >> 31
        return not (wrong or (kind == "mxf4" and not bits >> 23 & 1))
    types = KINDS[kind]
    if not {descriptor.a, descriptor.b} <= set(types.types) or bits >> 4 & 3 != _FLOAT32:
        return False
    if types.width == 2 and descriptor.a != descriptor.b:
        return False
    # A matrix of 4-byte elements that lies across K needs a special swizzle.
    runs = ((descriptor.across[0], shape.rows), (descriptor.across[1], shape.columns))
    return not any(across and (types.width == 4 or count * types.width % CHUNK) for across, count in runs)


def is_allowed(scales: int, descriptor: Descriptor, shape: Shape, in_tensor: bool) -> bool:
    """Whether the manual has a product of these extents."""
    _, rows, columns = descriptor[:3]
    if any(descriptor.across) if scales else in_tensor and descriptor.across[0]:
        return False
    if shape.blocks == 2:
        good = rows in (LANES, 2 * LANES) and columns % 16 == 0
    elif scales:
        good = rows == LANES and columns % 8 == 0
    else:
        good = rows in (64, LANES) and columns % (8 if rows == 64 else 16) == 0
    return good and 8 <= columns <= 256


def cells_of_d(shape: Shape, columns: int, first: int, column: int) -> Region:
    """The cells of tensor memory of a block's rows of D, (rows, columns) by broadcasting.

    columns: of D; first, column: the place where it begins. Row m lies in lane m if a block has 128, and if it has 64
    in lane m % 16 of 32 lanes for each 16 rows, or in lane m and, for the second half of the columns of a pair, m + 64.
    """
    rows, every = np.arange(shape.rows)[:, None], np.arange(columns)[None, :]
    if shape.folded:
        half = columns // 2
        return rows + every // half * shape.rows, column + every % half
    lanes = rows if shape.rows == LANES else first + rows // 16 * QUARTER + rows % 16
    return lanes, column + every
