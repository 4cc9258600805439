"""Run exhibits on the emulator: the bug has to be caught by its check, and the mend must not be accused."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.emulator.errors import Fault
from harness.emulator.launch import Module
from harness.emulator.memory import Buffer
from harness.emulator.schedule import ASCENDING, DESCENDING, Schedule
from harness.emulator.stream import Stream
from harness.emulator.tensor_elements import BITS
from harness.emulator.tensor_map import TensorMap
from harness.jit.nvrtc import build
from harness.studies.museum.exhibit import BYTES, FOLDER, HEADER, Array, Exhibit, Kernels, Map

OPTIONS = ("-std=c++17", "-ftz=false", "-fmad=false", "-lineinfo")
ORDERS = (ASCENDING, DESCENDING, Schedule(seed=0), Schedule(seed=1))


@dataclass(frozen=True)
class Finding:
    """What a run ended in. check: a kind of Fault or BYTES, empty for nothing; where: the line of the exhibit"""

    check: str = ""
    where: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class Shown:
    """seconds: of the bug, on the emulator, until it was found"""

    exhibit: Exhibit
    bug: Finding
    mend: Finding
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the bug was caught by its check, and the mend not accused."""
        return self.bug.check == self.exhibit.check and not self.mend.check


def show(exhibit: Exhibit) -> Shown:
    """Run both."""
    bug, mend = (compiled(exhibit, f"-DMENDED={int(mended)}") for mended in (False, True))
    start = time.perf_counter()
    found = find(exhibit, bug)
    seconds = time.perf_counter() - start
    return Shown(exhibit, found, find(exhibit, mend), seconds)


def compiled(kernels: Kernels, *options: str) -> Module:
    """PTX of the source, with these options beside those of all."""
    name = f"{kernels.name}.cu"
    sources = {name: kernels.source, HEADER: (FOLDER / HEADER).read_text()}
    return Module(build(name, sources, (), (*OPTIONS, *options, f"-arch={kernels.arch}")).ptx)


def find(kernels: Kernels, module: Module) -> Finding:
    """The first thing that is wrong in some order of blocks and warps."""
    for schedule in ORDERS:
        try:
            wrong = _run(kernels, module, schedule)
        except Fault as fault:
            return Finding(fault.kind, _own_line(kernels, fault), fault.sentence)
        if wrong:
            return Finding(BYTES, "", wrong)
    return Finding()


def _own_line(kernels: Kernels, fault: Fault) -> str:
    """The line of the kernel's own file where a fault is, though it may be in a function of the header."""
    text = f"{fault.where} {fault.sentence.rpartition('; ')[2]}"
    words = [word.rstrip(",") for word in text.split() if word.startswith(f"{kernels.name}.cu:")]
    return words[0] if words else fault.where


def _run(kernels: Kernels, module: Module, schedule: Schedule) -> str:
    """Run all launches; returns which bytes are wrong, or nothing. Raises Fault."""
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
            memory=list(buffers.values()),
        )  # fmt: skip
    for one, other in kernels.same:
        differ = np.flatnonzero(buffers[one].data != buffers[other].data)
        if differ.size:
            at = int(differ[0])
            is_, should = int(buffers[one].data[at]), int(buffers[other].data[at])
            return f"{differ.size} bytes of {one} are not those of {other}, byte {at} first: {is_}, not {should}"
    return ""


def map_of(found: Map, address: int) -> TensorMap:
    """The tensor map of a dense array."""
    width = BITS[found.kind] // 8
    strides = tuple(width * math.prod(found.extents[: i + 1]) for i in range(len(found.extents) - 1))
    return TensorMap(found.kind, address, found.extents, strides, found.box, (1,) * len(found.box))


def contents(array: Array) -> np.ndarray:
    """What an array holds before the launches."""
    data = np.zeros(array.size, np.uint8)
    if array.content in ("ramp", "inverse"):
        data[:] = np.arange(array.size, dtype=np.int64) % 251
        data ^= 0xFF if array.content == "inverse" else 0
    elif array.content in ("nan", "unwritten"):
        data[:] = 0xFF
    return data


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
