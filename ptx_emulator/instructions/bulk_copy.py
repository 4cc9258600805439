"""`cp.async.bulk`, `cp.reduce.async.bulk` and their groups, for contiguous bytes and for boxes.

From the PTX ISA, "Data Movement and Conversion Instructions: Bulk copy". A copy to shared memory counts its bytes at an
mbarrier of the same block; one from there belongs to a bulk group of the thread that issued it.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from ptx_emulator.errors import NotEmulated
from ptx_emulator.instructions.cp_async import cp_async
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.mbarrier import copies_arrive, each_lane, shared_place
from ptx_emulator.instructions.transfers import Reduction, Transfers, of_elements, reduction
from ptx_emulator.machine.batch import Batch
from ptx_emulator.memory import IN_BLOCK, WINDOW_BITS, Buffer
from ptx_emulator.ptx.syntax import Instruction, TensorAddress
from ptx_emulator.registers import I32
from ptx_emulator.tensor_map import FLIPS, SIZE, Box, MalformedMap, TensorMap, decode, swizzled

UNIT = 16  # bytes; sizes and addresses are multiples of it
_HINTS = {"L2::cache_hint"}
_MBARRIER = "mbarrier::complete_tx::bytes"


def bulk(emitter: Emitter, instruction: Instruction) -> None:
    """Decode every instruction whose name begins with `cp`."""
    words = instruction.mnemonic.split(".")
    reduces = words[1] == "reduce"
    if words[:3] == ["cp", "async", "bulk"]:
        rest = words[3:]
    elif words[:4] == ["cp", "reduce", "async", "bulk"]:
        rest = words[4:]
    elif words[:4] == ["cp", "async", "mbarrier", "arrive"]:
        return copies_arrive(emitter, instruction)
    else:
        return cp_async(emitter, instruction)
    if rest[0] in ("commit_group", "wait_group"):
        return _groups(emitter, instruction, rest)
    if rest[0] == "prefetch":
        return None  # changes no byte
    if rest[0] == "tensor":
        return tensor(emitter, instruction, rest[1:], reduces)
    return _Copy(emitter, instruction, rest, reduces).emit()


def _groups(emitter: Emitter, instruction: Instruction, words: list[str]) -> None:
    if words not in (["commit_group"], ["wait_group"], ["wait_group", "read"]):
        raise Unsupported
    keep = instruction.operands[0].bits if words[0] == "wait_group" else 0

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        lanes, proxy = np.flatnonzero(batch.under(mask)), batch.asynchronous
        if words[0] == "wait_group":
            proxy.wait_group(lanes, keep, read="read" in words)
            return
        for lane in lanes.tolist():
            proxy.queue(lane).committed += 1

    emitter.emit(step, (), ())


class _Copy:
    """A copy of contiguous bytes."""

    def __init__(self, emitter: Emitter, instruction: Instruction, words: list[str], reduces: bool):
        to, source, *rest = words
        self.emitter, self.instruction = emitter, instruction
        self.to_shared = to in ("shared::cluster", "shared::cta")
        self.from_shared = source == "shared::cta"
        if (to != "global" and not self.to_shared) or (source != "global" and not self.from_shared):
            raise Unsupported
        self.multicast = "multicast::cluster" in rest
        completion = _MBARRIER if self.to_shared else "bulk_group"
        operation = [word for word in rest[1:] if word not in _HINTS | {"multicast::cluster"}]
        if rest[:1] != [completion] or bool(operation) != reduces or (reduces and self.to_shared):
            raise Unsupported
        self.reduction = reduction(operation, not self.to_shared) if reduces else None

    def emit(self) -> None:
        emitter, operands = self.emitter, list(self.instruction.operands)
        target, source = (shared_place(emitter, operand) for operand in operands[:2])
        size = emitter.source(operands[2], "u32")
        rest = operands[3:]
        barrier = shared_place(emitter, rest.pop(0)) if self.to_shared else target
        mask_of_blocks = emitter.source(rest.pop(0), "b16") if self.multicast else emitter.constant(0, "b16")
        transfers = Transfers(emitter, self.instruction, UNIT, self.reduction)
        slots = (target.slot, source.slot, size, barrier.slot, mask_of_blocks)

        def step(batch: Batch, mask: np.ndarray | None) -> None:
            registers = batch.registers
            columns = (
                target.of(batch),
                source.of(batch),
                registers[size],
                barrier.of(batch),
                registers[mask_of_blocks],
            )
            for lane, to, origin, count, at, blocks in each_lane(batch, mask, *columns):
                transfers.require_size(batch, lane, count, UNIT)
                start = np.zeros(1, np.int64)
                if not self.to_shared:
                    transfers.to_global(batch, lane, origin, start, to + start, count, UNIT)
                elif self.from_shared:
                    transfers.between_blocks(batch, lane, to, origin, count, at)
                else:
                    transfers.require_global(batch, lane, origin, UNIT)
                    every = [rank for rank in range(16) if blocks >> rank & 1] if self.multicast else [None]
                    transfers.to_shared(batch, lane, every, to, start, origin + start, count, at, count, UNIT)

        emitter.emit(step, slots, ())


# ---- boxes ----------------------------------------------------------------------------------------------------------


_DIMENSIONS = tuple(f"{count}d" for count in range(1, 6))
_ALIGNMENT = 128
_CELL = 4  # bytes of a cell of global memory
_START = 128  # bits; the innermost coordinate is a multiple of it
_OF_LOADS = ("L2::cache_hint", "multicast::cluster", "cta_group::1", "cta_group::2")


def tensor(emitter: Emitter, instruction: Instruction, words: list[str], reduces: bool) -> None:
    """Decode a copy or reduction of a box. words: the modifiers behind `tensor`"""
    if words[0] not in _DIMENSIONS:
        raise Unsupported
    rank, multicast, paired = int(words[0][0]), "multicast::cluster" in words, "cta_group::2" in words
    # CUTLASS has the group in front of the state spaces, the manual behind them.
    to, source, *rest = (word for word in words[1:] if word != "tile" and word not in _OF_LOADS)
    if to in ("shared::cluster", "shared::cta") and source == "global" and rest == [_MBARRIER] and not reduces:
        _load(emitter, instruction, rank, multicast, paired)
    elif to == "global" and source == "shared::cta" and "bulk_group" in rest and not paired:
        rest.remove("bulk_group")
        if bool(rest) != reduces:
            raise Unsupported
        _store(emitter, instruction, rank, rest)
    else:
        raise Unsupported


def _load(emitter: Emitter, instruction: Instruction, rank: int, multicast: bool, paired: bool) -> None:
    """paired: whether the mbarrier may be of the peer of the block that receives the box"""
    where, what, barrier, *rest = instruction.operands
    target, at = shared_place(emitter, where), shared_place(emitter, barrier)
    blocks = emitter.source(rest.pop(0), "b16") if multicast else emitter.constant(0, "b16")
    place, coordinates = _tensor(emitter, what, rank)
    transfers = Transfers(emitter, instruction, _CELL)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        columns = (target.of(batch), at.of(batch), batch.registers[blocks], place.of(batch),
                   *(batch.registers[slot] for slot in coordinates))  # fmt: skip
        for lane, to, mbarrier, ranks, address, *start in each_lane(batch, mask, *columns):
            found, holder = _map(batch, instruction, lane, address, rank)
            box = _box(batch, instruction, lane, found, start)
            shared = _in_swizzle(batch, found, to, box.shared)
            every = [each for each in range(16) if ranks >> each & 1] if multicast else [None]
            transfers.to_shared(
                batch, lane, every, to, shared, found.address + box.outer, box.width, mbarrier, found.bytes, _ALIGNMENT,
                box.inside, found.fill(), holder, found.kind, paired,
            )  # fmt: skip

    emitter.emit(step, (target.slot, at.slot, blocks, place.slot, *coordinates), ())


def _store(emitter: Emitter, instruction: Instruction, rank: int, operation: list[str]) -> None:
    what, where = instruction.operands[:2]
    source = shared_place(emitter, where)
    place, coordinates = _tensor(emitter, what, rank)
    transfers = Transfers(emitter, instruction, _CELL, of_elements("add", "uint32") if operation else None)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        columns = (source.of(batch), place.of(batch), *(batch.registers[slot] for slot in coordinates))
        for lane, origin, address, *start in each_lane(batch, mask, *columns):
            found, holder = _map(batch, instruction, lane, address, rank)
            if found.swizzle == FLIPS:
                _refuse(instruction, f"swizzle {FLIPS} is for loads alone")
            _require_not_before(batch, instruction, lane, start)
            box = _box(batch, instruction, lane, found, start)
            shared = _in_swizzle(batch, found, origin, box.shared)
            transfers.reduction = _reduction(instruction, operation[0], found) if operation else None
            chosen = box.inside | box.padding  # at the end of a row a reduction, too, works on whole 16 bytes
            transfers.to_global(
                batch, lane, origin, shared[chosen], found.address + box.outer[chosen], box.width, _ALIGNMENT,
                holder, found.bytes, box.padding[chosen],
            )  # fmt: skip

    emitter.emit(step, (source.slot, place.slot, *coordinates), ())


def _reduction(instruction: Instruction, operation: str, found: TensorMap) -> Reduction:
    try:
        return of_elements(operation, found.kind)
    except Unsupported:
        _refuse(instruction, f"no {operation} of {found.kind}, for which a GPU raises an illegal instruction")


def _tensor(emitter: Emitter, operand: TensorAddress, rank: int) -> tuple:
    """The slot of a tensor map's address, and those of the coordinates."""
    if not isinstance(operand, TensorAddress) or len(operand.coordinates) != rank:
        raise Unsupported
    return shared_place(emitter, operand.map), [emitter.source(each, "s32") for each in operand.coordinates]


