"""What the values of a kernel's registers depend on, as far as registers that are written once show it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

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
