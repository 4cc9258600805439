"""Run exhibits on the emulator: the bug has to be caught by its check, and the mend must not be accused."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from evidence.museum.exhibit import BYTES, OPTIONS, Exhibit, Kernels, contents, headers, map_of
from harness.jit.nvrtc import build
from harness.report.tables import markdown, write_table
from ptx_emulator.errors import Fault
from ptx_emulator.launches import Module
from ptx_emulator.memory import Buffer
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule
from ptx_emulator.stream import Stream

ORDERS = (ASCENDING, DESCENDING, Schedule(seed=0), Schedule(seed=1))


@dataclass(frozen=True)
class Finding:
    """The outcome of a run.

    check: a kind of Fault or BYTES, empty if nothing is wrong; where: the line of the exhibit
    """

    check: str = ""
    where: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class Shown:
    """The outcomes of a bug and its mend. seconds: until the emulator found the bug"""

    exhibit: Exhibit
    bug: Finding
    mend: Finding
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the bug was caught by its check, and the mend not accused."""
        return self.bug.check == self.exhibit.check and not self.mend.check


def show(exhibit: Exhibit) -> Shown:
    """Run the bug and the mend."""
    bug, mend = (compiled(exhibit, f"-DMENDED={int(mended)}") for mended in (False, True))
    start = time.perf_counter()
    found = find(exhibit, bug)
    seconds = time.perf_counter() - start
    return Shown(exhibit, found, find(exhibit, mend), seconds)


def compiled(kernels: Kernels, *options: str) -> Module:
    """Compile the source to PTX, with these options in addition to the common ones."""
    name = f"{kernels.name}.cu"
    sources = {name: kernels.source, **headers()}
    return Module(build(name, sources, (), (*OPTIONS, *options, f"-arch={kernels.arch}")).ptx)


def find(kernels: Kernels, module: Module, strict: Collection[str] = ()) -> Finding:
    """The first thing that is wrong in some order of blocks and warps. strict: as for `ptx_emulator.launch`"""
    for schedule in ORDERS:
        try:
            wrong = _run(kernels, module, schedule, strict)
        except Fault as fault:
            return Finding(fault.kind, _own_line(kernels, fault), fault.sentence)
        if wrong:
            return Finding(BYTES, "", wrong)
    return Finding()


def _own_line(kernels: Kernels, fault: Fault) -> str:
    """The line of the kernel's own file for a fault, which may be in a function of a header."""
    text = f"{fault.where} {fault.sentence.rpartition('; ')[2]}"
    words = [word.rstrip(",") for word in text.split() if word.startswith(f"{kernels.name}.cu:")]
    return words[0] if words else fault.where


def _run(kernels: Kernels, module: Module, schedule: Schedule, strict: Collection[str]) -> str:
    """Run all launches; returns a sentence on wrong bytes, or an empty text. Raises Fault."""
    buffers = {
        name: Buffer(name, contents(array), initialised=array.content != "unwritten")
        for name, array in kernels.arrays.items()
    }
    arguments: dict[str, Buffer | bytes] = dict(buffers)
    for each in kernels.maps.values():
        arguments[each.name] = map_of(each, buffers[each.array].address).encode()
    stream = Stream()
    for each in kernels.launches:
        given = [arguments[name] if name in arguments else int(name) for name in each.arguments]
        stream.launch(
            module, each.kernel, (each.grid, 1, 1), (each.block, 1, 1), given, early=each.early, schedule=schedule,
            memory=list(buffers.values()), strict=strict,
        )  # fmt: skip
    stream.end()
    for one, other in kernels.same:
        differ = np.flatnonzero(buffers[one].data != buffers[other].data)
        if differ.size:
            at = int(differ[0])
            is_, should = int(buffers[one].data[at]), int(buffers[other].data[at])
            return f"{differ.size} bytes of {one} are not those of {other}, byte {at} first: {is_}, not {should}"
    return ""


def table(shown: list[Shown]) -> pd.DataFrame:
    """One row for each exhibit."""
    return pd.DataFrame(
        {
            "thread": each.exhibit.thread,
            "story": each.exhibit.story,
            "check": each.exhibit.check,
            "caught by": each.bug.check or "nothing",
            "line": each.bug.where,
            "seconds": round(each.seconds, 2),
            "mend": each.mend.check or "not accused",
        }
        for each in shown
    )


def write(command: str, rows: pd.DataFrame, gpu: str, folder: Path) -> list[Path]:
    """Write museum.md and museum.csv; their paths. command: that made them; gpu: where a sanitizer ran, if one did"""
    beside = f" Beside them stands what compute-sanitizer says of the same kernels on {gpu}." if gpu else ""
    text = [
        "# The museum",
        "Bugs that people met, each written again as small as possible, on the emulator; each is caught by the check "
        f"that it names, and its mend by none.{beside} Made by `{command}`.",
        markdown(rows),
    ]
    return write_table(folder, "museum", rows, text)
