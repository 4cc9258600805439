"""Every instruction that is a function of its operands alone, by mnemonic.

Of an approximate one the value is from a chip's table, or within bounds, and then differs by order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptx_emulator.approximate.bounds import APPROXIMATE, Approximation, Range
from ptx_emulator.approximate.measured import measured
from ptx_emulator.arithmetic.convert import CONVERT
from ptx_emulator.arithmetic.floating import FLOATING
from ptx_emulator.arithmetic.integer import INTEGER
from ptx_emulator.arithmetic.mixed import MIXED
from ptx_emulator.compiled.opcodes import OPCODES
from ptx_emulator.instructions.emitter import Emitter, Unsupported
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import SIZES, Instruction, Operand, Vector
from ptx_emulator.registers import U32, Bits, Operation, same_shape

ARITHMETIC: dict[str, Operation] = {**INTEGER, **FLOATING, **CONVERT, **MIXED}


def arithmetic(emitter: Emitter, instruction: Instruction) -> None:
    """Decode an instruction of `ARITHMETIC`; `max.f32/3` is the form with three sources."""
    sources = instruction.operands[1:]
    if any(isinstance(each, Vector) for each in sources):
        sources = tuple(item for each in sources for item in (each.items if isinstance(each, Vector) else (each,)))
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


# ---- approximate instructions ---------------------------------------------------------------------------------------

_MIXER, _SHIFT = U32(0x9E3779B1), U32(16)


def approximate(emitter: Emitter, instruction: Instruction, sources: Sequence[Operand]) -> None:
    """Decode an instruction of `APPROXIMATE`, or its packed form of two values. Raises Unsupported for any other."""
    packed = instruction.mnemonic.endswith("x2")
    name = instruction.mnemonic.removesuffix("x2")
    if name not in APPROXIMATE or len(sources) != APPROXIMATE[name].count:
        raise Unsupported
    found, kind = APPROXIMATE[name], instruction.mnemonic.rpartition(".")[2]
    target = emitter.target(instruction.operands[0], kind)
    slots = [emitter.source(source, kind) for source in sources]
    what = f"{instruction.mnemonic} at {instruction.location}"
    unsigned = found.form.unsigned(np)

    def step(batch: Batch, mask: np.ndarray | None) -> None:
        given = same_shape(*(batch.registers[slot] for slot in slots))
        flat = [np.ascontiguousarray(each).view(unsigned) if packed else each for each in given]
        shape, launch = flat[0].shape, batch.launch
        flat = [each.reshape(-1) for each in flat]
        chip = measured(launch.target).get(name)
        within = chip.range(found, *flat) if chip else found.range(np, *flat)
        bits, chosen = picked(found, within, launch.schedule.approximation, flat)
        if chosen.any() and (mask is None or _of_lanes(chosen, batch, mask, packed)):
            launch.approximated[what] = None
        result = bits.reshape(shape)
        batch.registers.put(target, result.view(given[0].dtype) if packed else result, mask)

    emitter.emit(step, slots, (target,))


def _of_lanes(chosen: np.ndarray, batch: Batch, mask: np.ndarray, packed: bool) -> bool:
    """Whether any lane of the mask got a value that the order chose."""
    if chosen.size != mask.size * (1 + packed):
        return True
    return bool((chosen.reshape(mask.size, -1).any(axis=1) & mask.reshape(-1)).any())


def picked(found: Approximation, within: Range, choice: int, sources: list[Bits]) -> tuple[Bits, np.ndarray]:
    """The bits that this choice gives (see `Schedule.approximation`), and a mask of the values left open."""
    if choice:
        mixed = np.zeros(sources[0].shape, U32)
        for source in sources:
            mixed = (mixed ^ source.astype(U32)) * _MIXER
        upper = (mixed >> _SHIFT & U32(1)) == choice - 1
        order = np.where(upper, within.high, within.low)
        bits = np.where(within.fixed | (order == within.near), within.bits, found.given(np, order, within.bits))
    else:
        bits = within.bits
    return bits.astype(found.form.unsigned(np)), ~within.fixed & (within.low != within.high)


def mnemonics() -> list[str]:
    """Every mnemonic decoded here."""
    packed = [f"{name}x2" for name in APPROXIMATE if SIZES[name.rpartition(".")[2]] == 2]
    return [*APPROXIMATE, *packed]
