"""Kernels whose comparisons with constants and parameters are watched as the emulator executes them.

Before each watched instruction a step looks at its operands in the active lanes. The kernels are the ones that tests
decoded and stored, and a site of which every outcome was seen is no longer watched, so watching costs little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evidence.thresholds.outcomes import ABOVE, BELOW, EDGE, EQUAL, NEXT, OUTCOMES, SAME_FOR_ALL, UNORDERED, Site
from harness.device import emulator
from harness.device.launches import Code
from harness.files import KERNELS
from harness.jit.cache import cache_folder
from ptx_emulator.arithmetic.compare import COMPARISONS
from ptx_emulator.compiled.layout import GUARD, NEGATED, OPCODE, X, Y
from ptx_emulator.compiled.opcodes import OPCODES
from ptx_emulator.decode import Decoded
from ptx_emulator.launches import Module
from ptx_emulator.machine.basic_blocks import Origin, Segment, Step
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import SIZES, Immediate, Instruction, Name, Operand, Pair, Vector

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
    def of(cls, instructions: Sequence[Instruction]) -> KnownRegisters:
        known = cls()
        writes = Counter(name for each in instructions for name in _written(each))
        for each in instructions:
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


def watch() -> None:
    """Watch all kernels that are loaded from now on. Call it in a separate process."""
    emulator.module_of = _module


@lru_cache(maxsize=256)
def _module(code: Code) -> Module:
    return _WatchedModule(code.ptx, cache_folder() / "emulator", code.file)


class _WatchedModule(Module):
    """A module whose kernels look at the operands of their comparisons until every outcome was seen."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._kernels: dict[str, _WatchedKernel] = {}

    def code(self, kernel: str) -> Decoded:
        if kernel not in self._kernels:
            self._kernels[kernel] = _WatchedKernel(super().code(kernel))
        return self._kernels[kernel].now()


class _Watched(NamedTuple):
    """A comparison in a kernel. number: of its row in the program"""

    number: int
    site: Site
    look: Step


class _WatchedKernel:
    """A decoded kernel, with a step before each comparison of which an outcome is still missing."""

    def __init__(self, code: Decoded):
        self._code, self._whole, self._original = code, [block.steps for block in code.blocks], code.step
        self._watched = _comparisons(code)
        _ = code.costs  # as without steps that look, which must not change whose turn it is
        self._looks: dict[Origin, Step] = {}
        code.step = lambda origin: self._looks[origin] if origin.step < 0 else self._original(origin)
        self._cut()

    def now(self) -> Decoded:
        """The kernel for the next launch."""
        left = [each for each in self._watched if not OUTCOMES.complete(each.site)]
        if len(left) < len(self._watched):
            self._watched = left
            self._cut()
        return self._code

    def _cut(self) -> None:
        """Cut the segments before each watched comparison, and look at its operands there."""
        self._looks = {Origin(each.number, -1): each.look for each in self._watched}
        numbers = np.array([each.number for each in self._watched], int)
        for block, steps in zip(self._code.blocks, self._whole, strict=True):
            block.steps = []
            for step in steps:
                if not isinstance(step, Segment):
                    block.steps.append(step)
                    continue
                start = step.start
                for number in numbers[(numbers >= step.start) & (numbers < step.stop)].tolist():
                    block.steps += [Segment(start, number)] * (start < number) + [Origin(number, -1)]
                    start = number
                block.steps.append(Segment(start, step.stop))


def _comparisons(code: Decoded) -> list[_Watched]:
    """The comparisons of a kernel that a case can change and of which an outcome is missing, in the program's order."""
    rows = np.flatnonzero(np.isin(code.program[:, OPCODE], list(_opcodes())))
    instructions = [code.instruction(number) for number in range(code.blocks[-1].first)]
    known, found = KnownRegisters.of(instructions), []
    for row in rows.tolist():
        instruction = instructions[code.origins[row, 0]]
        comparison = _comparison(instruction)
        if comparison is None:
            continue
        relation, kind = comparison
        site, mirrored = _site(known, instruction, relation, kind)
        if site is not None:
            OUTCOMES.expect(site)
            if not OUTCOMES.complete(site):
                found.append(_Watched(row, site, _look(code, row, site, kind, mirrored)))
    return found


