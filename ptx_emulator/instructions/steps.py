"""Steps: functions of (batch, mask) on the registers of a batch.

A mask of None means all live lanes, and results are stored without merging.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.errors import NotEmulated
from ptx_emulator.machine.basic_blocks import Step
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.registers import Compute


def arithmetic(compute: Compute, target: int, sources: tuple[int, ...]) -> Step:
    """A step without side effects. Inactive lanes compute, too; their results are dropped."""
    if len(sources) == 1:
        (first,) = sources

        def unary(batch: Batch, mask: np.ndarray | None) -> None:
            registers = batch.registers
            value = compute(registers[first])
            registers.put(target, value, mask)

        return unary
    if len(sources) == 2:
        first, second = sources

        def binary(batch: Batch, mask: np.ndarray | None) -> None:
            registers = batch.registers
            value = compute(registers[first], registers[second])
            registers.put(target, value, mask)

        return binary

    def general(batch: Batch, mask: np.ndarray | None) -> None:
        registers = batch.registers
        value = compute(*[registers[source] for source in sources])
        registers.put(target, value, mask)

    return general


def guarded(step: Step, predicate: int, negated: bool) -> Step:
    """The step under a guard."""

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


def hazard_checked(step: Step, instruction: Instruction, hazard: int) -> Step:
    """The step after a check of its registers against `wgmma`s in flight."""

    def run(batch: Batch, mask: np.ndarray | None) -> None:
        if batch.wgmma:
            batch.wgmma.use(instruction, hazard, mask)
        step(batch, mask)

    return run


def waited_checked(step: Step, instruction: Instruction, reads: frozenset[int], writes: frozenset[int]) -> Step:
    """The step after a check of its registers against `tcgen05.ld`s in flight."""

    def run(batch: Batch, mask: np.ndarray | None) -> None:
        batch.tensor_memory.use_registers(instruction, reads, writes, mask)
        step(batch, mask)

    return run


def unsupported(instruction: Instruction, why: str = "") -> Step:
    """A step that raises NotEmulated, so that only a launch that reaches it fails."""
    because = f": {why}" if why else ""

    def refuse(batch: Batch, mask: np.ndarray | None) -> None:
        raise NotEmulated(f"not emulated: {instruction.mnemonic} at {instruction.location}{because}")

    return refuse
