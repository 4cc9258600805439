"""Decode a kernel: cut it into basic blocks, decode instructions, branches and barriers, release dead registers."""

from __future__ import annotations

from functools import cache

import numpy as np

from harness.emulator import allocation
from harness.emulator.compiled import layout
from harness.emulator.instructions import cp_async, load_store, mma, moves, warp_sync, wgmma
from harness.emulator.instructions.arithmetic import arithmetic
from harness.emulator.instructions.emitter import Decoder, Emitter, Unsupported
from harness.emulator.instructions.steps import unsupported
from harness.emulator.machine.basic_blocks import (
    Barrier,
    Block,
    Branch,
    Code,
    DecodedStep,
    Exit,
    Fast,
    IndexedBranch,
    Jump,
    Segment,
    Step,
    Terminator,
    Trap,
)
from harness.emulator.machine.launch_state import Resources
from harness.emulator.ptx.syntax import Immediate, Instruction, Kernel, Name, Variable

DECODERS: dict[str, Decoder] = {
    head: decoder
    for family in (moves, load_store, cp_async, warp_sync, mma, wgmma)
    for head, decoder in family.DECODERS.items()
}
_BARRIERS = ("bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync")
_ARRIVALS = ("bar.arrive", "bar.cta.arrive", "barrier.arrive", "barrier.cta.arrive")
_REDUCTIONS = ("bar.red", "bar.cta.red", "barrier.red", "barrier.cta.red")
_TERMINATORS = ("bra", "brx", "ret", "exit", "trap", *_BARRIERS, *_ARRIVALS, *_REDUCTIONS)


@cache
def _is(mnemonic: str, names: tuple[str, ...]) -> bool:
    return f"{mnemonic}.".startswith(tuple(f"{name}." for name in names))


def decode(kernel: Kernel, variables: dict[str, Variable], addresses: dict[str, int]) -> Code:
    """Decode a kernel. addresses: of the module's variables in global memory."""
    emitter = Emitter(kernel, variables, dict(addresses))
    emitter.fragments = wgmma.fragments(emitter, kernel)
    starts = _leaders(kernel)
    number = {start: i for i, start in enumerate(starts)}
    labels = {label: number.get(at, len(starts)) for label, at in kernel.labels.items()}
    blocks = []
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(kernel.instructions)
        blocks.append(_block(emitter, kernel, kernel.instructions[start:end], i + 1, labels))
    blocks.append(Block([]))  # falling off the end
    rows, row_counts, entry = allocation.rows(blocks, emitter.kinds)
    program, slow = _compile(blocks, emitter, rows)
    resources = Resources(
        kernel=kernel,
        kinds=emitter.kinds,
        rows=rows,
        row_counts=row_counts,
        constants=emitter.constants,
        specials=emitter.specials,
        undefined=tuple(sorted(entry - set(emitter.specials.values()))),
        accesses=emitter.accesses,
        shared_size=emitter.shared_size,
        local_size=emitter.local_size,
        parameter_offsets=emitter.parameter_offsets,
        parameter_size=emitter.parameter_size,
        cell_shared=emitter.cells["shared"],
        cell_global=emitter.cells["global"],
        fragments=emitter.fragments,
    )
    constants = np.array([int(value.item()) for value in emitter.constants], np.uint64)
    return Code(resources, blocks, program, slow, constants)


def _compile(blocks: list[Block], emitter: Emitter, rows: list[int]) -> tuple[np.ndarray, list[Step]]:
    """Set the steps of every block, and return the program of all segments with the NumPy step of each instruction."""
    program: list[list[int]] = []
    slow: list[Step] = []
    for block in blocks:
        for step in block.decoded:
            if step.fast is None:
                block.steps.append(step.run)
                continue
            if block.steps and isinstance(block.steps[-1], Segment):
                block.steps[-1] = Segment(block.steps[-1].start, len(program) + 1)
            else:
                block.steps.append(Segment(len(program), len(program) + 1))
            program.append(_row(step.fast, emitter, rows))
            slow.append(step.run)
    return np.array(program, np.int32).reshape(len(program), layout.COLUMNS), slow


