"""`tcgen05.mma`: matrix products of one block or a pair, D in tensor memory, B in shared memory, A in either.

From the PTX ISA, "tcgen05.mma". The sum is exact and rounded once to float32 (see `matrix_product`), whatever order and
precision hardware adds in.

Scales of e2m1 lie in tensor memory, those of row r in lane r % 32 of column r // 32, one byte for each block of K, the
first in the lowest, and again in each further 32 lanes.

The even block of a pair has the first half of the rows of A, of D and of B, which are D's columns, and the odd block
the other half, each at the same addresses. Each has the scales of its own rows of A, and those of all of B (CUTLASS's
include/cute/atom/mma_traits_sm100.hpp, `SM100_MMA_MXF4_2x1SM_SS`).
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.arithmetic import matrix_product as products
from ptx_emulator.errors import NotEmulated
from ptx_emulator.instructions.descriptors import Operands
from ptx_emulator.instructions.emitter import Emitter, Unsupported
from ptx_emulator.instructions.load_store import items_of
from ptx_emulator.instructions.mbarrier import each_lane
from ptx_emulator.instructions.tcgen05_moves import GROUPS, tensor_place
from ptx_emulator.instructions.tcgen05_shapes import (
    KINDS,
    SCALES,
    WIDTH,
    Descriptor,
    Shape,
    cells_of_d,
    described,
    is_allowed,
    is_emulated,
    shape_of,
)
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.tensor_memory import KIND, LANES, QUARTER
from ptx_emulator.ptx.syntax import Address, Instruction, Vector
from ptx_emulator.races.tensor_shadow import Region, Use
from ptx_emulator.registers import F64, U8, U32, UNSIGNED, Bits

_BUFFERS = {"collector::a::fill", "collector::a::discard"}  # whether A is kept; no value changes, as A is given


class _Product:
    """One `tcgen05.mma`.

    paired: whether it is of a pair of blocks; scales: how many each row has, 0 without
    left, right: slots of the descriptors of A, or its place, and of B
    disabled: slots of the lanes of D, 32 bits each, that are not written; twice as many for a pair
    """

    def __init__(self, emitter: Emitter, instruction: Instruction):
        words = [word for word in instruction.mnemonic.split(".")[2:] if word not in _BUFFERS]
        if words[0] not in GROUPS or not words[1].startswith("kind::"):
            raise Unsupported
        self.paired = words[0] == GROUPS[1]
        self.instruction, self.kind, self.scales = instruction, words[1].removeprefix("kind::"), 0
        if self.kind in SCALES:
            # `mxf4` has only one block size, so the modifier may be left out.
            block = words[3] if len(words) > 3 else "block32" if self.kind == "mxf4" else ""
            if words[2:3] != ["block_scale"] or len(words) > 4 or block not in SCALES[self.kind]:
                raise Unsupported
            self.scales = SCALES[self.kind][block]
        elif self.kind not in KINDS or len(words) != 2:
            raise Unsupported
        target, a, b, which, *rest = instruction.operands
        self.target, self.operands = tensor_place(emitter, target), Operands(emitter, instruction)
        self.a_place = tensor_place(emitter, a) if isinstance(a, Address) else None
        self.left = self.a_place.slot if self.a_place else emitter.source(a, "b64")
        self.right, self.descriptor = emitter.source(b, "b64"), emitter.source(which, "u32")
        self.scale_places = [tensor_place(emitter, rest.pop(0)) for _ in range(2 if self.scales else 0)]
        masks = items_of(rest.pop(0), 8 if self.paired else 4) if isinstance(rest[0], Vector) else ()
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
        memory, instruction = batch.tensor_memory, self.instruction
        blocks = memory.pairs.blocks(instruction, lane, self.paired)
        shape = shape_of(descriptor, len(blocks))
        self._require(batch, lane, descriptor, shape, disabled)
        use = memory.issue(instruction, lane)
        first = self._first_lane(batch, lane, target, shape.rows, "writes")
        cells = cells_of_d(shape, descriptor.columns, first, target & 0xFFFF)
        for block in blocks:
            memory.require_allocated(instruction, lane, "writes", cells[1], block)
        reads: list[list[Region]] = [[] for _ in blocks]
        a = [
            self._a(batch, lane, use, block, matrices[0], descriptor, shape, of_block)
            for block, of_block in zip(blocks, reads, strict=True)
        ]
        of_b = matrices[1], shape.columns, descriptor.b, descriptor.across[1]
        b = np.concatenate([self._matrix(batch, lane, use, block, *of_b) for block in blocks])
        for block, left, of_block in zip(blocks, a, reads, strict=True):
            right = b
            if scales:
                left, right = self._scaled(batch, lane, block, (left, right), descriptor, scales, of_block)
            left, right = left * descriptor.signs[0], right * descriptor.signs[1]
            c = np.zeros((shape.rows, descriptor.columns), U32)
            if added:
                c = memory.read(instruction, lane, cells, block)
                of_block.append(cells)
            written = self._enabled(np.broadcast_to(cells[0], c.shape)[:, 0], disabled)
            region = cells[0][written], cells[1]
            memory.start(use, block, of_block, [region])
            values = products.multiply_values(left, np.ascontiguousarray(right.T), c)
            memory.write(instruction, lane, region, values[written], block)

    def _scaled(
        self, batch: Batch, lane: int, block: int, codes: tuple[np.ndarray, np.ndarray], descriptor: Descriptor,
        places: list[int], reads: list[Region],
    ) -> list[np.ndarray]:  # fmt: skip
        """The values of A and B of e2m1, by their codes and the scales that a block has of them."""
        ids = descriptor.bits >> 29 & 3, descriptor.bits >> 4 & 3
        name = "ue8m0" if descriptor.bits >> 23 & 1 else "ue4m3"
        return [
            products.scaled_codes(each, self._scales(batch, lane, block, place, len(each), number, name, reads))
            for each, place, number in zip(codes, places, ids, strict=True)
        ]

    def _require(self, batch: Batch, lane: int, descriptor: Descriptor, shape: Shape, disabled: list[int]) -> None:
        """Raise for combinations that are not emulated or that the manual does not allow."""
        bits, rows, columns = descriptor[:3]
        in_tensor = self.a_place is not None
        what = f"not emulated: {self.instruction.mnemonic} at {self.instruction.location} with"
        if not is_emulated(self.kind, self.scales, descriptor, shape, in_tensor):
            raise NotEmulated(f"{what} the instruction descriptor {bits:#010x}")
        if self.paired and any(disabled):
            raise NotEmulated(f"{what} lanes that are not written, of a pair of blocks")
        if not is_allowed(self.scales, descriptor, shape, in_tensor):
            across = any(descriptor.across) if self.scales else in_tensor and descriptor.across[0]
            sentence = f"gets the instruction descriptor {bits:#010x}: M = {rows}, N = {columns}"
            sentence += ", transposed" if across else ""
            batch.fault(KIND, self.instruction, lane, f"{sentence}, which this kind does not allow")

    def _first_lane(self, batch: Batch, lane: int, address: int, rows: int, verb: str) -> int:
        """The lane of tensor memory where the rows that a block has of A or D begin."""
        allowed = (0,) if rows == LANES or self.paired else (0, 16)
        return self.operands.require_first_lane(batch, lane, address, verb, allowed)

    def _a(
        self, batch: Batch, lane: int, use: Use | None, block: int, where: int, descriptor: Descriptor, shape: Shape,
        reads: list[Region],
    ) -> np.ndarray:  # fmt: skip
        """What a block has of A."""
        if not self.a_place:
            return self._matrix(batch, lane, use, block, where, shape.rows, descriptor.a, descriptor.across[0])
        first = self._first_lane(batch, lane, where, shape.rows, "reads")
        region = cells_of_d(shape, WIDTH // 4, first, where & 0xFFFF)
        reads.append(region)
        found = np.ascontiguousarray(batch.tensor_memory.read(self.instruction, lane, region, block))
        return self._values(descriptor.a, found)

    def _matrix(
        self, batch: Batch, lane: int, use: Use | None, block: int, descriptor: int, rows: int, kind: int, across: bool
    ) -> np.ndarray:
        """What a block has of a matrix in shared memory, (rows, k): values, or packed codes where there are scales."""
        width = KINDS[self.kind].width if across else 0
        found = self.operands.read(batch, lane, use, descriptor, rows, across=width, block=block)
        if self.scales:
            return found.reshape(rows, -1)
        if across:
            found = np.ascontiguousarray(found).view(UNSIGNED[width]).swapaxes(1, 2)
        return self._values(kind, np.ascontiguousarray(found).reshape(rows, -1))

    def _values(self, kind: int, found: Bits) -> np.ndarray:
        """Elements of a type, (rows, k) float64, of rows of 32 bytes."""
        width, types = KINDS[self.kind]
        return types[kind](found.view(UNSIGNED[width])).astype(F64)

    def _scales(
        self, batch: Batch, lane: int, block: int, place: int, count: int, number: int, name: str, reads: list[Region]
    ) -> np.ndarray:
        """The scales of each row, (count, scales) float64. number: the byte in a word that holds the first"""
        self.operands.require_first_lane(batch, lane, place & 0x3FFFFFFF, "reads scales from", (0,))
        if number + self.scales > 4 or number % self.scales:
            sentence = f"takes its scales from byte {number} of a column on, where it needs {self.scales} bytes"
            batch.fault(KIND, self.instruction, lane, sentence)
        row = np.arange(count)
        copies = np.arange(LANES // QUARTER)[:, None] * QUARTER
        region = copies + row % QUARTER, np.broadcast_to((place & 0xFFFF) + row // QUARTER, (len(copies), count))
        found = np.ascontiguousarray(batch.tensor_memory.read(self.instruction, lane, region, block))
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
    kinds = [*KINDS, "mxf4.block_scale"]
    kinds += [f"{kind}.block_scale.{block}" for kind, blocks in SCALES.items() for block in blocks]
    return [f"tcgen05.mma.{group}.kind::{kind}" for group in GROUPS for kind in kinds]
