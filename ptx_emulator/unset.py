"""Variables of a module that a kernel reads and nothing sets: zeros, unless a host program would copy into them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ptx_emulator.ptx.parser import Program
from ptx_emulator.ptx.syntax import Address, Instruction, Name, Operand, Pair, TensorAddress, Variable, Vector

_SPELLED = {"const": "__constant__", "global": "__device__"}


class Unset(NamedTuple):
    """A variable. where: `file:line` of the first instruction that names it; declared: `__constant__ table`"""

    where: str
    declared: str


def unset(program: Program, text: str, variables: dict[str, Variable], kernel: str) -> tuple[Unset, ...]:
    """The variables without an initial value that a kernel reads, in the order of their first instructions.

    A `.const` variable can be set by a host alone. A `.global` one that any instruction of the module may write, or
    whose address leaves the instruction that reads it, is left out: it is not known that nothing sets it.
    """
    found: dict[str, Instruction] = {}
    for instruction in program.kernel(kernel).instructions:
        for name in _names(instruction.operands):
            if name in variables and not variables[name].initial:
                found.setdefault(name, instruction)
    return tuple(
        Unset(str(each.location), f"{_SPELLED[variables[name].space]} {name}") for name, each in found.items()
        if variables[name].space == "const" or (variables[name].space == "global" and _only_read(text, name))
    )  # fmt: skip


def _only_read(text: str, name: str) -> bool:
    """Whether every statement that names a variable, its declaration aside, loads from it."""
    named = re.compile(rf"(?<![\w$%.]){re.escape(name)}(?![\w$])")
    statements = [_statement(text, each.start()).split("\n")[-1].strip() for each in named.finditer(text)]
    uses = [each for each in statements if not each.startswith(".")]  # which declare
    return bool(uses) and all(re.match(r"(@!?%\w+\s+)?ld\.[^\[]*\[" + re.escape(name), each) for each in uses)


def _statement(text: str, at: int) -> str:
    """The text around a place, from the end of the statement before to the end of its own.

    One regular expression for this would begin at every character of the module, and take a minute for a large one.
    """
    first = max(text.rfind(end, 0, at) for end in ";{}") + 1
    ends = [place for place in (text.find(end, at) for end in ";{}") if place >= 0]
    return text[first : min(ends, default=len(text))]


def _names(operands: tuple[Operand, ...]) -> Iterator[str]:
    for each in operands:
        match each:
            case Name(text=text):
                yield text
            case Address(base=base) if base is not None:
                yield base.text
            case Vector(items=items):
                yield from _names(items)
            case Pair(first=first, second=second):
                yield from (first.text, second.text)
            case TensorAddress(map=address, coordinates=coordinates):
                yield from _names((address, *coordinates))