def _box(batch: Batch, instruction: Instruction, lane: int, found: TensorMap, start: list[int]) -> Box:
    """The box at these coordinates, as registers hold them. A GPU ends with an illegal instruction where the innermost
    is not a multiple of 16 bytes (triton-lang/triton#7385, tile-ai/tilelang#2527)."""
    signed = np.array(start, np.uint32).view(I32).tolist()
    bits = found.innermost_bits
    if signed[0] * bits % _START:
        sentence = f"copies a box at innermost coordinate {signed[0]}, which is {signed[0] * bits / 8:g} bytes of "
        sentence += f"{found.kind}: not a multiple of 16 bytes, so a GPU raises an illegal instruction"
        batch.fault("misaligned", instruction, lane, sentence)
    return found.units(signed)


def _require_not_before(batch: Batch, instruction: Instruction, lane: int, start: list[int]) -> None:
    """A store may not begin before the tensor (CUDA Programming Guide, "Tensor memory access"); an H200 ends six of six
    such stores with an illegal instruction, of each rank and whichever coordinate is negative."""
    signed = np.array(start, np.uint32).view(I32).tolist()
    if min(signed) < 0:
        sentence = f"stores a box at coordinates ({', '.join(map(str, signed))}), of which one is negative: a load may "
        sentence += "begin before the tensor, but for a store a GPU raises an illegal instruction"
        batch.fault("out_of_bounds", instruction, lane, sentence)


