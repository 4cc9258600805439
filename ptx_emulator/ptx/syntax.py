"""PTX as data: variables, kernels, instructions, operands; and the parsing of variables and of constants."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ptx_emulator.errors import NotEmulated
from ptx_emulator.ptx import limits

BYTES = {
    1: ("pred", "b8", "u8", "s8"),
    2: ("b16", "u16", "s16", "f16", "bf16"),
    4: ("b32", "u32", "s32", "f32", "f16x2", "bf16x2"),
    8: ("b64", "u64", "s64", "f64", "f32x2"),
}
SIZES = {kind: size for size, kinds in BYTES.items() for kind in kinds}


@dataclass(frozen=True)
class Location:
    """A line of source, and the call it was inlined at."""

    file: str
    line: int
    inlined_at: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def depth(self) -> int:
        """How many calls it was inlined through."""
        return 1 + self.inlined_at.depth() if self.inlined_at else 0

    def chain(self) -> str:
        """`, inlined at a.cu:7, inlined at a.cu:30`; empty where nothing was inlined."""
        return f", inlined at {self.inlined_at}{self.inlined_at.chain()}" if self.inlined_at else ""

    def in_full(self) -> str:
        """The line, and the calls it was inlined at."""
        return f"{self}{self.chain()}"


PTX = "ptx"  # stands for the file of a module whose name is not known
UNKNOWN = Location(PTX, 0)


class Name(NamedTuple):
    """A register, special register, variable or label, depending on scope. negated: `!%p`."""

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


class TensorAddress(NamedTuple):
    """`[map, {c0, c1}]`: a tensor map and the coordinates of a box, the innermost first."""

    map: Address
    coordinates: tuple[Operand, ...]


Operand = Name | Immediate | Address | Vector | Pair | TensorAddress


class Instruction(NamedTuple):
    """One instruction. guard: the predicate that lets a lane execute it, or None."""

    mnemonic: str
    operands: tuple[Operand, ...]
    guard: Name | None
    location: Location


@dataclass(frozen=True)
class Variable:
    """A variable of a module or kernel.

    size: bytes, 0 if the launch decides; kind: the type of its elements; initial: its first bytes, the rest are 0
    addresses: what is added to these bytes: at an offset, the address of a function or variable
    """

    name: str
    space: str
    align: int
    size: int
    initial: bytes = b""
    addresses: tuple[tuple[int, str], ...] = ()
    kind: str = ""


@dataclass
class Kernel:
    """An entry, with a copy of a function at each call.

    registers: unique name → type; labels: name → index of the next instruction; recursive: functions that call
    themselves
    """

    name: str
    parameters: tuple[Variable, ...]
    instructions: list[Instruction] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    recursive: set[str] = field(default_factory=set)
    max_threads: int = 1024
    cluster: tuple[int, int, int] | None = None


# ---- declarations and constants -------------------------------------------------------------------------------------


_PLACED = "not emulated: PTX line"
_DECLARATION = re.compile(r"([\w$%]+)\s*((?:\[\s*\d*\s*\])*)")


def variable(statement: str, space: str = "") -> Variable:
    """Parse `.const .align 8 .b8 name[24] = {1, 2}`, or one parameter. Raises NotEmulated."""
    head, equals, initial = statement.partition("=")
    if len(head) > limits.HEADER:
        raise NotEmulated(f"a declaration of {len(head)} characters, {statement.strip()[:60]!r}")
    head = " ".join(head.split())
    found = re.search(r"\.(const|global|shared|local|param)\b", head)
    bare = re.sub(r"\.(align|attribute)\s*(\d+|\([^)]*\))|\.ptr\b", "", head)
    kind = next((kind for kind in re.findall(r"\.(\w+)", bare) if kind in SIZES), None)
    match = kind and _DECLARATION.fullmatch(bare.split(f".{kind}", 1)[1].replace(".global", "").strip())
    if not match or (equals and not initial.strip()):
        raise NotEmulated(f"the declaration {statement.strip()[:60]!r}")
    name, extents = match.groups()
    size = math.prod([SIZES[kind], *(int(extent or 0) for extent in re.findall(r"\[\s*(\d*)\s*\]", extents))])
    if size > limits.VARIABLE:
        raise NotEmulated(f"the variable {name!r} of {size} bytes; {limits.VARIABLE} are allowed")
    return Variable(name, found[1] if found else space, _alignment(head) or SIZES[kind], size,
                    *_initial(initial, SIZES[kind], size, name), kind)  # fmt: skip


def check_total(variables: Mapping[str, Variable]) -> None:
    """Raise NotEmulated if the variables together are too many or too large."""
    total = sum(variable.size for variable in variables.values())
    if total > limits.VARIABLES or len(variables) > limits.COUNT:
        allowed = f"{limits.COUNT} of {limits.VARIABLES} bytes are allowed"
        raise NotEmulated(f"{len(variables)} variables of {total} bytes; {allowed}")


def malformed(text: str, at: int, line: int, error: Exception) -> NotEmulated:
    """The error to raise for a position in a text that starts on a given line of the PTX, if it does not say one."""
    if str(error).startswith(_PLACED):
        return error
    while at < len(text) and text[at].isspace():
        at += 1
    line += text.count("\n", 0, at)
    start = text[at : at + 60].partition("\n")[0].strip()
    sentence = str(error) if isinstance(error, NotEmulated) else f"the text {start!r}"
    return NotEmulated(f"{_PLACED} {line}: {sentence}")


def _alignment(head: str) -> int:
    """The declared alignment in bytes, 0 without one. `.ptr .align` is the pointee's alignment and does not count."""
    said = [] if ".ptr" in head else re.findall(r"\.align\s+(\d+)", head)
    if not said:
        return 0
    alignment = int(said[-1])
    if not 0 < alignment <= limits.ALIGNMENT or alignment & alignment - 1:
        raise NotEmulated(f"an alignment of {alignment}, where a power of two up to {limits.ALIGNMENT} is allowed")
    return alignment


_ADDRESS = re.compile(r"(?:generic\()?([A-Za-z_$%][\w$]*)\)?(?:\+(\d+))?")


def _initial(text: str, size: int, most: int, name: str) -> tuple[bytes, tuple[tuple[int, str], ...]]:
    """A variable's initial bytes, and addresses in them. size: bytes of an element; most: bytes of the variable"""
    out, addresses, nested = bytearray(), [], text.count("{") > 1
    for item in re.sub(r"[{}\s]", "", text).split(",") if text else ():
        value, address = immediate(item) if item else None, _ADDRESS.fullmatch(item)
        if address and size == 8:
            addresses.append((len(out), address[1]))
            value = immediate(address[2] or "0")
        if value is None or nested:
            raise NotEmulated(f"the initialiser of {name!r}, which is not a flat list of numbers and addresses")
        out += (value.bits & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if len(out) > most:
        raise NotEmulated(f"the initialiser of {name!r}, which has {len(out)} bytes for {most}")
    return bytes(out), tuple(addresses)


_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")
_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_DECIMAL = re.compile(r"[+-]?\d+\.\d*(?:[eE][+-]?\d+)?$")


def immediate(text: str) -> Immediate | None:
    """Parse a constant; None if the text is not one."""
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
