"""A draft of a card from the parameters that a PTX declares."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from harness.errors import UsageError
from harness.subjects.card.arguments import MAP_ALIGN, MAP_SIZE, POINTER
from harness.subjects.card.code import Code, Parameter, block_of
from harness.text import nearest

UNKNOWN = "FILL_IN"
_PLAIN = re.compile(r"[\w./+][\w./+-]*")  # text that YAML reads as it stands
_SCALARS = {"s": "i", "b": "u", "u": "u", "f": "f"}


def draft(code: Code, recipe: str, kernel: str, names: Mapping[str, str]) -> str:
    """The YAML of a card that launches the entries of a PTX; unknown parts are FILL_IN, which a card may not contain.

    recipe: the recipe to compare with; kernel: use only this entry; names: array or number of the recipe → description
    Raises UsageError if there is no such entry, or none at all.
    """
    entries = list(code.program.entries)
    if kernel and kernel not in entries:
        raise UsageError(f"{code.name} has no entry '{kernel}'{nearest(kernel, entries)}")
    if not entries:
        raise UsageError(f"{code.name} has no entry; a kernel is a `.entry` of PTX")
    lines = [
        f"code: {code.name if _PLAIN.fullmatch(code.name) else json.dumps(code.name)}",
        f"recipe: {recipe or UNKNOWN}",
    ]
    if names:
        lines += ["# Its arrays and numbers:", *(f"#   {name}: {what}" for name, what in names.items())]
    lines += ["# flags: {flag: value}  # which of its cases the kernels are for; any, if absent", "launches:"]
    for entry in [kernel] if kernel else entries:
        block = block_of(code.program, entry)
        lines += [
            f"  - kernel: {entry}",
            f'    grid: ["{UNKNOWN}"]  # blocks along x, y, z: integers or such as (rows + 127) // 128',
            f"    block: {list(block) if block else UNKNOWN}{'  # as the PTX says' if block else '  # threads'}",
        ]
        parameters = code.parameters(entry) or ()
        lines += ["    arguments:"] if parameters else []
        lines += [f"      - {_argument(parameter, names)}" for parameter in parameters]
    return "\n".join(lines) + "\n"


def _argument(parameter: Parameter, names: Mapping[str, str]) -> str:
    name = next((name for name in names if parameter.name == name), UNKNOWN)
    told = f"  # {parameter.name}"
    if parameter.pointer or parameter.kind in ("u64", "b64") and parameter.size == POINTER:
        return f"array: {name}{told}{'' if parameter.pointer else ', or u64 if it is no pointer'}"
    if parameter.kind == "b8" and (parameter.size, parameter.align) == (MAP_SIZE, MAP_ALIGN):
        return (
            f"map: {{array: {name}, type: bfloat16, extents: [cols, rows], box: [64, 64]}}{told}, a tensor map it seems"
        )
    if parameter.kind == "b8":
        return f"struct: [pad: {parameter.size}]{told}, {parameter.size} bytes at a multiple of {parameter.align}"
    letter, bits = _SCALARS.get(parameter.kind[0], "u"), 8 * parameter.size
    if parameter.kind == "bf16":
        return f"bf16: {name}{told}"
    return f"{letter}{bits}: {name}{told}"
