"""Decode a kernel: cut it into basic blocks, decode instructions, branches and barriers, release dead registers."""

from __future__ import annotations

from functools import cache

from harness.emulator.instructions import cp_async, load_store, mma, moves, warp_sync, wgmma
from harness.emulator.instructions.arithmetic import arithmetic
from harness.emulator.instructions.emitter import Decoder, Emitter, Unsupported
from harness.emulator.instructions.steps import unsupported
from harness.emulator.liveness import release_dead
from harness.emulator.machine.basic_blocks import (
    Barrier,
    Block,
    Branch,
    Code,
    DecodedStep,
    Exit,
    IndexedBranch,
    Jump,
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
    release_dead(blocks, emitter.initial)
    resources = Resources(
        kernel=kernel,
        initial=emitter.initial,
        specials=emitter.specials,
        shared_size=emitter.shared_size,
        local_size=emitter.local_size,
        parameter_offsets=emitter.parameter_offsets,
        parameter_size=emitter.parameter_size,
        cell_shared=emitter.cells["shared"],
        cell_global=emitter.cells["global"],
        fragments=emitter.fragments,
    )
    return Code(resources, blocks)


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
