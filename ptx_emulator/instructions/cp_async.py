"""`cp.async`: reads global memory at once, and writes shared memory when the copy is waited for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.load_store import HINTS, place
from ptx_emulator.machine.batch import Batch
from ptx_emulator.memory import Access
from ptx_emulator.ptx.syntax import Instruction, Name, Operand
from ptx_emulator.registers import I64, U32, UNSIGNED, Bits


def cp_async(emitter: Emitter, instruction: Instruction) -> None:
    """Decode copies, `commit_group`, `wait_group` and `wait_all`."""
    parts = instruction.mnemonic.split(".")
    if parts[1] != "async":
        raise Unsupported
    if parts[2:3] in (["commit_group"], ["wait_all"], ["wait_group"]):
        keep = instruction.operands[0].bits if parts[2] == "wait_group" else 0
        if not 0 <= keep < 1 << 31:
            raise Unsupported
        emitter.emit(lambda batch, mask: _synchronise(batch, parts[2], keep, mask), (), ())
        return
    if parts[2:3] not in (["ca"], ["cg"]) or not {"shared", "shared::cta"} & set(parts) or parts[4:5] != ["global"]:
        raise Unsupported
    if not set(parts[5:]) <= HINTS:
        raise Unsupported
    size = instruction.operands[2].bits
    if size not in ((16,) if ".cg." in instruction.mnemonic else (4, 8, 16)):
        raise Unsupported
    count, width = (size // 8, 8) if size > 8 else (1, size)
    reads = emitter.access(instruction, "global", "reads", width, count)
    writes = emitter.access(instruction, "shared", "writes", width, count)
    target = place(emitter, instruction.operands[0], writes)
    source = place(emitter, instruction.operands[1], reads)
    kept = _bytes_used(emitter, instruction.operands[3], size) if len(instruction.operands) > 3 else None

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        registers = batch.registers
        used = None if kept is None else registers[kept]
        to = target.of(batch)
        values = _read(batch, reads, source.of(batch), used, mask)
        batch.mark_pending(writes, to, mask)
        batch.cp_async.start(writes, to, values, batch.under(mask))

    slots = (target.slot, source.slot)
    emitter.emit(step, slots if kept is None else (*slots, kept), ())


def _bytes_used(emitter: Emitter, operand: Operand, size: int) -> int:
    """The slot that holds the number of source bytes; with a true `ignore-src` predicate it is 0."""
    found = emitter.named(operand.text) if isinstance(operand, Name) else None
    if not found or found[1] != "pred":
        return emitter.source(operand, "b32")
    ignored = emitter.source(operand, "pred")
    return emitter.compute(lambda holds: np.where(holds, U32(0), U32(size)), "b32", (ignored,))


def _synchronise(batch: Batch, what: str, keep: int, mask: np.ndarray | None) -> None:
    lanes = batch.under(mask)
    if what != "wait_group":
        batch.cp_async.commit(lanes)
    if what != "commit_group":
        for copy, due in batch.cp_async.wait(keep, lanes):
            batch.land(copy.access, copy.address, copy.values, None if due.all() else due)


def _read(batch: Batch, reads: Access, source: Bits, used: Bits | None, mask: np.ndarray | None) -> list[Bits]:
    """The first `used` bytes of each lane's source, then zeros; the other bytes are neither read nor checked."""
    if used is None:
        return batch.read(reads, source, mask)
    lanes, used = batch.under(mask), batch.full(used).astype(I64)
    whole = lanes & (used >= reads.bytes)
    if (whole == lanes).all():
        return batch.read(reads, source, mask)
    part = lanes & (used > 0) & ~whole
    values = [np.zeros(batch.shape, UNSIGNED[reads.size]) for _ in range(reads.count)]
    if whole.any():
        values = batch.read(reads, source, whole)
    misaligned = part & (batch.full(source) % source.dtype.type(reads.bytes) != 0)
    if misaligned.any():
        lane = int(np.argmax(misaligned))
        sentence = (
            f"copies from address {int(batch.full(source).flat[lane]):#x}, which is not a multiple of {reads.bytes}"
        )
        batch.fault("misaligned", reads.instruction, lane, sentence)
    # Read one power of two after another, largest first, so that each is aligned.
    for width in (8, 4, 2, 1):
        chosen = part & (used & width != 0)
        if chosen.any():
            before = used & ~(2 * width - 1)
            address = source + before.astype(source.dtype)
            (piece,) = batch.read(replace(reads, size=width, count=1), address, chosen)
            for i, value in enumerate(values):
                here = chosen & (before // reads.size == i)
                shift = (8 * (before % reads.size)).astype(value.dtype)
                values[i] = np.where(here, value | piece.astype(value.dtype) << shift, value)
    return values


DECODERS: dict[str, Decoder] = {"cp": cp_async}
