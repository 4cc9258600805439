"""Parse declarations of variables, and constants."""

from __future__ import annotations

import re
import struct

from harness.emulator.errors import NotEmulated
from harness.emulator.ptx.syntax import SIZES, Immediate, Variable

_DECLARATION = re.compile(r"([\w$%]+)\s*((?:\[\s*\d*\s*\])*)\s*(?:=\s*(.*))?$", re.DOTALL)


def variable(statement: str, space: str = "") -> Variable:
    """Parse `.const .align 8 .b8 name[24] = {1, 2}`, or one parameter."""
    found = re.search(r"\.(const|global|shared|local|param)\b", statement)
    space = found[1] if found else space
    alignment = re.search(r"\.align\s+(\d+)(?!.*\.align)", statement)
    # `.ptr .align` is the alignment of what a pointer points to, not its own.
    alignment = None if ".ptr" in statement else alignment
    bare = re.sub(r"\.(align|attribute)\s*(\d+|\([^)]*\))|\.ptr\b", "", statement)
    kind = next(kind for kind in re.findall(r"\.(\w+)", bare.split("=")[0]) if kind in SIZES)
    match = _DECLARATION.search(bare.split(f".{kind}", 1)[1].replace(".global", "").strip())
    if not match:
        raise NotEmulated(f"not emulated: the PTX declaration {statement.strip()[:60]!r}")
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
        value = immediate(item) if item else None
        if value is None or text.count("{") > 1:
            raise NotEmulated(f"not emulated: the initialiser of {name!r} is not a flat list of numbers")
        out += (value.bits & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return out


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
