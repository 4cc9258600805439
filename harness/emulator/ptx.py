"""PTX text as data: modules, variables, kernels and their instructions. Nothing here knows what an instruction does.

The grammar is the part of PTX 8.x and 9.x that NVRTC prints, inline assembly included: scopes with their own registers, labels, guards, vectors,
addresses, and `.loc` lines, which become the location of every instruction after them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

from harness.errors import NotCapable

SIZES = {"pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2}
SIZES |= {
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "f32x2": 8,
}


@dataclass(frozen=True)
class Location:
    """A line of source, and the call it was inlined at."""

    file: str
    line: int
    inlined_at: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def chain(self) -> str:
        """`, inlined at a.cu:7, inlined at a.cu:30`; empty where nothing was inlined."""
        return f", inlined at {self.inlined_at}{self.inlined_at.chain()}" if self.inlined_at else ""


UNKNOWN = Location("ptx", 0)


class Name(NamedTuple):
    """A register, special register, variable or label; which one, its scope decides. negated: `!%p`."""

    text: str
    negated: bool = False


class Immediate(NamedTuple):
    """A constant. bits: of an integer of any sign, or the pattern of a float of `size` bytes (0 for an integer)."""

    bits: int
    size: int = 0


class Address(NamedTuple):
    """`[base+offset]`; base is None for an absolute address."""

    base: Name | None
    offset: int


class Vector(NamedTuple):
    """`{a, b, c, d}`."""

    items: tuple[Operand, ...]


class Pair(NamedTuple):
    """`%r1|%p1`: two results of one instruction."""

    first: Name
    second: Name


Operand = Name | Immediate | Address | Vector | Pair


class Instruction(NamedTuple):
    """One instruction. guard: the predicate that lets a lane execute it, or None."""

    mnemonic: str
    operands: tuple[Operand, ...]
    guard: Name | None
    location: Location


@dataclass(frozen=True)
class Variable:
    """A variable of a module or kernel. size: bytes, 0 if the launch decides; initial: its first bytes, the rest are 0."""

    name: str
    space: str
    align: int
    size: int
    initial: bytes = b""


@dataclass
class Kernel:
    """An entry as written. registers: unique name → type; labels: name → index of the instruction they stand before."""

    name: str
    parameters: tuple[Variable, ...]
    instructions: list[Instruction] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    max_threads: int = 1024


@dataclass(frozen=True)
class Program:
    """A module as written; the bodies of its kernels are parsed by `kernel` on demand."""

    target: str
    variables: dict[str, Variable]
    files: dict[int, str]
    entries: dict[str, tuple[str, str, str]]

    def kernel(self, name: str) -> Kernel:
        """Parse one entry. Raises KeyError if there is none of that name."""
        parameters, directives, body = self.entries[name]
        declared = [_variable(item, "param") for item in parameters.split(",") if item.strip()]
        kernel = Kernel(name, tuple(declared))
        limit = re.search(r"\.maxntid\s+([\d,\s]+)", directives)
        if limit:
            kernel.max_threads = 1
            for extent in limit[1].split(","):
                kernel.max_threads *= int(extent)
        _Body(kernel, self.files).read(body)
        return kernel


_TOP = re.compile(
    r"""\s+ | \.version[^\n]* | \.address_size[^\n]* | \.target\s+(?P<target>\w+)[^\n]*
    | \.file\s+(?P<index>\d+)\s+"(?P<file>[^"]*)"[^\n]* | \.section[^{]*\{[^}]*\}
    | (?P<head>[^;{}=()]*\.(?:entry|func)\b) | (?P<statement>\.[^;]*;)""",
    re.VERBOSE,
)
_ENTRY = re.compile(r"\s*([\w$]+)\s*(?:\(([^)]*)\))?\s*([^{;]*)")


def parse(text: str) -> Program:
    """Split a module into variables and entries. Raises NotCapable for a construct that is not of the grammar above."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    target, variables, files, entries = "", {}, {}, {}
    at = 0
    while at < len(text):
        match = _TOP.match(text, at)
        if not match:
            raise NotCapable(f"not emulated: the PTX directive {text[at : at + 60].split(chr(10))[0]!r}")
        at = match.end()
        if match["target"]:
            target = match["target"]
        elif match["index"]:
            files[int(match["index"])] = PurePath(match["file"]).name
        elif match["statement"]:
            statement = match["statement"][:-1]
            if re.search(r"\.(const|global|shared)\b", statement):
                variable = _variable(statement)
                variables[variable.name] = variable
        elif match["head"]:
            at = _function(text, at, match["head"].rstrip().endswith(".entry"), entries)
    return Program(target, variables, files, entries)


