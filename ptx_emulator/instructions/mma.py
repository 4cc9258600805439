"""`mma`, `ldmatrix`, `stmatrix` and `movmatrix`.

A matrix lies in 8x8 fragments: lane 4g + t holds elements 2t and 2t + 1 of row g, in one register if they have 16 bits,
else in two. A (16, k) has two rows of fragments, for k = 16 the left halves first; C (16, 8) has two fragments; B
(k, 8) is stored by columns.

Neither instruction orders a warp's memory: what other lanes stored needs `bar.warp.sync` or a barrier first.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.arithmetic import hopper_product as hopper
from ptx_emulator.arithmetic import matrix_product as products
from ptx_emulator.compiled import opcodes
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.load_store import items_of, place
from ptx_emulator.machine.basic_blocks import Fast
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.registers import U16, U32, Bits

_DEPTHS = {"m16n8k16": 2, "m16n8k8": 1}  # in fragments
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}


def gather(batch: Batch, slots: list[int], warps: np.ndarray | None) -> Bits:
    """Read registers: (registers, warps, 32) uint32. warps: the active ones, None for all"""
    values = [batch.full(batch.registers[slot]).reshape(-1, 32) for slot in slots]
    return np.stack([value if warps is None else value[warps] for value in values])


def scatter(batch: Batch, targets: list[int], values: Bits, warps: np.ndarray | None) -> None:
    """Write registers of the active warps. values: (registers, warps, 32) uint32"""
    for target, value in zip(targets, values, strict=True):
        out = value
        if warps is not None:
            out = batch.full(batch.registers[target]).reshape(-1, 32).copy()
            out[warps] = value
        batch.registers.put(target, out.reshape(batch.shape), None)


# ---- mma ------------------------------------------------------------------------------------------------------------


def rows_of_a(registers: Bits) -> Bits:
    """(n, 16, k) uint16 from (k / 4, n, 32) registers."""
    depth, n = len(registers) // 2, registers.shape[1]
    parts = registers.view(U16).reshape(depth, 2, n, 8, 4, 2)  # column block, row block, warp, g, t, element
    return parts.transpose(2, 1, 3, 0, 4, 5).reshape(n, 16, 8 * depth)


def _columns_of_b(registers: Bits) -> Bits:
    """(n, k, 8) uint16 from (k / 8, n, 32) registers."""
    depth, n = registers.shape[:2]
    parts = registers.view(U16).reshape(depth, n, 8, 4, 2)  # row block, warp, g, t, element
    return parts.transpose(1, 0, 3, 4, 2).reshape(n, 8 * depth, 8)


def rows_of_c(registers: Bits) -> Bits:
    """(n, 16, columns) uint32 from (columns / 2, n, 32) registers."""
    blocks, n = len(registers) // 4, registers.shape[1]
    parts = registers.reshape(blocks, 2, 2, n, 8, 4)  # column block, row block, element, warp, g, t
    return parts.transpose(3, 1, 4, 0, 5, 2).reshape(n, 16, 8 * blocks)


def registers_of_c(rows: Bits) -> Bits:
    """(columns / 2, n, 32) registers from (n, 16, columns) uint32."""
    n, blocks = len(rows), rows.shape[2] // 8
    parts = rows.reshape(n, 2, 8, blocks, 4, 2)
    return parts.transpose(3, 1, 5, 0, 2, 4).reshape(4 * blocks, n, 32)


def _multiply(emitter: Emitter, instruction: Instruction) -> None:
    """`mma` of bf16 or f16 with a float32 accumulator."""
    head, _, types = instruction.mnemonic.rpartition(".row.col.")
    kind = types.split(".")[1] if types.count(".") == 3 else ""
    shape = head.removeprefix("mma.sync.aligned.")
    if shape not in _DEPTHS or kind not in products.FACTORS or types != f"f32.{kind}.{kind}.f32":
        raise Unsupported
    depth = _DEPTHS[shape]
    as_hopper = hopper.is_measured(emitter.architecture, kind, 8 * depth)
    counts = (4, 2 * depth, depth, 4)
    result, *sources = (items_of(operand, count) for operand, count in zip(instruction.operands, counts, strict=True))
    targets = [emitter.target(item, "f32") for item in result]
    a, b, c = (
        [emitter.source(item, register) for item in items]
        for items, register in zip(sources, ("b32", "b32", "f32"), strict=True)
    )

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        warps = batch.whole_warps(instruction, mask)
        left, right = rows_of_a(gather(batch, a, warps)), _columns_of_b(gather(batch, b, warps))
        addends = rows_of_c(gather(batch, c, warps))
        if as_hopper:
            rows = hopper.multiply_add(left, right, addends)
        else:
            rows = products.multiply_add(kind, left, right, addends)
        scatter(batch, targets, registers_of_c(rows), warps)

    fast = None
    # The compiled form writes a result before it reads the addends of the next.
    if depth == 2 and not any(target in c[k + 1 :] for k, target in enumerate(targets)):
        exactly = opcodes.MMA_F16 if kind == "f16" else opcodes.MMA_BF16
        fast = Fast(opcodes.MMA_F16_HOPPER if as_hopper else exactly, data=(*targets, *a, *b, *c))
    emitter.emit(step, (*a, *b, *c), targets, fast)


# ---- ldmatrix -------------------------------------------------------------------------------------------------------


def _load(emitter: Emitter, instruction: Instruction) -> None:
    """`ldmatrix`: lane 8i + r has the address of row r of matrix i; further lanes are ignored."""
    count, transposed, space = _form(instruction)
    access = emitter.access(instruction, space, "reads", 4, 4)
    targets = [emitter.target(item, "b32") for item in items_of(instruction.operands[0], count)]
    address = place(emitter, instruction.operands[1], access)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        warps = batch.whole_warps(instruction, mask)
        addressing = np.broadcast_to(np.arange(batch.threads) % 32 < 8 * count, batch.shape)
        lanes = batch.active(mask)
        addressing = addressing if lanes is None else addressing & lanes
        found = batch.read(access, address.of(batch), None if addressing.all() else addressing)
        rows = np.stack([words.reshape(-1, 32) for words in found], axis=2)[:, : 8 * count]
        rows = np.ascontiguousarray(rows if warps is None else rows[warps]).reshape(-1, count, 8, 4)
        if transposed:
            rows = np.ascontiguousarray(rows.view(U16).swapaxes(2, 3)).view(U32)
        scatter(batch, targets, np.ascontiguousarray(rows.reshape(-1, count, 32).swapaxes(0, 1)), warps)

    emitter.emit(step, (address.slot,), targets)


def _form(instruction: Instruction) -> tuple[int, bool, str]:
    """How many matrices, whether transposed, and the space; the words between `aligned` and `b16` in any order."""
    parts = instruction.mnemonic.split(".")
    words = {*parts[3:-1]}
    counts, spaces = words & {*_COUNTS}, words & {"shared", "shared::cta"}
    if parts[1:3] != ["sync", "aligned"] or parts[-1] != "b16" or "m8n8" not in words or len(words) != len(parts) - 4:
        raise Unsupported
    if len(counts) != 1 or len(spaces) > 1 or words - counts - spaces - {"m8n8", "trans"}:
        raise Unsupported
    return _COUNTS[counts.pop()], "trans" in words, "shared" if spaces else "generic"


def _store(emitter: Emitter, instruction: Instruction) -> None:
    """`stmatrix`: the reverse; lanes beyond the last matrix store nothing."""
    count, transposed, space = _form(instruction)
    access = emitter.access(instruction, space, "writes", 4, 4)
    address = place(emitter, instruction.operands[0], access)
    sources = [emitter.source(item, "b32") for item in items_of(instruction.operands[1], count)]

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        batch.whole_warps(instruction, mask)
        rows = gather(batch, sources, None).swapaxes(0, 1).reshape(-1, count, 8, 4)
        rows = np.ascontiguousarray(rows)
        if transposed:
            rows = np.ascontiguousarray(rows.view(U16).swapaxes(2, 3)).view(U32)
        words = np.zeros((len(rows), 32, 4), U32)
        words[:, : 8 * count] = rows.reshape(-1, 8 * count, 4)
        stores = np.broadcast_to(np.arange(batch.threads) % 32 < 8 * count, batch.shape)
        lanes = batch.active(mask)
        stores = stores if lanes is None else stores & lanes
        values = [np.ascontiguousarray(words[..., i]).reshape(batch.shape) for i in range(4)]
        batch.write(access, address.of(batch), values, None if stores.all() else stores)

    emitter.emit(step, (address.slot, *sources), ())


def _transpose(emitter: Emitter, instruction: Instruction) -> None:
    """`movmatrix`: the transpose of one fragment, between the registers of a warp."""
    if instruction.mnemonic != "movmatrix.sync.aligned.m8n8.trans.b16":
        raise Unsupported
    target, source = emitter.target(instruction.operands[0], "b32"), emitter.source(instruction.operands[1], "b32")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        warps = batch.whole_warps(instruction, mask)
        rows = np.ascontiguousarray(gather(batch, [source], warps)[0]).view(U16).reshape(-1, 8, 8)
        scatter(batch, [target], np.ascontiguousarray(rows.swapaxes(1, 2)).view(U32).reshape(1, -1, 32), warps)

    emitter.emit(step, (source,), (target,))


DECODERS: dict[str, Decoder] = {"mma": _multiply, "ldmatrix": _load, "stmatrix": _store, "movmatrix": _transpose}


def mnemonics() -> list[str]:
    """Every mnemonic decoded here."""
    names = [
        f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32" for shape in _DEPTHS for kind in products.FACTORS
    ]
    loads = [f"ldmatrix.sync.aligned.m8n8.{count}{trans}" for count in _COUNTS for trans in ("", ".trans")]
    loads += [load.replace("ldmatrix", "stmatrix") for load in loads]
    return [*names, "movmatrix.sync.aligned.m8n8.trans.b16", *(f"{load}.shared.b16" for load in loads)]