def _row(fast: Fast, emitter: Emitter, rows: list[int]) -> list[int]:
    """An instruction of the compiled program; see `compiled.layout`."""

    def place(slot: int | None) -> int:
        return -1 if slot is None else slot if slot < 0 else rows[slot]

    row = [0] * layout.COLUMNS
    row[layout.OPCODE], row[layout.IMMEDIATE], row[layout.ACCESS] = fast.opcode, fast.immediate, fast.access
    row[layout.SIZE], row[layout.COUNT] = fast.size, fast.count
    row[layout.GUARD], row[layout.NEGATED] = (-1, 0) if fast.guard is None else (rows[fast.guard[0]], fast.guard[1])
    if fast.target is not None:
        row[layout.TARGET] = rows[fast.target]
        row[layout.WIDE] |= layout.TARGET_WIDE * (emitter.kind(fast.target).itemsize == 8)
    # Operands that an opcode lacks are as wide as the first, so that 64-bit opcodes see 64-bit operands alone.
    for i, bit in enumerate((layout.X_WIDE, layout.Y_WIDE, layout.Z_WIDE)):
        slot = fast.sources[min(i, len(fast.sources) - 1)] if fast.sources else None
        if slot is not None:
            row[layout.X + i] = place(slot)
            row[layout.WIDE] |= bit * (emitter.kind(slot).itemsize == 8)
    for i, slot in enumerate(fast.data):
        row[layout.DATA + i] = place(slot)
    return row


def _leaders(kernel: Kernel) -> list[int]:
    """Indices of the first instructions of basic blocks."""
    starts = {0, *kernel.labels.values()}
    for i, instruction in enumerate(kernel.instructions):
        if _is(instruction.mnemonic, _TERMINATORS):
            starts.add(i + 1)
        # Lanes may wait at its entry or at its end, so it has a block of its own.
        if warp_sync.is_warp_wide(instruction) or _is(instruction.mnemonic, (*_BARRIERS, *_REDUCTIONS)):
            starts.add(i)
    return sorted(start for start in starts if start < len(kernel.instructions))


def _block(
    emitter: Emitter, kernel: Kernel, instructions: list[Instruction], following: int, labels: dict[str, int]
) -> Block:
    block = Block(instructions, terminator=Jump(following))
    for i, instruction in enumerate(instructions):
        try:
            if warp_sync.is_warp_wide(instruction) and not i:
                block.membermask = warp_sync.membermask(emitter, instruction)
            if _is(instruction.mnemonic, _TERMINATORS):
                block.terminator = _terminator(emitter, kernel, instruction, following, labels)
                block.decoded += emitter.finish()
            else:
                block.decoded += _steps(emitter, instruction)
        except (Unsupported, ValueError, IndexError, AttributeError):
            # A decoder may fail on the operands of a form that it lacks.
            emitter.discard()
            block.decoded.append(DecodedStep(unsupported(instruction), frozenset(), frozenset()))
    return block


def _steps(emitter: Emitter, instruction: Instruction) -> list[DecodedStep]:
    guard = None
    if instruction.guard:
        guard = emitter.source(Name(instruction.guard.text), "pred"), instruction.guard.negated
    name = instruction.mnemonic
    DECODERS.get(name.split(".")[0], arithmetic)(emitter, instruction)
    return emitter.finish(guard, instruction)


def _terminator(
    emitter: Emitter, kernel: Kernel, instruction: Instruction, following: int, labels: dict[str, int]
) -> Terminator:
    name, operands = instruction.mnemonic, instruction.operands
    if _is(instruction.mnemonic, ("bra", "ret", "exit")):
        target = labels[operands[0].text] if name.startswith("bra") else None
        if not instruction.guard:
            return Exit() if target is None else Jump(target)
        predicate = emitter.source(Name(instruction.guard.text), "pred")
        return Branch(predicate, instruction.guard.negated, target, following)
    if instruction.guard:
        raise Unsupported
    if _is(instruction.mnemonic, ("brx",)):
        targets = kernel.targets[operands[1].text]
        return IndexedBranch(emitter.source(operands[0], "u32"), tuple(labels[label] for label in targets))
    return Trap() if name == "trap" else _barrier(emitter, instruction, following)


def _barrier(emitter: Emitter, instruction: Instruction, following: int) -> Barrier:
    operands = list(instruction.operands)
    reduction = None
    if _is(instruction.mnemonic, _REDUCTIONS):
        name, kind = instruction.mnemonic.split(".")[-2:]
        reduction = name, emitter.target(operands.pop(0), kind), emitter.source(operands.pop(), "pred")
    if len(operands) == 1 and not isinstance(operands[0], Immediate):
        raise Unsupported
    number = emitter.source(operands[0], "u32")
    count = emitter.source(operands[1], "u32") if len(operands) > 1 else None
    return Barrier(number, count, not _is(instruction.mnemonic, _ARRIVALS), following, reduction)
