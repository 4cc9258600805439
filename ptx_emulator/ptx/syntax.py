"""PTX as data: variables, kernels, instructions, operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

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


UNKNOWN = Location("ptx", 0)


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

    size: bytes, 0 if the launch decides; initial: its first bytes, the rest are 0
    """

    name: str
    space: str
    align: int
    size: int
    initial: bytes = b""


@dataclass
class Kernel:
    """An entry. registers: unique name → type; labels: name → index of the next instruction."""

    name: str
    parameters: tuple[Variable, ...]
    instructions: list[Instruction] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    max_threads: int = 1024
    cluster: tuple[int, int, int] | None = None