def _function(text: str, at: int, is_entry: bool, entries: dict[str, tuple[str, str, str]]) -> int:
    """Step over one entry or device function, keeping an entry; returns where it ends."""
    if not is_entry:
        returned = re.compile(r"\s*\([^)]*\)").match(text, at)
        at = returned.end() if returned else at
    match = _ENTRY.match(text, at)
    if text[match.end()] == ";":
        return match.end() + 1
    end = _closing_brace(text, match.end())
    if is_entry:
        entries[match[1]] = (match[2] or "", match[3], text[match.end() + 1 : end])
    return end + 1


def _closing_brace(text: str, at: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    raise NotCapable("not emulated: a PTX function without an end")


_DECLARATION = re.compile(r"([\w$%]+)\s*((?:\[\s*\d*\s*\])*)\s*(?:=\s*(.*))?$", re.DOTALL)


def _variable(statement: str, space: str = "") -> Variable:
    """Parse `.const .align 8 .b8 name[24] = {1, 2}`, or one parameter."""
    found = re.search(r"\.(const|global|shared|local|param)\b", statement)
    space = found[1] if found else space
    alignment = re.search(r"\.align\s+(\d+)(?!.*\.align)", statement)
    # A pointer parameter tells the alignment of what it points to; its own is that of its type.
    alignment = None if ".ptr" in statement else alignment
    bare = re.sub(r"\.(align|attribute)\s*(\d+|\([^)]*\))|\.ptr\b", "", statement)
    kind = next(kind for kind in re.findall(r"\.(\w+)", bare.split("=")[0]) if kind in SIZES)
    match = _DECLARATION.search(bare.split(f".{kind}", 1)[1].replace(".global", "").strip())
    if not match:
        raise NotCapable(f"not emulated: the PTX declaration {statement.strip()[:60]!r}")
    name, extents, initial = match.groups()
    size = SIZES[kind]
    for extent in re.findall(r"\[\s*(\d*)\s*\]", extents):
        size *= int(extent or 0)
    return Variable(
        name, space, int(alignment[1]) if alignment else SIZES[kind], size, _initial(initial, SIZES[kind], name)
    )


def _initial(text: str | None, size: int, name: str) -> bytes:
    if not text:
        return b""
    out = b""
    for item in re.sub(r"[{}\s]", "", text).split(","):
        value = _immediate(item) if item else None
        if value is None or text.count("{") > 1:
            raise NotCapable(f"not emulated: the initialiser of {name!r} is not a flat list of numbers")
        out += (value.bits & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return out


_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")
_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_DECIMAL = re.compile(r"[+-]?\d+\.\d*(?:[eE][+-]?\d+)?$")


def _immediate(text: str) -> Immediate | None:
    if match := _FLOAT.match(text):
        return Immediate(int(match[1] or match[2], 16), 4 if match[1] else 8)
    if match := _INTEGER.match(text):
        digits = match[2]
        base = 8 if re.fullmatch(r"0[0-7]+", digits) else 0
        value = int(digits, base)
        return Immediate(-value if match[1] == "-" else value)
    if _DECIMAL.match(text):
        return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), 8)
    return None


