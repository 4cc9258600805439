"""`tcgen05.mma`: matrix products of one block, D in tensor memory, B in shared memory, A in either.

From the PTX ISA, "tcgen05.mma", "Instruction Descriptor" and "Data Path Layout Organization", checked against CUTLASS's
include/cute/arch/mma_sm100_desc.hpp. D is (M, N) float32: row m lies in lane m if M is 128, and if M is 64 in lane
m % 16 of 32 lanes for each 16 rows; column n lies in column n. The sum is exact and rounded once to float32 (see
`matrix_product`), whatever order and precision hardware adds in.

Scales of e2m1 lie in tensor memory, those of row r in lane r % 32 of column r // 32, one byte for each block of K, the
first in the lowest, and again in each further 32 lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ptx_emulator.arithmetic import matrix_product as products
from ptx_emulator.arithmetic.rounding import bf16_values, f16_values
from ptx_emulator.errors import NotEmulated
from ptx_emulator.instructions.descriptors import CHUNK, Operands
from ptx_emulator.instructions.emitter import Emitter, Unsupported
from ptx_emulator.instructions.load_store import items_of
from ptx_emulator.instructions.mbarrier import each_lane
from ptx_emulator.instructions.tcgen05_moves import tensor_place
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.tensor_memory import KIND, LANES, QUARTER
from ptx_emulator.ptx.syntax import Address, Instruction, Vector
from ptx_emulator.races.tensor_shadow import Region, Use
from ptx_emulator.registers import F32, F64, U8, U32, UNSIGNED, Bits

_FLOAT32, _E2M1 = 1, 1  # types of D, and of A and B, in an instruction descriptor
_BUFFERS = {"collector::a::fill", "collector::a::discard"}  # whether A is kept; no value changes, as A is given
# Modifier → scales per row for one instruction, which is 64 elements deep.
_SCALES = {
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


_KINDS = {
    "f16": Kind(2, {0: f16_values, 1: bf16_values}),
    "tf32": Kind(4, {2: _tf32_values}),
    "f8f6f4": Kind(1, {0: lambda bits: products.BYTES["e4m3"][bits], 1: lambda bits: products.BYTES["e5m2"][bits]}),
}
_WIDTH = 32  # bytes of a row of A or B, for every type


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


class _Product:
    """One `tcgen05.mma`.

    scales: how many each row has, 0 without; left, right: slots of the descriptors of A, or its place, and of B
    disabled: slots of the lanes of D, 32 bits each, that are not written
    """

    def __init__(self, emitter: Emitter, instruction: Instruction):
        words = [word for word in instruction.mnemonic.split(".")[2:] if word not in _BUFFERS]
        if words[0] != "cta_group::1" or not words[1].startswith("kind::"):
            raise Unsupported
        self.instruction, self.kind, self.scales = instruction, words[1].removeprefix("kind::"), 0
        if self.kind in _SCALES:
            # `mxf4` has only one block size, so the modifier may be left out.
            block = words[3] if len(words) > 3 else "block32" if self.kind == "mxf4" else ""
            if words[2:3] != ["block_scale"] or len(words) > 4 or block not in _SCALES[self.kind]:
                raise Unsupported
            self.scales = _SCALES[self.kind][block]
        elif self.kind not in _KINDS or len(words) != 2:
            raise Unsupported
        target, a, b, which, *rest = instruction.operands
        self.target, self.operands = tensor_place(emitter, target), Operands(emitter, instruction)
        self.a_place = tensor_place(emitter, a) if isinstance(a, Address) else None
        self.left = self.a_place.slot if self.a_place else emitter.source(a, "b64")
        self.right, self.descriptor = emitter.source(b, "b64"), emitter.source(which, "u32")
        self.scale_places = [tensor_place(emitter, rest.pop(0)) for _ in range(2 if self.scales else 0)]
        masks = items_of(rest.pop(0), 4) if isinstance(rest[0], Vector) else ()
        self.disabled = [emitter.source(item, "b32") for item in masks]
        if len(rest) != 1 or (self.scales and (self.a_place or masks)):
            raise Unsupported
        self.added = emitter.source(rest[0], "pred")
        slots = [self.target.slot, self.left, self.right, self.descriptor, self.added, *self.disabled]
        emitter.emit(self.run, slots + [place.slot for place in self.scale_places], ())

    def run(self, batch: Batch, mask: np.ndarray | None) -> None:
        registers = batch.registers
        left = self.a_place.of(batch) if self.a_place else registers[self.left]
        columns = [self.target.of(batch), left, registers[self.right], registers[self.descriptor],
                   registers[self.added], *(registers[slot] for slot in self.disabled),
                   *(place.of(batch) for place in self.scale_places)]  # fmt: skip
        for lane, target, a, b, bits, added, *rest in each_lane(batch, mask, *columns):
            disabled, scales = rest[: len(self.disabled)], rest[len(self.disabled) :]
            self._multiply(batch, lane, target, (a, b), described(bits), bool(added), disabled, scales)

    def _multiply(
        self, batch: Batch, lane: int, target: int, matrices: tuple[int, int], descriptor: Descriptor, added: bool,
        disabled: list[int], scales: list[int],
    ) -> None:  # fmt: skip
        self._require(batch, lane, descriptor)
        memory, instruction = batch.tensor_memory, self.instruction
        use, reads = memory.issue(instruction, lane), []
        rows = self._rows(batch, lane, target, descriptor.rows, "writes")
        columns = (target & 0xFFFF) + np.arange(descriptor.columns)[None, :]
        memory.require_allocated(instruction, lane, "writes", columns)
        a = self._a(batch, lane, use, matrices[0], descriptor, reads)
        b = self._matrix(batch, lane, use, matrices[1], descriptor.columns, descriptor.b, descriptor.across[1])
        if scales:
            counts = descriptor.rows, descriptor.columns
            ids = descriptor.bits >> 29 & 3, descriptor.bits >> 4 & 3
            name = "ue8m0" if descriptor.bits >> 23 & 1 else "ue4m3"
            a, b = (
                products.scaled_codes(codes, self._scales(batch, lane, place, count, number, name, reads))
                for codes, place, count, number in zip((a, b), scales, counts, ids, strict=True)
            )
        a, b = a * descriptor.signs[0], b * descriptor.signs[1]
        region = rows[:, None], columns
        c = np.zeros((descriptor.rows, descriptor.columns), U32)
        if added:
            c = memory.read(instruction, lane, region)
            reads.append(region)
        written = self._enabled(rows, disabled)
        region = rows[written][:, None], columns
        memory.start(use, lane // batch.threads, reads, [region])
        memory.write(instruction, lane, region, products.multiply_values(a, np.ascontiguousarray(b.T), c)[written])

    def _require(self, batch: Batch, lane: int, descriptor: Descriptor) -> None:
        """Raise for combinations that are not emulated or that the manual does not allow."""
        bits, rows, columns = descriptor[:3]
        what = f"{self.instruction.mnemonic} at {self.instruction.location}"
        other = bits & 0b1111 or (not self.scales and bits >> 30)
        if self.scales:
            allowed = rows == LANES and columns % 8 == 0
            wrong_types = {descriptor.a, descriptor.b} != {_E2M1} or bits >> 31
            wrong_types = wrong_types or (self.kind == "mxf4" and not bits >> 23 & 1)
        else:
            allowed = rows in (64, LANES) and columns % (8 if rows == 64 else 16) == 0
            kind = _KINDS[self.kind]
            wrong_types = not {descriptor.a, descriptor.b} <= set(kind.types) or bits >> 4 & 3 != _FLOAT32
            wrong_types = wrong_types or (kind.width == 2 and descriptor.a != descriptor.b)
            # A matrix of 4-byte elements that lies across K needs a special swizzle.
            runs = ((descriptor.across[0], rows), (descriptor.across[1], columns))
            wrong_types |= any(across and (kind.width == 4 or count * kind.width % CHUNK) for across, count in runs)
        if other or wrong_types:
            raise NotEmulated(f"not emulated: {what} with the instruction descriptor {bits:#010x}")
        across = any(descriptor.across) if self.scales else self.a_place and descriptor.across[0]
        if not allowed or not 8 <= columns <= 256 or across:
            sentence = f"gets the instruction descriptor {bits:#010x}: M = {rows}, N = {columns}"
            sentence += ", transposed" if across else ""
            batch.fault(KIND, self.instruction, lane, f"{sentence}, which this kind does not allow")

    def _rows(self, batch: Batch, lane: int, address: int, count: int, verb: str) -> np.ndarray:
        """The lanes of tensor memory of the rows of A or D."""
        allowed = (0,) if count == LANES else (0, 16)
        first = self.operands.require_first_lane(batch, lane, address, verb, allowed)
        rows = np.arange(count)
        return rows if count == LANES else first + rows // 16 * QUARTER + rows % 16

    def _a(
        self, batch: Batch, lane: int, use: Use | None, where: int, descriptor: Descriptor, reads: list[Region]
    ) -> np.ndarray:
        if not self.a_place:
            return self._matrix(batch, lane, use, where, descriptor.rows, descriptor.a, descriptor.across[0])
        rows = self._rows(batch, lane, where, descriptor.rows, "reads")
        region = rows[:, None], (where & 0xFFFF) + np.arange(_WIDTH // 4)[None, :]
        reads.append(region)
        found = np.ascontiguousarray(batch.tensor_memory.read(self.instruction, lane, region))
        return self._values(descriptor.a, found)

    def _matrix(
        self, batch: Batch, lane: int, use: Use | None, descriptor: int, rows: int, kind: int, across: bool
    ) -> np.ndarray:
        """A matrix of shared memory, (rows, k): values, or packed codes where there are scales."""
        width = _KINDS[self.kind].width if across else 0
        found = self.operands.read(batch, lane, use, descriptor, rows, across=width)
        if self.scales:
            return found.reshape(rows, -1)
        if across:
            found = np.ascontiguousarray(found).view(UNSIGNED[width]).swapaxes(1, 2)
        return self._values(kind, np.ascontiguousarray(found).reshape(rows, -1))

    def _values(self, kind: int, found: Bits) -> np.ndarray:
        """Elements of a type, (rows, k) float64, of rows of 32 bytes."""
        width, types = _KINDS[self.kind]
        return types[kind](found.view(UNSIGNED[width])).astype(F64)

    def _scales(
        self, batch: Batch, lane: int, place: int, count: int, number: int, name: str, reads: list[Region]
    ) -> np.ndarray:
        """The scales of each row, (count, scales) float64. number: the byte in a word that holds the first"""
        self.operands.require_first_lane(batch, lane, place & 0x3FFFFFFF, "reads scales from", (0,))
        if number + self.scales > 4 or number % self.scales:
            sentence = f"takes its scales from byte {number} of a column on, where it needs {self.scales} bytes"
            batch.fault(KIND, self.instruction, lane, sentence)
        row = np.arange(count)
        copies = np.arange(LANES // QUARTER)[:, None] * QUARTER
        region = copies + row % QUARTER, np.broadcast_to((place & 0xFFFF) + row // QUARTER, (len(copies), count))
        found = np.ascontiguousarray(batch.tensor_memory.read(self.instruction, lane, region))
        reads.append(region)
        codes = found.view(U8).reshape(len(copies), count, 4)[:, :, number : number + self.scales]
        what = f"not emulated: {self.instruction.mnemonic} at {self.instruction.location} with"
        if (codes != codes[0]).any():
            raise NotEmulated(f"{what} scales that differ between the four times 32 lanes")
        if name == "ue4m3" and (codes[0] >> U8(7)).any():
            raise NotEmulated(f"{what} a negative scale")
        return products.SCALES[name][codes[0]]

    def _enabled(self, rows: np.ndarray, disabled: list[int]) -> np.ndarray:
        """The indices of the rows that an output-lane mask leaves to be written."""
        if not disabled:
            return np.arange(len(rows))
        words: Bits = np.array(disabled, U32)
        return np.flatnonzero(words[rows // 32] >> (rows % 32).astype(U32) & U32(1) == 0)


def multiply(emitter: Emitter, instruction: Instruction) -> None:
    """`tcgen05.mma`."""
    _Product(emitter, instruction)


def mnemonics() -> list[str]:
    """Every mnemonic decoded here, without what is kept of A."""
    names = [f"tcgen05.mma.cta_group::1.kind::{kind}" for kind in (*_KINDS, "mxf4.block_scale")]
    for kind, blocks in _SCALES.items():
        names += [f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.{block}" for block in blocks]
    return names
