"""Every instruction that is a function of its operands alone, by mnemonic."""

from __future__ import annotations

from ptx_emulator.arithmetic.compare import SETS
from ptx_emulator.arithmetic.convert import CONVERT
from ptx_emulator.arithmetic.floating import FLOATING
from ptx_emulator.arithmetic.integer import INTEGER
from ptx_emulator.arithmetic.mixed import MIXED
from ptx_emulator.compiled.opcodes import OPCODES
from ptx_emulator.instructions.approximate import approximate
from ptx_emulator.instructions.emitter import Emitter
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.registers import Operation

ARITHMETIC: dict[str, Operation] = {**INTEGER, **FLOATING, **CONVERT, **SETS, **MIXED}


def arithmetic(emitter: Emitter, instruction: Instruction) -> None:
    """Decode an instruction of `ARITHMETIC`; `max.f32/3` is the form with three sources."""
    sources = tuple(item for each in instruction.operands[1:] for item in getattr(each, "items", (each,)))
    name = instruction.mnemonic
    operation = ARITHMETIC.get(name)
    if operation and len(operation.sources) != len(sources):
        name = f"{name}/{len(sources)}"
        operation = ARITHMETIC.get(name)
    if not operation:
        approximate(emitter, instruction, sources)
        return
    target = emitter.target(instruction.operands[0], operation.result)
    slots = [emitter.source(source, kind) for source, kind in zip(sources, operation.sources, strict=True)]
    emitter.compute(operation.compute, operation.result, slots, target, OPCODES.get(name))
