"""Warp-wide instructions: `shfl`, `vote`, `redux`, `match`, `elect`, `activemask` and `bar.warp.sync`."""

from __future__ import annotations

import numpy as np

from ptx_emulator.arithmetic import bits, warp
from ptx_emulator.compiled import opcodes
from ptx_emulator.instructions.emitter import Decoder, Emitter, Unsupported
from ptx_emulator.machine.basic_blocks import WHOLE_WARP, Fast
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import Instruction, Pair
from ptx_emulator.registers import U32

WARP_WIDE = ("shfl", "vote", "redux", "match", "elect", "bar.warp", *WHOLE_WARP)
_HIGHEST = bits.find_leading(4, is_signed=False, as_shift=False)  # the place of the highest bit that is set


def is_warp_wide(instruction: Instruction) -> bool:
    """Whether the lanes of the membermask, or of the whole warp, execute the instruction together."""
    return instruction.mnemonic.startswith(WARP_WIDE)


def membermask(emitter: Emitter, instruction: Instruction) -> int:
    """The slot of the membermask; all lanes for an instruction without one."""
    if instruction.mnemonic.startswith(WHOLE_WARP):
        return emitter.constant(int(warp.FULL), "b32")
    return emitter.source(instruction.operands[-1], "b32")


def _targets(emitter: Emitter, instruction: Instruction, kind: str) -> tuple[int, int | None]:
    target = instruction.operands[0]
    if isinstance(target, Pair):
        return emitter.target(target.first, kind), emitter.target(target.second, "pred")
    return emitter.target(target, kind), None


def _shuffle(emitter: Emitter, instruction: Instruction) -> None:
    parts = instruction.mnemonic.split(".")
    if len(parts) != 4 or parts[2] not in ("up", "down", "bfly", "idx") or parts[3] != "b32":
        raise Unsupported
    mode = parts[2]
    target, in_range = _targets(emitter, instruction, "b32")
    value, offset, clamp, named = (emitter.source(operand, "b32") for operand in instruction.operands[1:])

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        registers = batch.registers
        values = batch.full(registers[value])
        plan = warp.sources(mode, registers[offset], registers[clamp], batch.threads)
        participants = batch.participants(instruction, registers[named], mask)
        if participants is not None:
            reached = participants >> plan.source.astype(U32) & U32(1) == 1
            batch.require_source(instruction, batch.full(reached), plan.source, mask)
        batch.assign(target, warp.read(values, plan.source), mask)
        if in_range is not None:
            batch.assign(in_range, plan.in_range, mask)

    fast = Fast(opcodes.SHUFFLES[mode], target, (value, offset, clamp), data=(named, in_range))
    emitter.emit(step, (value, offset, clamp, named), (target,) if in_range is None else (target, in_range), fast)


def _vote(emitter: Emitter, instruction: Instruction) -> None:
    parts = instruction.mnemonic.split(".")
    if len(parts) != 4 or parts[2:] not in (["all", "pred"], ["any", "pred"], ["uni", "pred"], ["ballot", "b32"]):
        raise Unsupported
    target = emitter.target(instruction.operands[0], parts[3])
    predicate = emitter.source(instruction.operands[1], "pred")
    named = emitter.source(instruction.operands[2], "b32")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        participants = batch.participants(instruction, batch.registers[named], mask, always=True)
        batch.assign(target, warp.vote(parts[2], batch.full(batch.registers[predicate]), participants), mask)

    code = opcodes.VOTES.get(parts[2])
    fast = None if code is None else Fast(code, target, (predicate,), data=(named,))
    emitter.emit(step, (predicate, named), (target,), fast)


def _reduction(emitter: Emitter, instruction: Instruction) -> None:
    parts = instruction.mnemonic.split(".")[2:]
    name = ".".join(parts)
    if name in warp.REDUCTIONS:
        ufunc, kind = warp.REDUCTIONS[name]
        run = lambda values, participants: warp.reduce(ufunc, kind, values, participants)  # noqa: E731
    elif parts[0] in ("min", "max") and parts[-1] == "f32" and set(parts[1:-1]) <= {"abs", "NaN"}:
        run = warp.maximum_f32(parts[0] == "max", "abs" in parts, "NaN" in parts)
    else:
        raise Unsupported
    target = emitter.target(instruction.operands[0], "b32")
    value, named = (emitter.source(operand, "b32") for operand in instruction.operands[1:])

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        participants = batch.participants(instruction, batch.registers[named], mask, always=True)
        batch.assign(target, run(batch.full(batch.registers[value]), participants), mask)

    code = opcodes.REDUCTIONS.get(name)
    fast = None if code is None else Fast(code, target, (value,), data=(named,))
    emitter.emit(step, (value, named), (target,), fast)


def _match(emitter: Emitter, instruction: Instruction) -> None:
    parts = instruction.mnemonic.split(".")
    if parts[1] not in ("any", "all") or parts[-1] not in ("b32", "b64"):
        raise Unsupported
    target, agreed = _targets(emitter, instruction, "b32")
    value = emitter.source(instruction.operands[1], parts[-1])
    named = emitter.source(instruction.operands[2], "b32")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        participants = batch.participants(instruction, batch.registers[named], mask, always=True)
        same = warp.match_any(batch.full(batch.registers[value]), participants)
        if parts[1] == "any":
            batch.assign(target, same, mask)
            return
        batch.assign(target, np.where(same == participants, participants, U32(0)), mask)
        if agreed is not None:
            batch.assign(agreed, same == participants, mask)

    emitter.emit(step, (value, named), (target,) if agreed is None else (target, agreed))


def _elect(emitter: Emitter, instruction: Instruction) -> None:
    if instruction.mnemonic != "elect.sync":
        raise Unsupported
    target, chosen = _targets(emitter, instruction, "b32")
    named = emitter.source(instruction.operands[1], "b32")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        participants = batch.participants(instruction, batch.registers[named], mask, always=True, orders=False)
        lowest = participants & (~participants + U32(1))
        leader = _HIGHEST(participants if batch.launch.schedule.elects_highest else lowest)
        batch.assign(target, leader, mask)
        if chosen is not None:
            batch.assign(chosen, leader == np.arange(batch.threads, dtype=U32)[None, :] % U32(32), mask)

    emitter.emit(step, (named,), (target,) if chosen is None else (target, chosen))


def _warp_barrier(emitter: Emitter, instruction: Instruction) -> None:
    if instruction.mnemonic != "bar.warp.sync":
        raise Unsupported
    named = emitter.source(instruction.operands[0], "b32")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        batch.participants(instruction, batch.registers[named], mask)

    emitter.emit(step, (named,), (), Fast(opcodes.WARP_SYNC, data=(named,)))


def _active(emitter: Emitter, instruction: Instruction) -> None:
    target = emitter.target(instruction.operands[0], "b32")

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        batch.assign(target, warp.ballot(batch.under(mask)), mask)

    emitter.emit(step, (), (target,))


DECODERS: dict[str, Decoder] = {
    "shfl": _shuffle,
    "vote": _vote,
    "redux": _reduction,
    "match": _match,
    "elect": _elect,
    "bar": _warp_barrier,
    "activemask": _active,
}
