"""Follow one thread of a launch: every instruction it executes, with what it read and wrote.

The launch runs by NumPy steps, one instruction at a time, whose registers are looked at before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ptx_emulator.machine.basic_blocks import Block, Code, Jump, Origin, Step
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.fast_path import NumpyPath
from ptx_emulator.machine.scheduler import Scheduler, Tally
from ptx_emulator.memory import Buffer
from ptx_emulator.ptx.syntax import Address, Instruction, Name, Operand, Pair, Vector
from ptx_emulator.schedule import RunAhead

Values = dict[str, int | bool]


class Seen(NamedTuple):
    """An instruction that the thread executed: registers by name, as bits, before and after."""

    instruction: Instruction
    reads: Values
    writes: Values


class Watch:
    """block, thread: numbers, x fastest; seen: what it executed so far

    kinds: PTX type of each register by name; buffers: what pointers may point to
    """

    def __init__(self, block: int, thread: int):
        self.block, self.thread = block, thread
        self.seen: list[Seen] = []
        self.kinds: dict[str, str] = {}
        self.buffers: list[Buffer] = []
        self._slots: dict[str, int] = {}

    def know(self, slots: dict[str, int], kinds: dict[str, str], buffers: Iterable[Buffer]) -> None:
        """Set the slots and types of the kernel's registers, and its memory."""
        self._slots, self.kinds, self.buffers = slots, kinds, list(buffers)

    def lane(self, batch: Batch, mask: np.ndarray | None) -> int | None:
        """The followed thread's lane in a batch, or None if it is not in the mask."""
        if not batch.first <= self.block < batch.first + batch.blocks:
            return None
        lane = (self.block - batch.first) * batch.threads + self.thread
        return lane if batch.under(mask).reshape(-1)[lane] else None

    def values(self, batch: Batch, lane: int, operands: tuple[Operand, ...]) -> Values:
        """The registers among some operands, by name."""
        found: Values = {}
        for name in _names(operands):
            if name in self._slots:
                held = batch.registers[self._slots[name]]
                value = np.broadcast_to(held, batch.shape).reshape(-1)[lane]
                found[name] = bool(value) if held.dtype == np.bool_ else int(value)
        return found

    def skipped(self, batch: Batch, lane: int, instruction: Instruction) -> bool:
        """Whether the guard of an instruction keeps the thread from executing it."""
        guard = instruction.guard
        held = self.values(batch, lane, (guard,)) if guard else {}
        return bool(held) and next(iter(held.values())) == guard.negated


class WatchedCode(Code):
    """A kernel whose steps record in a watch what its thread does."""

    def __init__(self, code: Code, watch: Watch):
        super().__init__(code.resources, code.blocks, code.program, code.constants, code.hazards)
        self.code, self.watch = code, watch

    def instruction(self, number: int) -> Instruction:
        return self.code.instruction(number)

    def slow(self, number: int) -> Step:
        return self.step(Origin(*self.code.origins[number].tolist()))

    def step(self, origin: Origin) -> Step:
        step, instruction = self.code.step(origin), self.code.instruction(origin.instruction)

        def run(batch: Batch, mask: np.ndarray | None) -> None:
            lane = self.watch.lane(batch, mask)
            if lane is None:
                step(batch, mask)
                return
            if self.watch.skipped(batch, lane, instruction):
                step(batch, mask)
                return
            seen = self.watch.seen
            first = origin.step == 0 or not seen or seen[-1].instruction is not instruction
            if first:
                seen.append(Seen(instruction, self.watch.values(batch, lane, _read(instruction)), {}))
            step(batch, mask)
            seen[-1].writes.update(self.watch.values(batch, lane, _written(instruction)))

        return run


class WatchedScheduler(Scheduler):
    """A scheduler that also records branches, barriers and exits in a watch."""

    def __init__(self, batch: Batch, tally: Tally, code: Code, ahead: RunAhead, watch: Watch):
        fast = NumpyPath(batch, WatchedCode(code, watch))
        self.watch, self.last = watch, None
        emitter = fast.code.code.emitter
        watch.know(emitter.registers, emitter.kernel.registers, batch.launch.memory.values())
        super().__init__(batch, tally, fast, ahead)

    def _count(self, number: int, mask: np.ndarray | None) -> None:
        super()._count(number, mask)
        lane = self.watch.lane(self.batch, mask)
        if lane is not None:
            self.finish_block(lane)
            self.last = number

    def run(self) -> bool:
        ended = True
        try:
            ended = super().run()
        finally:
            if ended:
                self.finish_block()
        return ended

    def finish_block(self, lane: int | None = None) -> None:
        """Record the instruction that ended the previous basic block."""
        block = self.blocks[self.last] if self.last is not None else None
        if block is not None and block.count and not self._falls_through(block):
            instruction = self.code.instruction(block.first + block.count - 1)
            guard = (instruction.guard,) if instruction.guard else ()
            reads = {} if lane is None else self.watch.values(self.batch, lane, guard)
            self.watch.seen.append(Seen(instruction, reads, {}))
        self.last = None

    def _falls_through(self, block: Block) -> bool:
        last = self.code.instruction(block.first + block.count - 1)
        return isinstance(block.terminator, Jump) and not last.mnemonic.startswith("bra")


def _written(instruction: Instruction) -> tuple[Operand, ...]:
    return () if instruction.mnemonic.startswith(("st", "red", "cp.", "wgmma")) else instruction.operands[:1]


def _read(instruction: Instruction) -> tuple[Operand, ...]:
    operands = instruction.operands if not _written(instruction) else instruction.operands[1:]
    return (*operands, *((instruction.guard,) if instruction.guard else ()))


def _names(operands: tuple[Operand, ...]) -> Iterator[str]:
    for operand in operands:
        match operand:
            case Name():
                yield operand.text
            case Address() if operand.base:
                yield operand.base.text
            case Vector():
                yield from _names(operand.items)
            case Pair():
                yield from (operand.first.text, operand.second.text)
