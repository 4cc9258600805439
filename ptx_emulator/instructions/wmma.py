"""`wmma`: matrices (16, 16) of f16 or bf16, and sums of float32.

Which elements a lane holds is left open by the PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions". Kernels
that hand `wmma.mma` what `ldmatrix` loaded count on the fragments of `mma.m16n8k16`, which chips since sm_80 have, and
so do these: B as those of its two halves of eight columns, the sum as those of two results. An f16 fragment of A or B
has twice the registers that it needs, and holds its elements twice, as on hardware.
"""

from __future__ import annotations

import re

import numpy as np

from ptx_emulator.arithmetic import matrix_product as products
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.instructions.load_store import SPACES, items_of, place
from ptx_emulator.instructions.mma import gather, scatter
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.registers import U16, U32, Bits

_SIDE, _PER_LANE = 16, 8  # extent of a matrix, and elements per lane
_SHAPE = "m16n16k16"
_REGISTERS = {"f16": 8, "bf16": 4, "f32": 8}  # registers of a fragment
_SUM_OF_F16 = 4  # registers
_MOVE = re.compile(r"wmma\.(load|store)\.([abcd])\.sync\.aligned\.(row|col)\.m16n16k16(?:\.([\w:]+))?\.(f16|bf16|f32)$")
_MULTIPLY = re.compile(r"wmma\.mma\.sync\.aligned\.(?:row|col)\.(?:row|col)\.m16n16k16\.f32(?:\.(bf16)\.bf16)?\.f32$")


def _places(of_b: bool) -> np.ndarray:
    """Rows and columns of each lane's elements, (2, 32, 8); for B, the places in its transpose."""
    group, within = np.divmod(np.arange(32), 4)
    pair, half = np.divmod(np.arange(_PER_LANE), 2)
    lower, right = (pair // 2, pair % 2) if of_b else (pair % 2, pair // 2)
    return np.stack(np.broadcast_arrays(group[:, None] + 8 * lower, 2 * within[:, None] + half + 8 * right))


_OF_B, _OF_OTHERS = _places(True), _places(False)


def wmma(emitter: Emitter, instruction: Instruction) -> None:
    """`wmma.load`, `wmma.store` and `wmma.mma`."""
    match = _MOVE.match(instruction.mnemonic)
    if match:
        _move(emitter, instruction, *match.groups())
        return
    match = _MULTIPLY.match(instruction.mnemonic)
    if not match:
        raise Unsupported
    kind = match[1] or "f16"
    count = _REGISTERS[kind]
    result, left, right, addend = (
        items_of(operand, n) for operand, n in zip(instruction.operands, (8, count, count, 8), strict=True)
    )
    targets = [emitter.target(item, "f32") for item in result]
    a, b = ([emitter.source(item, "b32") for item in items[:4]] for items in (left, right))
    c = [emitter.source(item, "f32") for item in addend]

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        warps = batch.whole_warps(instruction, mask)
        rows = _matrix(_halves(gather(batch, a, warps)), _OF_OTHERS)
        columns = _matrix(_halves(gather(batch, b, warps)), _OF_B).swapaxes(1, 2)
        total = products.multiply_add(kind, rows, columns, _matrix(gather(batch, c, warps), _OF_OTHERS))
        scatter(batch, targets, np.ascontiguousarray(total[:, *_OF_OTHERS].transpose(2, 0, 1)), warps)

    emitter.emit(step, (*a, *b, *c), targets)


def _halves(registers: Bits) -> Bits:
    """(8, n, 32) uint16 from (4, n, 32) registers."""
    return np.ascontiguousarray(registers.transpose(1, 2, 0)).view(U16).transpose(2, 0, 1)


def _matrix(elements: Bits, places: np.ndarray) -> Bits:
    """(n, 16, 16) from the (8, n, 32) elements of lanes."""
    out = np.empty((elements.shape[1], _SIDE, _SIDE), elements.dtype)
    out[:, *places] = elements.transpose(1, 2, 0)
    return out


def _move(
    emitter: Emitter, instruction: Instruction, verb: str, which: str, layout: str, space: str | None, kind: str
) -> None:
    sums = which in "cd"
    if (verb == "store") != (which == "d") or (kind == "f32" and not sums) or (kind == "bf16" and sums):
        raise Unsupported
    size = 4 if kind == "f32" else 2
    where = SPACES.get(space or "", "generic" if space is None else "")
    if where not in ("generic", "global", "shared"):
        raise Unsupported
    access = emitter.access(instruction, where, "reads" if verb == "load" else "writes", size)
    operands = list(instruction.operands)
    fragment = operands.pop(0) if verb == "load" else operands.pop(1)
    address = place(emitter, operands.pop(0), access)
    stride = emitter.source(operands.pop(0), "u32") if operands else emitter.constant(_SIDE, "u32")
    items = items_of(fragment, _SUM_OF_F16 if sums and size == 2 else _REGISTERS[kind])
    register = "f32" if kind == "f32" else "b32"
    major, minor = _OF_B if which == "b" else _OF_OTHERS
    if (layout == "row") != (which != "b"):  # places of B are given for its transpose
        major, minor = minor, major

    def addresses(batch: Batch) -> list[Bits]:
        base, leading = address.of(batch), batch.full(batch.registers[stride]).astype(np.int64)
        lane = np.arange(batch.threads) % 32
        return [
            batch.full(base) + ((major[lane, i] * leading + minor[lane, i]) * size).astype(base.dtype)
            for i in range(_PER_LANE)
        ]

    if verb == "load":
        targets = [emitter.target(item, register) for item in items]

        def load(batch: Batch, mask: np.ndarray | None) -> None:
            batch.whole_warps(instruction, mask)
            values = [batch.read(access, each, mask)[0] for each in addresses(batch)]
            if size == 2:
                values = [values[i].astype(U32) | values[i + 1].astype(U32) << U32(16) for i in range(0, _PER_LANE, 2)]
            for i, target in enumerate(targets):
                batch.assign(target, values[i % len(values)], mask)

        emitter.emit(load, (address.slot, stride), targets)
        return
    sources = [emitter.source(item, register) for item in items]

    def store(batch: Batch, mask: np.ndarray | None) -> None:
        batch.whole_warps(instruction, mask)
        values = [batch.registers[source] for source in sources]
        if size == 2:
            values = [(value >> U32(shift)).astype(U16) for value in values for shift in (0, 16)]
        for each, value in zip(addresses(batch), values, strict=True):
            batch.write(access, each, [value], mask)

    emitter.emit(store, (address.slot, stride, *sources), ())


DECODERS: dict[str, Decoder] = {"wmma": wmma}


def mnemonics() -> list[str]:
    """Every mnemonic decoded here, from shared memory."""
    moves = [(what, kind) for what in ("load.a", "load.b") for kind in ("f16", "bf16")]
    moves += [(what, kind) for what in ("load.c", "store.d") for kind in ("f16", "f32")]
    names = [f"wmma.{what}.sync.aligned.{layout}.{_SHAPE}.shared.{kind}" for what, kind in moves
             for layout in ("row", "col")]  # fmt: skip
    return names + [f"wmma.mma.sync.aligned.{a}.{b}.{_SHAPE}.f32{kinds}.f32"
                    for a in ("row", "col") for b in ("row", "col") for kinds in ("", ".bf16.bf16")]  # fmt: skip
