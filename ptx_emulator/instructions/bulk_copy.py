"""`cp.async.bulk`, `cp.reduce.async.bulk` and their groups, for contiguous bytes; for boxes see `bulk_tensor`.

From the PTX ISA, "Data Movement and Conversion Instructions: Bulk copy". A copy to shared memory counts its bytes at an
mbarrier of the same block; one from there belongs to a bulk group of the thread that issued it.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.instructions import bulk_tensor
from ptx_emulator.instructions.cp_async import cp_async
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.mbarrier import copies_arrive, each_lane, shared_place
from ptx_emulator.instructions.reductions import reduction
from ptx_emulator.instructions.transfers import Transfers
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import Instruction

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
        return bulk_tensor.tensor(emitter, instruction, rest[1:], reduces)
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


DECODERS: dict[str, Decoder] = {"cp": bulk}


def mnemonics() -> list[str]:
    """Every mnemonic decoded here and in `bulk_tensor`, without hints."""
    kinds = [f"{name}.{kind}" for name in ("add", "min", "max") for kind in ("u32", "s32", "u64", "s64")]
    kinds = [kind for kind in kinds if kind != "add.s64"]
    kinds += [
        "and.b32",
        "or.b32",
        "xor.b32",
        "and.b64",
        "or.b64",
        "xor.b64",
        "inc.u32",
        "dec.u32",
        "add.f32",
        "add.f64",
    ]
    kinds += [f"{name}.{kind}" for name in ("min", "max") for kind in ("f16", "bf16")]
    kinds += ["add.noftz.f16", "add.noftz.bf16"]
    names = [f"cp.async.bulk.shared::cluster.{source}.{_MBARRIER}" for source in ("global", "shared::cta")]
    names += ["cp.async.bulk.global.shared::cta.bulk_group", f"cp.async.bulk.shared::cta.global.{_MBARRIER}"]
    names += [f"cp.async.bulk.shared::cluster.global.{_MBARRIER}.multicast::cluster"]
    names += [f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{kind}" for kind in kinds]
    names += ["cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read"]
    return names + bulk_tensor.mnemonics()
