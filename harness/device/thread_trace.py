"""One thread of a case's kernels on the emulator: its instructions under their lines of the `.cu`, with values."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.device.launches import BoundLaunch
from harness.errors import CaseError, UsageError
from harness.files import KERNELS
from harness.jit.geometry import Grid
from harness.oracles.by_recipe import oracle_of
from ptx_emulator.machine.launch_state import coordinates
from ptx_emulator.machine.watch import Seen, Values, Watch
from ptx_emulator.memory import WINDOW_BITS
from ptx_emulator.ptx.syntax import Address, Immediate, Location, Operand, Pair, Vector

_POISON = 0xA5
_HEX_FROM = 1 << 16


@dataclass(frozen=True)
class Place:
    """A thread of a grid, as screens name it. thread, block: indices x, y, z"""

    thread: Grid
    block: Grid = (0, 0, 0)

    @classmethod
    def of(cls, text: str) -> Place:
        """Read `3,0,0@0,1,0`: the thread, and behind the sign its block. Raises UsageError.

        Indices that are left out are 0.
        """
        match = re.fullmatch(r"(\d{1,9}(?:,\d{1,9}){0,2})(?:@(\d{1,9}(?:,\d{1,9}){0,2}))?", text, re.ASCII)
        if match is None:
            raise UsageError(
                f"--thread '{text}' is no thread; write its x,y,z, and behind @ those of its block, as screens name "
                "them: 3,0,0@0,1,0; what is left out is 0"
            )
        return cls(*((*map(int, part.split(",")), 0, 0)[:3] for part in match.groups(default="0")))

    def numbers(self, grid: Grid, block: Grid) -> tuple[int, int] | None:
        """The numbers of block and thread, x fastest; None if the launch has no such thread."""
        inside = all(each < end for each, end in zip(self.block + self.thread, grid + block, strict=True))
        return (_number(self.block, grid), _number(self.thread, block)) if inside else None

    def __str__(self) -> str:
        return "@".join(",".join(map(str, each)) for each in (self.thread, self.block))


def _number(index: Grid, extent: Grid) -> int:
    return index[0] + extent[0] * (index[1] + extent[1] * index[2])


def follow(
    case: Case, target: str, inputs: Mapping[str, np.ndarray], place: Place, most: int, kernel: str = ""
) -> tuple[str, CaseError | None]:
    """The text of what a thread does in the launches of the case, and the error if the kernel was stopped.

    most: lines; kernel: the name of the kernel whose launches are shown; empty for all
    Of grids that differ from run to run, the first that has the place is launched.
    Raises UsageError for a kernel that the case does not launch, and for a place that no launch has.
    """
    program = EmulatorDevice().prepare(case, target, inputs, oracle_of(case.recipe).outputs(case))
    shown = _named(program.launches.of_kernels, case, kernel)
    repeat = next((run for run in range(_most_grids(shown)) if _places(shown, place, run)), None)
    if repeat is None:
        extents = dict.fromkeys((grid, each.block) for each in shown for grid in each.grids)
        there = ", or ".join(f"grid {grid} of blocks of {block}" for grid, block in extents)
        raise UsageError(f"--thread {place}: {case.id} launches {there}; the first thread is 0,0,0@0,0,0")
    program.watch = _places(shown, place, repeat)
    stopped: CaseError | None = None
    try:
        program.run(_POISON, repeat)
    except CaseError as error:
        stopped = error
    followed = dict(program.watched)
    lines = [line for launch in shown for line in _launch(launch, followed.get(launch), repeat)]
    more = len(lines) - most
    return "\n".join([*lines[:most], *([f"... {more:,} lines more; --lines shows them"] if more > 0 else [])]), stopped


def _named(launches: Sequence[BoundLaunch], case: Case, kernel: str) -> list[BoundLaunch]:
    """The launches of a kernel, by its name in the `.cu` or with its template arguments; all for an empty name."""
    names = {each: (each.step.signature.name, each.name) for each in launches}
    found = [each for each in launches if not kernel or kernel in names[each]]
    if not found:
        there = dict.fromkeys(name for name, _ in names.values())
        raise UsageError(f"--kernel '{kernel}': {case.id} launches {', '.join(there)}; name one of its kernels")
    return found


def _most_grids(launches: Sequence[BoundLaunch]) -> int:
    return max(len(each.grids) for each in launches)


def _grid(launch: BoundLaunch, repeat: int) -> Grid:
    return launch.grids[repeat % len(launch.grids)]


def _places(launches: Sequence[BoundLaunch], place: Place, repeat: int) -> dict[BoundLaunch, tuple[int, int]]:
    found = {each: place.numbers(_grid(each, repeat), each.block) for each in launches}
    return {each: numbers for each, numbers in found.items() if numbers}


def _launch(launch: BoundLaunch, watch: Watch | None, repeat: int) -> Iterator[str]:
    grid, signature = _grid(launch, repeat), launch.step.signature
    if watch is None:
        yield from (f"{launch.title}, grid {grid}", "  this launch has no such thread, or comes after the end", "")
        return
    block, thread = coordinates(watch.block, grid), coordinates(watch.thread, launch.block)
    yield f"{launch.title}, grid {grid}, block {block}, thread {thread}"
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