def _in_swizzle(batch: Batch, found: TensorMap, address: int, offsets: np.ndarray) -> np.ndarray:
    """Offsets from an address of shared memory at which a box's bytes lie."""
    first = address & IN_BLOCK
    return swizzled(first + offsets, found.swizzle) - first


def _map(
    batch: Batch, instruction: Instruction, lane: int, address: int, rank: int
) -> tuple[TensorMap, tuple[Buffer, int]]:
    """The tensor map at an address, and where it is kept."""
    buffer = batch.launch.memory.get(address >> WINDOW_BITS)
    offset = address - buffer.address if buffer is not None else 0
    if buffer is None or not 0 <= offset <= len(buffer.data) - SIZE:
        sentence = f"copies with a tensor map at address {address:#x}, which lies in no buffer"
        batch.fault("out_of_bounds", instruction, lane, sentence)
    if address % 64:
        sentence = f"copies with a tensor map at address {address:#x}, which is not a multiple of 64"
        batch.fault("misaligned", instruction, lane, sentence)
    try:
        found = decode(buffer.data[offset : offset + SIZE].tobytes())
    except MalformedMap as error:
        _refuse(instruction, str(error))
    if len(found.extents) != rank:
        sentence = f"copies a box of {rank} dimensions with a tensor map of {len(found.extents)}"
        batch.fault("out_of_bounds", instruction, lane, sentence)
    return found, (buffer, offset)


def _refuse(instruction: Instruction, why: str) -> NoReturn:
    raise NotEmulated(f"not emulated: {instruction.mnemonic} at {instruction.location}: {why}")


DECODERS: dict[str, Decoder] = {"cp": bulk}


def mnemonics() -> list[str]:
    """Every mnemonic decoded here, without hints."""
    kinds = [f"{name}.{kind}" for name in ("add", "min", "max") for kind in ("u32", "s32", "u64", "s64")]
    kinds.remove("add.s64")
    kinds += [f"{name}.b{width}" for width in (32, 64) for name in ("and", "or", "xor")]
    kinds += ["inc.u32", "dec.u32", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16"]
    kinds += [f"{name}.{kind}" for name in ("min", "max") for kind in ("f16", "bf16")]
    names = [f"cp.async.bulk.shared::cluster.{source}.{_MBARRIER}" for source in ("global", "shared::cta")]
    names += ["cp.async.bulk.global.shared::cta.bulk_group", f"cp.async.bulk.shared::cta.global.{_MBARRIER}"]
    names += [f"cp.async.bulk.shared::cluster.global.{_MBARRIER}.multicast::cluster"]
    names += [f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{kind}" for kind in kinds]
    names += ["cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read"]
    loads = [f"cp.async.bulk.tensor.{rank}.shared::cluster.global.tile.{_MBARRIER}" for rank in _DIMENSIONS]
    stores = [f"cp.async.bulk.tensor.{rank}.global.shared::cta.tile.bulk_group" for rank in _DIMENSIONS]
    reductions = [
        f"cp.reduce.async.bulk.tensor.{rank}.global.shared::cta.{name}.tile.bulk_group"
        for rank in _DIMENSIONS for name in ("add", "min", "max", "inc", "dec", "and", "or", "xor")
    ]  # fmt: skip
    loads += [f"{loads[0]}.cta_group::2"]
    return names + loads + stores + reductions
