"""One thread of a case's kernels on the emulator: its instructions under their lines of the `.cu`, with values."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from harness.contract.case import Case
from harness.device.emulator import EmulatedProgram, EmulatorDevice
from harness.device.launches import BoundLaunch
from harness.errors import CaseError, UsageError
from harness.files import KERNELS
from harness.oracles.by_recipe import oracle_of
from ptx_emulator.machine.launch_state import coordinates
from ptx_emulator.machine.watch import Seen, Values, Watch
from ptx_emulator.memory import WINDOW_BITS
from ptx_emulator.ptx.syntax import Address, Immediate, Location, Operand, Pair, Vector

_POISON = 0xA5
_HEX_FROM = 1 << 16


def follow(
    case: Case, target: str, inputs: Mapping[str, np.ndarray], place: tuple[int, int], most: int
) -> tuple[str, CaseError | None]:
    """The text of what a thread does in every launch of the case, and the error if the kernel was stopped.

    place: the numbers of block and thread, x fastest; most: lines. Raises UsageError for a place that no launch has.
    """
    program = EmulatorDevice().prepare(case, target, inputs, oracle_of(case.recipe).outputs(case))
    _require(program, case, place)
    program.watch = place
    stopped: CaseError | None = None
    try:
        program.run(_POISON, 0)
    except CaseError as error:
        stopped = error
    lines = [line for launch, watch in program.watched for line in _launch(launch, watch)]
    more = len(lines) - most
    return "\n".join([*lines[:most], *([f"... {more:,} lines more; --lines shows them"] if more > 0 else [])]), stopped


def _require(program: EmulatedProgram, case: Case, place: tuple[int, int]) -> None:
    extents = [(math.prod(each.grids[0]), math.prod(each.block)) for each in program.launches.of_kernels]
    if not any(place[0] < blocks and place[1] < threads for blocks, threads in extents):
        there = ", ".join(f"{blocks} of {threads} threads" for blocks, threads in extents)
        raise UsageError(
            f"--thread {place[0]},{place[1]}: {case.id} launches {there}; the first block and thread are 0"
        )


def _launch(launch: BoundLaunch, watch: Watch) -> Iterator[str]:
    grid, signature = launch.grids[0], launch.step.signature
    block, thread = coordinates(watch.block, grid), (watch.thread, 0, 0)
    yield f"{launch.title}, grid {grid}, block {block}, thread {thread}"
    if not watch.seen:
        yield "  this launch has no such thread"
    names = {f"{launch.entry}_param_{i}": each.name for i, each in enumerate(signature.call)}
    before: Location | None = None
    for seen in watch.seen:
        here = seen.instruction.location
        if here != before and here.line:  # the compiler's own instructions have line 0
            before = here
            yield f"{here}{here.chain()}  {_line(here, signature.path.parent)}"
        yield f"    {_spelled(seen, names):<58} {_values(seen, watch, names)}".rstrip()
    yield ""


def _spelled(seen: Seen, names: Mapping[str, str]) -> str:
    instruction = seen.instruction
    guard = (
        f"@{'!' if instruction.guard.negated else ''}{_register(instruction.guard.text)} " if instruction.guard else ""
    )
    return f"{guard}{instruction.mnemonic} {', '.join(_operand(each, names) for each in instruction.operands)}"


def _operand(operand: Operand, names: Mapping[str, str]) -> str:
    match operand:
        case Immediate():
            if operand.size == 4:
                return f"{struct.unpack('<f', struct.pack('<I', operand.bits))[0]:.9g}"
            return str(operand.bits)
        case Address():
            base = "" if operand.base is None else names.get(operand.base.text, _register(operand.base.text))
            return f"[{base}{f'{operand.offset:+d}' if operand.offset else ''}]"
        case Vector():
            return "{" + ", ".join(_operand(each, names) for each in operand.items) + "}"
        case Pair():
            return f"{_register(operand.first.text)}|{_register(operand.second.text)}"
        case _:
            return ("!" if operand.negated else "") + _register(operand.text)


def _register(text: str) -> str:
    return text.partition("@")[0]  # drops the suffix that makes registers of inner scopes unique


def _values(seen: Seen, watch: Watch, names: Mapping[str, str]) -> str:
    instruction = seen.instruction
    parameter = next(
        (names[each.base.text] for each in instruction.operands if isinstance(each, Address) and each.base
         and each.base.text in names), "",
    )  # fmt: skip
    wrote = _listed(seen.writes, watch, instruction.mnemonic) + (f", the parameter {parameter}" if parameter else "")
    read = _listed(seen.reads, watch, instruction.mnemonic)
    return "; ".join(part for part in (wrote, f"from {read}" if wrote and read else read) if part)


def _listed(values: Values, watch: Watch, mnemonic: str) -> str:
    return ", ".join(f"{_register(name)} = {_value(value, name, watch, mnemonic)}" for name, value in values.items())


def _value(value: int | bool, name: str, watch: Watch, mnemonic: str) -> str:
    """A value by the type of its register and the instruction; an address as the array and the byte it points to."""
    if isinstance(value, bool):
        return str(value).lower()
    kind = watch.kinds[name]
    for buffer in watch.buffers if value >= 1 << WINDOW_BITS else ():
        if 0 <= value - buffer.address <= len(buffer.data):
            return f"{buffer.name} byte {value - buffer.address}"
    words = mnemonic.split(".")
    if kind == "f32" or (kind == "b32" and "f32" in words):
        return f"{struct.unpack('<f', struct.pack('<I', value))[0]:.9g}"
    if kind == "f64" or (kind == "b64" and "f64" in words):
        return f"{struct.unpack('<d', struct.pack('<Q', value))[0]:.17g}"
    signed = np.array(value, f"u{8 if kind.endswith('64') else 4}").view(f"i{8 if kind.endswith('64') else 4}").item()
    if "s32" in words or "s64" in words:
        return str(signed)
    return f"0x{value:x}" if value >= _HEX_FROM else str(value)


def _line(location: Location, folder: Path) -> str:
    lines = _source(location.file, folder)
    return lines[location.line - 1].strip() if 0 < location.line <= len(lines) else ""


@lru_cache(maxsize=64)
def _source(name: str, folder: Path) -> list[str]:
    """The lines of a kernel's source file, found by name alone; none if there is no such file."""
    for root in dict.fromkeys((folder, KERNELS)):
        for path in [root / name, *sorted(root.rglob(name))]:
            if path.is_file():
                return path.read_text(encoding="utf-8").splitlines()
    return []