@cache
def _opcodes() -> frozenset[int]:
    """The opcodes of all comparisons."""
    heads = ("setp.", "min.", "max.")
    return frozenset(opcode for name, opcode in OPCODES.items() if name.startswith(heads))


def _comparison(instruction: Instruction) -> tuple[str, str] | None:
    """The relation, or `clamp`, and the type of an instruction that compares two operands."""
    head, *parts = instruction.mnemonic.split(".")
    kind = parts[-1]
    if head != "setp":
        return ("clamp", kind) if f"lt.{kind}" in COMPARISONS and len(parts) == 1 else None
    relation = _SAME.get(parts[0], parts[0]) if len(parts) == 2 else ""
    return (relation, kind) if relation.removesuffix("u") in _RELATIONS else None


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
    file, text = _source(instruction.location.file, line)
    return Site(f"kernels/{file}", line, text, relation, constant), mirrored


def _constant(known: KnownRegisters, operand: Operand, kind: str) -> str:
    found = known.constant(operand)
    if found is None:
        return SAME_FOR_ALL if known.is_same_for_all(operand) else ""
    if found.size and "f" in kind:
        return repr(float(np.array(found.bits, f"u{found.size}").view(f"f{found.size}")))
    return str(found.bits)


def _look(code: Decoded, number: int, site: Site, kind: str, mirrored: bool) -> Step:
    """A step that notes how the operands of a comparison compare in the lanes that execute it."""
    row, constants = code.program[number].tolist(), code.resources.constants
    first, second = (row[Y], row[X]) if mirrored else (row[X], row[Y])
    guard, negated, dtype = row[GUARD], row[NEGATED], np.dtype(f"u{SIZES[kind]}")
    ordered = kind if f"lt.{kind}" in COMPARISONS else f"u{kind[1:]}"
    lt, eq, gt = (COMPARISONS[f"{name}.{ordered}"][0] for name in ("lt", "eq", "gt"))
    beside = None if "f" in kind else NEXT.get(site.relation)

    def operand(batch: Batch, at: int, lanes: np.ndarray) -> np.ndarray:
        registers = batch.registers
        values = constants[~at] if at < 0 else (registers.wide if dtype.itemsize == 8 else registers.narrow)[:, at]
        return np.broadcast_to(values, lanes.shape)[lanes].astype(dtype, copy=False)

    def sides(a: np.ndarray, b: np.ndarray) -> int:
        below, equal, above = lt(a, b), eq(a, b), gt(a, b)
        edge = equal.any() or (beside is not None and (a - b == np.array(beside).astype(a.dtype)).any())
        unordered = not (below | equal | above).all()
        return BELOW * below.any() | EQUAL * equal.any() | ABOVE * above.any() | UNORDERED * unordered | EDGE * edge

    def look(batch: Batch, mask: np.ndarray | None) -> None:
        if OUTCOMES.complete(site):
            return
        lanes = batch.under(mask)
        if guard >= 0:
            lanes = lanes & ((batch.registers.narrow[:, guard] != 0) != negated)
        a, b = operand(batch, first, lanes), operand(batch, second, lanes)
        if a.size:
            OUTCOMES.note(site, int(sides(a, b)))

    return look


@cache
def _source(name: str, line: int) -> tuple[str, str]:
    """A source's path below the kernels, and a line of it; PTX names sources without folders.

    Of several sources with the name, the first whose line is no comment and not empty.
    """
    found = []
    for path in sorted(KERNELS.rglob(Path(name).name)):
        lines = path.read_text(encoding="utf-8").splitlines()
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        found.append((path.relative_to(KERNELS).as_posix(), text))
    return next((each for each in found if each[1] and not each[1].startswith("//")), found[0] if found else (name, ""))
