"""Kernels whose comparisons with constants and parameters are watched as the emulator executes them.

The watched instructions run as NumPy steps, which see the lanes that are active; all others are compiled as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from harness.device import emulator
from harness.emulator import decode, launch
from harness.emulator.arithmetic.compare import COMPARISONS
from harness.emulator.instructions import arithmetic, moves
from harness.emulator.instructions.emitter import Decoder, Emitter
from harness.emulator.launch import Module
from harness.emulator.machine.basic_blocks import DecodedStep
from harness.emulator.ptx.syntax import Immediate, Instruction, Kernel, Name, Operand
from harness.files import KERNELS
from harness.jit.compile import Compiled
from harness.studies.thresholds.outcomes import ABOVE, BELOW, EDGE, EQUAL, NEXT, OUTCOMES, SAME_FOR_ALL, UNORDERED, Site

_SAME = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_RELATIONS = ("lt", "le", "gt", "ge", "eq", "ne")
_UNIFORM = ("%ntid.", "%nctaid.")
_uniform: set[str] = set()  # registers of the kernel that is being decoded


def watch() -> None:
    """Have kernels that are decoded from now on be watched. For a process of its own."""
    decode.DECODERS |= {
        "setp": _watched(moves.compare),
        "min": _watched(arithmetic.arithmetic),
        "max": _watched(arithmetic.arithmetic),
    }
    emulator._module = _module
    undecorated = decode.decode

    def remembering(kernel: Kernel, *others):
        _uniform.clear()
        _uniform.update(_uniform_registers(kernel))
        return undecorated(kernel, *others)

    launch.decode = remembering


@lru_cache(maxsize=64)
def _module(compiled: Compiled) -> Module:
    return Module(compiled.ptx)  # not from the cache, where kernels are decoded as ever


def _watched(decoder: Decoder) -> Decoder:
    def decode_watched(emitter: Emitter, instruction: Instruction) -> None:
        decoder(emitter, instruction)
        found = _comparison(instruction)
        if found is None or not emitter.pending or emitter.pending[-1].fast is None:
            return
        relation, kind = found
        step = emitter.pending[-1]
        site, mirrored = _site(instruction, relation, kind)
        if site is not None:
            OUTCOMES.expect(site)
            run = _noting(step, site, kind, mirrored)
            emitter.pending[-1] = DecodedStep(run, step.reads, step.writes, None)

    return decode_watched


def _comparison(instruction: Instruction) -> tuple[str, str] | None:
    """The relation, or `clamp`, and the type of an instruction whose two operands are ordered."""
    head, *parts = instruction.mnemonic.split(".")
    kind = parts[-1]
    if head != "setp":
        return ("clamp", kind) if f"lt.{kind}" in COMPARISONS and len(parts) == 1 else None
    relation = _SAME.get(parts[0], parts[0]) if len(parts) == 2 else ""
    return (relation, kind) if relation.removesuffix("u") in _RELATIONS else None


def _site(instruction: Instruction, relation: str, kind: str) -> tuple[Site | None, bool]:
    """The site, if an operand is a constant or the same for the whole grid, and whether it is the first one."""
    *_, first, second = instruction.operands
    constant = _constant(second, kind)
    if mirrored := not constant:
        constant = _constant(first, kind)
        relation = relation.translate(str.maketrans("lg", "gl")) if relation != "clamp" else relation
    if not constant:
        return None, False
    line = instruction.location.line
    file, lines = _source(instruction.location.file)
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return Site(f"kernels/{file}", line, text, relation, constant), mirrored


def _constant(operand: Operand, kind: str) -> str:
    if isinstance(operand, Immediate):
        if operand.size:
            value = np.array(operand.bits, f"u{operand.size}").view(f"f{operand.size}")
            return repr(float(value))
        return str(operand.bits)
    if isinstance(operand, Name) and operand.text in _uniform:
        return SAME_FOR_ALL
    return ""


def _uniform_registers(kernel: Kernel) -> set[str]:
    """Registers that are made of parameters and constants alone, and written once."""
    found: set[str] = set()
    written: set[str] = set()
    for instruction in kernel.instructions:
        target, *sources = instruction.operands or (None,)
        if not isinstance(target, Name) or instruction.guard:
            continue
        loads = instruction.mnemonic.startswith("ld.param")
        if target.text not in written and (loads or (sources and all(_is_uniform(each, found) for each in sources))):
            found.add(target.text)
        elif target.text in found:
            found.discard(target.text)
        written.add(target.text)
    return found


def _is_uniform(operand: Operand, uniform: set[str]) -> bool:
    if isinstance(operand, Name):
        return operand.text in uniform or operand.text.startswith(_UNIFORM)
    return isinstance(operand, Immediate)


def _noting(step: DecodedStep, site: Site, kind: str, mirrored: bool) -> Callable:
    first, second = step.fast.sources[1::-1] if mirrored else step.fast.sources[:2]
    ordered = kind if f"lt.{kind}" in COMPARISONS else f"u{kind[1:]}"
    lt, eq, gt = (COMPARISONS[f"{name}.{ordered}"][0] for name in ("lt", "eq", "gt"))
    beside = None if "f" in kind else NEXT.get(site.relation)

    def sides(a: np.ndarray, b: np.ndarray) -> int:
        below, equal, above = lt(a, b), eq(a, b), gt(a, b)
        edge = equal.any() or (beside is not None and (a - b == np.array(beside).astype(a.dtype)).any())
        unordered = not (below | equal | above).all()
        return BELOW * below.any() | EQUAL * equal.any() | ABOVE * above.any() | UNORDERED * unordered | EDGE * edge

    def run(batch, mask) -> None:
        if not OUTCOMES.complete(site):
            lanes = batch.live if mask is None else mask
            a, b = (np.broadcast_to(batch.registers[slot], lanes.shape)[lanes] for slot in (first, second))
            if a.size:
                OUTCOMES.note(site, int(sides(a, b)))
        step.run(batch, mask)

    return run


@cache
def _source(name: str) -> tuple[str, list[str]]:
    """The path below the kernels and the lines of a source, which PTX names without folders."""
    for path in sorted(KERNELS.rglob(Path(name).name)):
        return path.relative_to(KERNELS).as_posix(), path.read_text(encoding="utf-8").splitlines()
    return name, []
