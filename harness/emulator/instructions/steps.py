"""The machine's steps: functions of (batch, mask) that read and write slots of the batch's registers.

mask None means every lane that has not exited, and then results are stored without merging.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.errors import NotEmulated
from harness.emulator.machine.basic_blocks import Step
from harness.emulator.machine.batch import Batch
from harness.emulator.ptx.syntax import Instruction
from harness.emulator.registers import Bits, Compute


def arithmetic(compute: Compute, target: int, sources: tuple[int, ...]) -> Step:
    """A step without side effects. Lanes outside the mask compute too; their results are thrown away."""
    if len(sources) == 1:
        (first,) = sources

        def unary(batch: Batch, mask: np.ndarray | None) -> None:
            registers = batch.registers
            value = compute(registers[first])
            registers[target] = value if mask is None else np.where(mask, value, registers[target])

        return unary
    if len(sources) == 2:
        first, second = sources

        def binary(batch: Batch, mask: np.ndarray | None) -> None:
            registers = batch.registers
            value = compute(registers[first], registers[second])
            registers[target] = value if mask is None else np.where(mask, value, registers[target])

        return binary

    def general(batch: Batch, mask: np.ndarray | None) -> None:
        registers = batch.registers
        value = compute(*[registers[source] for source in sources])
        registers[target] = value if mask is None else np.where(mask, value, registers[target])

    return general


def guarded(step: Step, predicate: int, negated: bool) -> Step:
    """The step for lanes whose predicate holds."""

    def run(batch: Batch, mask: np.ndarray | None) -> None:
        holds = batch.registers[predicate]
        if holds.size == 1:
            if bool(holds.item()) != negated:
                step(batch, mask)
            return
        lanes = (batch.live if mask is None else mask) & (~holds if negated else holds)
        if lanes.any():
            step(batch, lanes)

    return run


def watched(step: Step, instruction: Instruction, reads: frozenset[int], writes: frozenset[int]) -> Step:
    """The step, after the check that no `wgmma` holds registers that it uses. reads, writes: those that one ever may"""

    def run(batch: Batch, mask: np.ndarray | None) -> None:
        if batch.wgmma:
            batch.wgmma.use(instruction, reads, writes, mask)
        step(batch, mask)

    return run


def unsupported(instruction: Instruction) -> Step:
    """A step that says what is missing."""

    def refuse(batch: Batch, mask: np.ndarray | None) -> None:
        raise NotEmulated(f"not emulated: {instruction.mnemonic} at {instruction.location}")

    return refuse


def releasing(dead: tuple[int, ...], zeros: list[Bits]) -> Step:
    """Drop registers that nothing reads any more, so that their memory is used again while it is warm."""

    def release(batch: Batch, mask: np.ndarray | None) -> None:
        if mask is None:
            registers = batch.registers
            for slot in dead:
                registers[slot] = zeros[slot]

    return release
