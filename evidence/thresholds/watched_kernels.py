"""Kernels whose comparisons with constants and parameters are watched as the emulator executes them.

The watched instructions run as NumPy steps, which see the active lanes; all others stay compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from evidence.thresholds.outcomes import ABOVE, BELOW, EDGE, EQUAL, NEXT, OUTCOMES, SAME_FOR_ALL, UNORDERED, Site
from harness.device import emulator
from harness.device.launches import Code
from harness.files import KERNELS
from ptx_emulator import decode
from ptx_emulator.arithmetic.compare import COMPARISONS
from ptx_emulator.instructions import arithmetic, moves
from ptx_emulator.instructions.emitter import Decoder, Emitter
from ptx_emulator.launches import Module
from ptx_emulator.machine.basic_blocks import DecodedStep
from ptx_emulator.ptx.syntax import Immediate, Instruction, Kernel, Name, Operand, Pair, Vector

_SAME_FOR_ALL = ("%ntid.", "%nctaid.")
_THREAD = ("%tid.", "%laneid", "%warpid", "%ntid.")


@dataclass
class KnownRegisters:
    """Names of registers.

    constants: registers that hold a constant, with the constant
    same_for_all: computed from parameters and constants alone, so that all threads of a launch have the same value
    by_thread: computed from the thread's index in its block and constants alone, so the same in every launch
    """

    constants: dict[str, Immediate] = field(default_factory=dict)
    same_for_all: set[str] = field(default_factory=set)
    by_thread: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, kernel: Kernel) -> KnownRegisters:
        known = cls()
        writes = Counter(name for each in kernel.instructions for name in _written(each))
        for each in kernel.instructions:
            sources, targets = each.operands[1:], [name for name in _written(each) if writes[name] == 1]
            if each.guard or not sources:
                continue
            if each.mnemonic.startswith("mov.") and isinstance(sources[0], Immediate):
                known.constants.update(dict.fromkeys(targets, sources[0]))
            if each.mnemonic.startswith("ld.param") or all(map(known.is_same_for_all, sources)):
                known.same_for_all.update(targets)
            if all(map(known.is_by_thread, sources)):
                known.by_thread.update(targets)
        return known

    def constant(self, operand: Operand) -> Immediate | None:
        """The constant value of an operand, or None."""
        return operand if isinstance(operand, Immediate) else self.constants.get(getattr(operand, "text", ""))

    def is_same_for_all(self, operand: Operand) -> bool:
        return _is(operand, self.same_for_all, _SAME_FOR_ALL)

    def is_by_thread(self, operand: Operand) -> bool:
        return _is(operand, self.by_thread, _THREAD)


def _written(instruction: Instruction) -> list[str]:
    match instruction.operands[:1]:
        case (Vector(items=items),):
            return [each.text for each in items if isinstance(each, Name)]
        case (Pair(first=first, second=second),):
            return [first.text, second.text]
        case (Name(text=text),):
            return [text]
    return []


def _is(operand: Operand, registers: set[str], specials: tuple[str, ...]) -> bool:
    if isinstance(operand, Name):
        return operand.text in registers or operand.text.startswith(specials)
    return isinstance(operand, Immediate)


_SAME = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_RELATIONS = ("lt", "le", "gt", "ge", "eq", "ne")
_registers: list[KnownRegisters] = []  # one entry for every kernel that was decoded


def watch() -> None:
    """Watch all kernels that are decoded from now on. Call it in a separate process."""
    decode.DECODERS |= {
        "setp": _watched(moves.compare),
        "min": _watched(arithmetic.arithmetic),
        "max": _watched(arithmetic.arithmetic),
    }
    emulator.module_of = _module


@lru_cache(maxsize=256)
def _module(code: Code) -> Module:
    return Module(code.ptx)  # bypasses the cache, whose decoded kernels are not watched


def _watched(decoder: Decoder) -> Decoder:
    def decode_watched(emitter: Emitter, instruction: Instruction) -> None:
        decoder(emitter, instruction)
        found = _comparison(instruction)
        if found is None or not emitter.pending or emitter.pending[-1].fast is None:
            return
        relation, kind = found
        step = emitter.pending[-1]
        site, mirrored = _site(_known(emitter), instruction, relation, kind)
        if site is not None:
            OUTCOMES.expect(site)
            run = _noting(step, site, kind, mirrored)
            emitter.pending[-1] = DecodedStep(run, step.reads, step.writes, None)

    return decode_watched


def _comparison(instruction: Instruction) -> tuple[str, str] | None:
    """The relation, or `clamp`, and the type of an instruction that compares two operands."""
    head, *parts = instruction.mnemonic.split(".")
    kind = parts[-1]
    if head != "setp":
        return ("clamp", kind) if f"lt.{kind}" in COMPARISONS and len(parts) == 1 else None
    relation = _SAME.get(parts[0], parts[0]) if len(parts) == 2 else ""
    return (relation, kind) if relation.removesuffix("u") in _RELATIONS else None


def _known(emitter: Emitter) -> KnownRegisters:
    """The known registers of an emitter's kernel.

    An emitter that decodes an instruction again lacks the kernel's others, so it keeps its number from the first time.
    """
    if not hasattr(emitter, "known"):
        emitter.known = len(_registers)
        _registers.append(KnownRegisters.of(emitter.kernel))
    return _registers[emitter.known]


def _site(known: KnownRegisters, instruction: Instruction, relation: str, kind: str) -> tuple[Site | None, bool]:
    """The site, if an operand is a constant or the same for the whole grid, and whether it is the first one.

    None if the thread's index and constants decide the outcome, because no case can change it.
    """
    *_, first, second = instruction.operands
    if known.is_by_thread(first) and known.is_by_thread(second):
        return None, False
    constant = _constant(known, second, kind)
    if mirrored := not constant:
        constant = _constant(known, first, kind)
        relation = relation.translate(str.maketrans("lg", "gl")) if relation != "clamp" else relation
    if not constant:
        return None, False
    line = instruction.location.line
    file, lines = _source(instruction.location.file)
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return Site(f"kernels/{file}", line, text, relation, constant), mirrored


def _constant(known: KnownRegisters, operand: Operand, kind: str) -> str:
    found = known.constant(operand)
    if found is None:
        return SAME_FOR_ALL if known.is_same_for_all(operand) else ""
    if found.size and "f" in kind:
        return repr(float(np.array(found.bits, f"u{found.size}").view(f"f{found.size}")))
    return str(found.bits)


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
    """A source's path below the kernels, and its lines; PTX names sources without folders."""
    for path in sorted(KERNELS.rglob(Path(name).name)):
        return path.relative_to(KERNELS).as_posix(), path.read_text(encoding="utf-8").splitlines()
    return name, []
