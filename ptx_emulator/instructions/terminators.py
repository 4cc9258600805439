"""The instructions that end a basic block: branches, exits and barriers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ptx_emulator.instructions.emitter import Emitter, Unsupported
from ptx_emulator.machine.basic_blocks import Barrier, Branch, Exit, IndexedBranch, Jump, Terminator, Trap
from ptx_emulator.ptx.syntax import Immediate, Instruction, Name

_BARRIERS = ("bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync")
_ARRIVALS = ("bar.arrive", "bar.cta.arrive", "barrier.arrive", "barrier.cta.arrive")
_REDUCTIONS = ("bar.red", "bar.cta.red", "barrier.red", "barrier.cta.red")
_NUMBERS, _THREADS = range(16), range(32, 1 << 16, 32)  # legal numbers and thread counts of a barrier
_TERMINATORS = ("bra", "brx", "ret", "exit", "trap", *_BARRIERS, *_ARRIVALS, *_REDUCTIONS)


def terminates(mnemonic: str) -> bool:
    """Whether an instruction of this name ends its block."""
    return _is(mnemonic, _TERMINATORS)


def meets(mnemonic: str) -> bool:
    """Whether threads wait for one another at an instruction of this name, which is then a block of its own."""
    return _is(mnemonic, (*_BARRIERS, *_REDUCTIONS))


@cache
def _is(mnemonic: str, names: tuple[str, ...]) -> bool:
    return f"{mnemonic}.".startswith(tuple(f"{name}." for name in names))


def terminator(emitter: Emitter, instruction: Instruction) -> Callable[[int, dict[str, int]], Terminator]:
    """A function that makes an instruction's terminator from the following block and the blocks of labels."""
    name, operands = instruction.mnemonic, instruction.operands
    if _is(name, ("bra", "ret", "exit")):
        label = operands[0].text if name.startswith("bra") else None
        if label is not None and label not in emitter.kernel.labels:
            raise Unsupported
        if not instruction.guard:
            return lambda following, labels: Exit() if label is None else Jump(labels[label])
        predicate, negated = emitter.source(Name(instruction.guard.text), "pred"), instruction.guard.negated
        return lambda following, labels: Branch(predicate, negated, None if label is None else labels[label], following)
    if instruction.guard:
        raise Unsupported
    if _is(name, ("brx",)):
        targets = emitter.kernel.targets[operands[1].text]
        if not targets or not set(targets) <= set(emitter.kernel.labels):
            raise Unsupported
        register = emitter.source(operands[0], "u32")
        return lambda following, labels: IndexedBranch(register, tuple(labels[label] for label in targets))
    if name == "trap":
        return lambda following, labels: Trap()
    return _barrier(emitter, instruction)


def _barrier(emitter: Emitter, instruction: Instruction) -> Callable[[int, dict[str, int]], Terminator]:
    operands = list(instruction.operands)
    reduction = None
    if _is(instruction.mnemonic, _REDUCTIONS):
        name, kind = instruction.mnemonic.replace(".aligned", "").split(".")[-2:]
        if (name, kind) not in (("popc", "u32"), ("and", "pred"), ("or", "pred")):
            raise Unsupported
        reduction = name, emitter.target(operands.pop(0), kind), emitter.source(operands.pop(), "pred")
    for given, allowed in zip(operands, (_NUMBERS, _THREADS), strict=False):
        if isinstance(given, Immediate) and given.bits not in allowed:
            raise Unsupported(f"{given.bits} is none of {allowed[0]}, {allowed[1]}, ... {allowed[-1]}")
    if len(operands) == 1 and _is(instruction.mnemonic, _ARRIVALS):
        raise Unsupported("an arrival without a wait needs the number of threads")
    number = emitter.source(operands[0], "u32")
    count = emitter.source(operands[1], "u32") if len(operands) > 1 else None
    waits = not _is(instruction.mnemonic, _ARRIVALS)
    aligned = instruction.mnemonic.startswith("bar.") or ".aligned" in instruction.mnemonic
    return lambda following, labels: Barrier(number, count, waits, following, aligned, reduction)