_TOKEN = re.compile(
    r"""\s+ | \.loc\s+(?P<loc>[^\n]*) | (?P<brace>[{}]) | (?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:) | (?P<statement>[^;]+?)\s*;""",
    re.VERBOSE,
)
_LOC = re.compile(r"(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_STATEMENT = re.compile(r"(?:@(!?)([\w$%]+)\s+)?([\w.:]+)\s*(.*)$", re.DOTALL)
_ADDRESS = re.compile(r"\[\s*([^+\]]*?)\s*(?:\+\s*(-?\s*\w+)\s*)?\]$")


class _Body:
    """Reads the body of one kernel. A name declared in an inner scope hides the outer one, so it gets a unique spelling."""

    def __init__(self, kernel: Kernel, files: dict[int, str]):
        self.kernel, self.files = kernel, files
        self.scopes: list[dict[str, str]] = [{}]
        self.location = UNKNOWN
        self.calls: dict[tuple[str, str, str], Location] = {}
        self.pending_label = ""

    def read(self, text: str) -> None:
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if not match:
                raise NotCapable(f"not emulated: the PTX text {text[at : at + 60].strip()!r} in {self.kernel.name}")
            at = match.end()
            if match["loc"]:
                self._locate(match["loc"])
            elif match["brace"] == "{":
                self.scopes.append({})
            elif match["brace"]:
                self.scopes.pop()
            elif match["label"]:
                self.pending_label = match["label"]
                self.kernel.labels[match["label"]] = len(self.kernel.instructions)
            elif match["statement"]:
                self._statement(match["statement"])

    def _locate(self, text: str) -> None:
        match = _LOC.match(text)
        here, caller = match.group(1, 2, 3), match.group(4, 5, 6)
        parent = None
        if caller[0]:
            parent = self.calls.get(caller) or Location(self._file(caller[0]), int(caller[1]))
        self.location = Location(self._file(here[0]), int(here[1]), parent)
        self.calls[here] = self.location

    def _file(self, index: str) -> str:
        return self.files.get(int(index), f"file{index}")

    def _statement(self, text: str) -> None:
        if text.startswith(".reg"):
            self._declare_registers(text)
        elif text.startswith(".branchtargets"):
            self.kernel.targets[self.pending_label] = tuple(re.findall(r"[\w$]+", text.split(None, 1)[1]))
        elif text.startswith((".shared", ".local")):
            variable = _variable(text)
            self.kernel.variables[variable.name] = variable
        elif not text.startswith((".pragma", ".param")):
            self._instruction(text)

    def _declare_registers(self, text: str) -> None:
        kind, names = re.match(r"\.reg\s+\.(\w+)\s+(.*)", text, re.DOTALL).groups()
        suffix = f"@{len(self.kernel.registers)}" if len(self.scopes) > 1 else ""
        for name in re.split(r"\s*,\s*", names.strip()):
            for spelled in _expand(name):
                self.scopes[-1][spelled] = spelled + suffix
                self.kernel.registers[spelled + suffix] = kind

    def _resolve(self, text: str) -> str:
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        return text

    def _name(self, text: str) -> Name:
        return Name(self._resolve(text.lstrip("! ")), text.startswith("!"))

    def _instruction(self, text: str) -> None:
        match = _STATEMENT.match(text)
        if not match:
            raise NotCapable(f"not emulated: the PTX text {text[:60]!r} at {self.location}")
        negated, guard, mnemonic, rest = match.groups()
        operands = () if mnemonic.startswith("call") else tuple(self._operand(item) for item in _split(rest))
        named = Name(self._resolve(guard), bool(negated)) if guard else None
        self.kernel.instructions.append(Instruction(mnemonic, operands, named, self.location))

    def _operand(self, text: str) -> Operand:
        if text.startswith("{"):
            return Vector(tuple(self._operand(item) for item in _split(text[1:-1])))
        if text.startswith("["):
            return self._address(text)
        if "|" in text:
            first, second = text.split("|")
            return Pair(self._name(first.strip()), self._name(second.strip()))
        return (_immediate(text) if text[0] in "+-0123456789" else None) or self._name(text)

    def _address(self, text: str) -> Address:
        match = _ADDRESS.match(text)
        if not match:
            raise NotCapable(f"not emulated: the PTX address {text!r} at {self.location}")
        offset = int((match[2] or "0").replace(" ", ""), 0)
        base = _immediate(match[1])
        return Address(None, base.bits + offset) if base else Address(self._name(match[1]), offset)


def _expand(name: str) -> Iterator[str]:
    """`%r<3>` → `%r0`, `%r1`, `%r2`."""
    match = re.fullmatch(r"([\w$%]+)<(\d+)>", name)
    if match:
        yield from (f"{match[1]}{i}" for i in range(int(match[2])))
    else:
        yield name


def _split(text: str) -> list[str]:
    """Operands at the top level of `a, {b, c}, [d]`."""
    if "{" not in text:
        return [item.strip() for item in text.split(",")] if text else []
    items, depth, current = [], 0, ""
    for char in text:
        depth += (char in "{[(") - (char in "}])")
        if char == "," and not depth:
            items.append(current.strip())
            current = ""
        else:
            current += char
    if current.strip():
        items.append(current.strip())
    return items
