"""Parse the body of a kernel or of a function: scopes, registers, labels, instructions and their operands.

A `.loc` line gives the location of every instruction after it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ptx_emulator.errors import NotEmulated
from ptx_emulator.ptx import limits
from ptx_emulator.ptx.syntax import (
    SIZES,
    Address,
    Immediate,
    Instruction,
    Kernel,
    Location,
    Name,
    Operand,
    Pair,
    TensorAddress,
    Variable,
    Vector,
    check_total,
    immediate,
    malformed,
    variable,
)

_TOKEN = re.compile(
    r"""\s*(?: \.loc\s+(?P<loc>[^\n]*) | (?P<brace>[{}])
    | (?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:) | (?P<statement>[^;\s][^;]*); | \Z)""",
    re.VERBOSE,
)
_LOC = re.compile(r"(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_STATEMENT = re.compile(r"(?:@(!?)([\w$%]+)\s+)?([\w.:]+)\s*(.*)$", re.DOTALL)
_ITEM = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]\s][^,{}\[\]]*")
_TENSOR = re.compile(r"\[\s*([^,\]]+?)\s*,\s*\{([^}]*)\}\s*\]$")
_ADDRESS = re.compile(r"\[\s*([^+\]]*?)\s*(?:\+\s*(-?\s*\w+)\s*)?\]$")


class Copy(NamedTuple):
    """The copy of a function's body that one call gets.

    functions: the names of those being called, the outermost first; at: the call; end: the label behind the copy
    bound: the function's parameters and results by name, as the kernel's variables and registers
    """

    functions: tuple[str, ...]
    at: Location
    end: str
    bound: dict[str, str]


class BodyParser(ABC):
    """Parses one kernel of the file `name`, or a copy of a function in it.

    A register or a label declared in an inner scope or in a copy gets a unique name.
    """

    def __init__(self, kernel: Kernel, files: dict[int, str], name: str, copy: Copy | None = None):
        self.kernel, self.files, self.name, self.copy = kernel, files, name, copy
        self.scopes: list[dict[str, str]] = [copy.bound, {}] if copy else [{}]
        self.outermost = len(self.scopes)
        self.outer = {parameter.name for parameter in kernel.parameters}
        self.location: Location | None = None  # from the last .loc
        self.line = 0  # number of the current line of PTX
        self.inlined: dict[tuple[str, str, str], Location] = {}
        # Operands by text, as the current scope has them, and as each scope around it has.
        self.known: dict[str, Operand] = {}
        self.around: list[dict[str, Operand]] = []
        self.pending_label = ""
        self.halves: dict[str, tuple[Name, Name]] = {}  # a 128-bit register → its two 64-bit halves
        # For each open scope: labels by name; and branches, whose target may be declared later in their scope, each
        # the number of an instruction or the label of a table of targets.
        self.labels: list[dict[str, str]] = [{}]
        self.branches: list[list[int | str]] = [[]]

    def parse(self, text: str, line: int) -> None:
        """Parse the text between the outer braces. line: the line of its start. Raises NotEmulated for unknown text."""
        at, self.line = 0, line
        while at < len(text):
            match = _TOKEN.match(text, at)
            try:
                if not match:
                    raise NotEmulated(f"the text {text[at:].lstrip()[:60].rstrip()!r}")
                kind = match.lastgroup
                if kind:
                    start = match.start(kind)
                    self.line += text.count("\n", at, start)
                    at = start
                    self._token(kind, match[kind])
            except (NotEmulated, *limits.UNREADABLE) as error:
                raise malformed(text, at, line, error) from None
            self.line += text.count("\n", at, match.end())
            at = match.end()
        self._resolve_branches()

    def _token(self, kind: str, text: str) -> None:
        if kind == "statement":
            self._statement(text.rstrip())
        elif kind == "loc":
            self._location(text)
        elif kind == "brace":
            self._scope(text)
        else:
            self._label(text)

    def _scope(self, brace: str) -> None:
        if brace == "{":
            self.scopes.append({}), self.labels.append({}), self.branches.append([]), self.around.append(self.known)
            self.known = {}
            if len(self.scopes) > limits.NESTING:
                raise NotEmulated(f"more than {limits.NESTING} scopes in one another")
        elif len(self.scopes) == self.outermost:
            raise NotEmulated("a closing brace without its opening one")
        else:
            self.scopes.pop()
            self.known = self.around.pop()
            self._resolve_branches()

    def _label(self, name: str) -> None:
        if name in self.labels[-1]:
            raise NotEmulated(f"the label {name!r}, which is there twice")
        unique = self.labels[-1][name] = name if len(self.scopes) == 1 else f"{name}@{len(self.kernel.labels)}"
        self.pending_label = unique
        self.kernel.labels[unique] = len(self.kernel.instructions)

    def _resolve_branches(self) -> None:
        """At the end of a scope, give branches out of it, and of scopes in it, the unique names of its labels."""
        labels, branches = self.labels.pop(), self.branches.pop()
        for at in branches:
            if not self._resolved(at, labels):
                self.branches[-1].append(at)

    def _resolved(self, at: int | str, labels: dict[str, str]) -> bool:
        """Give a branch or a table the unique names of a scope's labels; False if it has others of a scope around."""
        last = not self.branches
        if isinstance(at, str):
            names = self.kernel.targets[at]
            lost = "@" if last and self.copy else ""
            found = tuple(labels.get(name) or (name if "@" in name else name + lost) for name in names)
            self.kernel.targets[at] = found
            return last or set(names) <= set(labels)
        instruction = self.kernel.instructions[at]
        name = instruction.operands[-1] if instruction.operands else None
        if not isinstance(name, Name) or not (name.text in labels or last and self.copy):
            return last
        # A label that a function lacks is none of those of its caller.
        operands = (*instruction.operands[:-1], Name(labels.get(name.text, f"{name.text}@"), name.negated))
        self.kernel.instructions[at] = instruction._replace(operands=operands)
        return True

    def _location(self, text: str) -> None:
        match = _LOC.match(text)
        here, caller = match.group(1, 2, 3), match.group(4, 5, 6)
        parent = self.copy.at if self.copy else None
        if caller[0]:
            parent = self.inlined.get(caller) or Location(self._file(caller[0]), int(caller[1]), parent)
            if parent.depth() > limits.NESTING:
                raise NotEmulated(f"calls inlined in one another, more than {limits.NESTING}")
        self.location = Location(self._file(here[0]), int(here[1]), parent)
        self.inlined[here] = self.location

    def _file(self, index: str) -> str:
        return self.files.get(int(index), f"file{index}")

    def _statement(self, text: str) -> None:
        if not text.startswith("."):
            self._instruction(text)
        elif text.startswith(".reg"):
            self._declare_registers(text)
        elif text.startswith(".branchtargets"):
            targets = tuple(re.findall(r"[\w$]+", text.split(None, 1)[1]))
            if len(targets) > limits.TARGETS:
                raise NotEmulated(f"{len(targets)} targets of a branch; {limits.TARGETS} are allowed")
            self.kernel.targets[self.pending_label] = targets
            self.branches[-1].append(self.pending_label)
        elif text.startswith((".shared", ".local")):
            declared = variable(text)
            if not self.copy and (declared.name in self.kernel.variables or declared.name in self.outer):
                raise NotEmulated(f"the variable {declared.name!r}, which is there twice")
            self._declare(declared, f"@{self.copy.functions[-1]}" if self.copy else "")
        elif text.startswith((".param", ".callprototype", ".calltargets")):
            self._declare_call(text)
        elif not text.startswith(".pragma"):
            self._instruction(text)

    def _declare(self, declared: Variable, suffix: str) -> str:
        """Add a variable to the kernel, and return its unique name.

        A function's are the same in each of its copies: no thread is in two of them at once.
        """
        unique = f"{declared.name}{suffix}"
        if suffix:
            self.scopes[-1][declared.name], self.known = unique, {}
        return self._add(replace(declared, name=unique))

    def _add(self, declared: Variable) -> str:
        if self.kernel.variables.setdefault(declared.name, declared) != declared:
            raise NotEmulated(f"the variable {declared.name.partition('@')[0]!r}, which is there twice")
        check_total(self.kernel.variables)
        return declared.name

    def _declare_registers(self, text: str) -> None:
        self.known = {}
        kind, names = re.match(r"\.reg\s*\.(\w+)\s+(.*)", text, re.DOTALL).groups()
        if kind not in SIZES and kind != "b128":
            raise NotEmulated(f"registers of type {kind!r}")
        suffix = f"@{len(self.kernel.registers)}" if len(self.scopes) > 1 else ""
        for name in re.split(r"\s*,\s*", names.strip()):
            for register in _expand(name):
                if register in self.scopes[-1] or len(self.scopes) == 1 and register in self.outer:
                    raise NotEmulated(f"the register {register!r}, which is there twice")
                unique = self.scopes[-1][register] = register + suffix
                if kind == "b128":
                    self.halves[unique] = Name(f"{unique}:low"), Name(f"{unique}:high")
                    self.kernel.registers |= {half.text: "b64" for half in self.halves[unique]}
                else:
                    self.kernel.registers[unique] = kind
                if len(self.kernel.registers) > limits.REGISTERS:
                    raise NotEmulated(f"a kernel of more than {limits.REGISTERS} registers")

    def _resolve(self, text: str) -> str:
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        return text

    def _name(self, text: str) -> Name:
        name, dot, parts = text.lstrip("! ").partition(".")  # `%r1.b7654`, of which the parts are no name
        return Name(self._resolve(name) + dot + parts, text.startswith("!"))

    def _instruction(self, text: str) -> None:
        if len(text) > limits.INSTRUCTION:
            raise NotEmulated(f"an instruction of {len(text)} characters")
        text = " ".join(text.split())
        match = _STATEMENT.match(text)
        if not match:
            raise NotEmulated(f"the text {text[:60]!r}")
        negated, guard, mnemonic, rest = match.groups()
        named = Name(self._resolve(guard), bool(negated)) if guard else None
        if mnemonic.startswith("call"):
            self._call(mnemonic, rest, named)
            return
        operands = tuple(map(self._operand, split(rest)))
        if mnemonic.startswith(("st.param", "ld.param")):
            mnemonic = self._of_call(mnemonic, operands)
        if mnemonic.endswith(".b128"):
            operands = tuple(map(self._in_halves, operands))
        if mnemonic.startswith(("bra", "brx")):
            self.branches[-1].append(len(self.kernel.instructions))
        elif self.copy and mnemonic in ("ret", "ret.uni"):
            mnemonic, operands = "bra", (Name(self.copy.end),)
        self._emit(mnemonic, *operands, guard=named)

    def _emit(self, mnemonic: str, *operands: Operand, guard: Name | None = None) -> None:
        """Add an instruction to the kernel."""
        if len(self.kernel.instructions) == limits.INSTRUCTIONS:
            raise NotEmulated(f"more than {limits.INSTRUCTIONS} instructions, with a copy of a function at each call")
        self.kernel.instructions.append(Instruction(mnemonic, operands, guard, self._here()))

    def _here(self) -> Location:
        """The location of the current instruction."""
        return self.location or Location(self.name, self.line, self.copy.at if self.copy else None)

    @abstractmethod
    def _declare_call(self, text: str) -> None:
        """Declare a parameter or result of a call, or the functions that a call through a pointer may mean."""

    @abstractmethod
    def _call(self, mnemonic: str, text: str, guard: Name | None) -> None:
        """Add a call to the kernel. text: its operands"""

    @abstractmethod
    def _of_call(self, mnemonic: str, operands: tuple[Operand, ...]) -> str:
        """The mnemonic of a `ld.param` or `st.param`, whose operand may be a call's parameter or result."""

    def _in_halves(self, operand: Operand) -> Operand:
        """Replace 128-bit registers by the vector of their halves, the lower one first."""
        items = operand.items if isinstance(operand, Vector) else (operand,)
        halves = [half for item in items for half in self.halves.get(getattr(item, "text", ""), (item,))]
        return Vector(tuple(halves)) if len(halves) > 1 else operand

    def _operand(self, text: str) -> Operand:
        found = self.known.get(text)
        if found is None:
            found = self.known[text] = self._new_operand(text)
        return found

    def _new_operand(self, text: str) -> Operand:
        if text.startswith("{"):
            return Vector(tuple(self._operand(item) for item in split(text[1:-1])))
        if text.startswith("["):
            tensor = _TENSOR.match(text)
            if tensor:
                return TensorAddress(self._address(f"[{tensor[1]}]"), tuple(self._operand(i) for i in split(tensor[2])))
            return self._address(text)
        if text == "WARP_SZ":
            return Immediate(32)
        if "|" in text:
            first, second = text.split("|")
            return Pair(self._name(first.strip()), self._name(second.strip()))
        return (immediate(text) if text[0] in "+-0123456789" else None) or self._name(text)

    def _address(self, text: str) -> Address:
        match = _ADDRESS.match(text)
        if not match:
            raise NotEmulated(f"the address {text[:60]!r}")
        offset = int((match[2] or "0").replace(" ", ""), 0)
        base = immediate(match[1])
        return Address(None, base.bits + offset) if base else Address(self._name(match[1]), offset)


def _expand(name: str) -> Iterator[str]:
    """`%r<3>` → `%r0`, `%r1`, `%r2`."""
    match = re.fullmatch(r"([\w$%]+)<(\d+)>", name)
    if match:
        yield from (f"{match[1]}{i}" for i in range(int(match[2])))
    else:
        yield name


def split(text: str) -> list[str]:
    """Operands at the top level of `a, {b, c}, [d]`."""
    if "{" not in text:
        return [item.strip() for item in text.split(",")] if text else []
    items = [item.strip() for item in _ITEM.findall(text)]
    if _ITEM.sub("", text).replace(" ", "") != "," * (len(items) - 1):
        raise NotEmulated(f"the operands {text[:60]!r}")
    return items
