"""Measure the harness's own speed: commands in seconds, the emulator by its rate, and compare both with goals."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.device.emulator import EmulatorDevice
from harness.device.select import select
from harness.errors import DeviceUnavailable, HarnessError, UsageError
from harness.expected.expected import fields_of, make_inputs
from harness.files import ROOT
from harness.report.tables import markdown
from harness.suite.suite import find_case, load_suites

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as set in the Makefile
EMULATED = 1.0  # seconds of repeated runs on the emulator, of which the fastest counts; commands run once
RATE = "M lane-instructions/s"


@dataclass(frozen=True)
class SpeedGoal:
    """One thing that a user waits for.

    goal: seconds at most, or millions of lane-instructions per second at least
    command: the command to run; empty for a case on the emulator
    case: its id; its checks are on, and it has one core
    start: `filled` caches, so it is run twice and the second time counts; `empty` ones, in this checkout; or a `clone`
    gpu: whether it needs a GPU
    """

    name: str
    what: str
    goal: float
    command: str = ""
    case: str = ""
    start: str = "filled"
    gpu: bool = False

    @property
    def unit(self) -> str:
        return RATE if self.case else "s"


def rows() -> tuple[SpeedGoal, ...]:
    """The table's rows. Commands use the running Python, except in a clone, which makes its own environment."""
    this = f"VENV= PYTHON={sys.executable}"
    recipes = " ".join(suite.recipe for suite in load_suites() if not suite.file.gemm)
    cores = os.cpu_count() or 1
    full = f"make verify R='{recipes}' SET=full DEVICE=cuda JOBS={max(cores - 1, 1)} {this}"
    return (
        SpeedGoal("first", "the first set", 120, f"make verify DEVICE=emulator {this}", start="empty"),
        SpeedGoal("smoke", "the smoke sets", 110, f"make verify SET=smoke DEVICE=emulator {this}"),
        SpeedGoal("verify", "the first set and its environment, from a fresh clone", 200, "make verify", start="clone"),
        SpeedGoal("compile", "compile of every instantiation", 180, f"make compile {this}", start="empty"),
        SpeedGoal("test", "tests of the harness", 420, f"make test {this}"),
        SpeedGoal("ci", "all that a change must pass, from a fresh clone", 900, ".ci/run", start="clone"),
        SpeedGoal("emulator-small", "emulator, both directions", 90, case="per_tensor/default/48x80/normal/eager"),
        SpeedGoal("emulator-large", "emulator, both directions", 400, case="per_tensor/default/512x1024/normal/eager"),
        SpeedGoal("emulator-gemm", "emulator, a product", 100, case="gemm/default/64x256x256/normal/eager"),
        SpeedGoal("full", "full sets of the quantizers on one GPU", 60, full, gpu=True),
    )


@dataclass(frozen=True)
class Measured:
    """A row's measurement.

    value: in the row's unit; cpu_s: of all its processes; cache_mb: size of kernels, if it made any
    """

    name: str
    what: str
    command: str
    start: str
    goal: float
    unit: str
    value: float
    cpu_s: float
    cache_mb: float | None = None

    @property
    def holds(self) -> bool:
        return self.value >= self.goal if self.unit == RATE else self.value <= self.goal

    def times_slower(self, other: Measured) -> float:
        """The slowdown relative to another measurement of the same row."""
        return other.value / self.value if self.unit == RATE else self.value / other.value


def possible(row: SpeedGoal) -> bool:
    """Whether this machine can run the row."""
    try:
        return not row.gpu or select("cuda").name == "cuda"
    except DeviceUnavailable:
        return False


def measure(row: SpeedGoal) -> Measured:
    """Run a row. Raises HarnessError with the end of its output if its command fails."""
    if row.case:
        return _measured(row, *emulate(row.case))
    with tempfile.TemporaryDirectory() as folder:
        cwd, cache = ROOT, Path(folder, "cache")
        if row.start == "clone":
            cwd = Path(folder, "clone")
            run(f"git clone --quiet {ROOT} {cwd}", ROOT)
        if row.start == "filled":
            run(row.command, cwd)
            return _measured(row, *run(row.command, cwd))
        taken = run(row.command, cwd, {"HARNESS_CACHE": str(cache)})
        return _measured(row, *taken, cache_mb=sum(path.stat().st_size for path in cache.rglob("*")) / 1e6)


def run(command: str, cwd: Path, extra: Mapping[str, str] | None = None) -> tuple[float, float]:
    """Wall seconds and CPU seconds of a command. Raises HarnessError if it fails."""
    before, began = _cpu(), time.perf_counter()
    done = subprocess.run(
        ["bash", "-c", command], cwd=cwd, env={**os.environ, **ENVIRONMENT, **(extra or {})},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    if done.returncode:
        raise HarnessError(f"`{command}` failed with {done.returncode}, so it has no time:\n{done.stdout[-2000:]}")
    return time.perf_counter() - began, _cpu() - before


def emulate(case_id: str) -> tuple[float, float]:
    """Lane-instructions of a case per microsecond of one core, on the emulator's first target, and the CPU seconds."""
    case, device = find_case(case_id), EmulatorDevice()
    program = device.prepare(case, device.targets[0], make_inputs(case), fields_of(case))
    program.run(0, 0)  # decodes kernels, so it is not timed
    rates, spent = [], 0.0
    while spent < EMULATED:
        before, began = program.lane_instructions, time.process_time()
        program.run(0, 0)
        took = time.process_time() - began
        rates.append((program.lane_instructions - before) / took / 1e6)
        spent += took
    return max(rates), spent


def machine() -> dict[str, Any]:
    """The facts that two measurements must share to be comparable."""
    return {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}


def lines(header: Mapping[str, Any], found: Sequence[Measured]) -> str:
    """The content of `speed.jsonl`."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (header, *map(asdict, found)))


def read(path: Path) -> tuple[dict[str, Any], dict[str, Measured]]:
    """The header of a `speed.jsonl` and its rows by name. Raises UsageError."""
    try:
        header, *found = map(json.loads, path.read_text().splitlines())
        return header["machine"], {line["name"]: Measured(**line) for line in found}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is not what `python -m evidence speed` writes: {error}") from None


def table(found: Sequence[Measured]) -> pd.DataFrame:
    """The table for display: what, by which command, and how long it took."""
    cells = [
        (one.what, one.command, one.start, f"{one.value:,.1f} {one.unit}", f"{one.goal:g}", round(one.cpu_s, 1),
         "" if one.cache_mb is None else f"{one.cache_mb:,.0f}", "holds" if one.holds else "missed")
        for one in found
    ]  # fmt: skip
    return pd.DataFrame(cells, columns=["what", "command", "caches", "is", "goal", "CPU s", "cache MB", ""])


def page(header: Mapping[str, Any], found: Sequence[Measured]) -> str:
    """The content of `speed.md`."""
    facts = header["machine"] | {name: value for name, value in header.items() if name != "machine"}
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    title = "# What the harness makes one wait\n\n`python -m evidence speed` made this table."
    return f"{title}\n\n{listed}\n\n{markdown(table(found))}\n"


def _measured(row: SpeedGoal, value: float, cpu_s: float, cache_mb: float | None = None) -> Measured:
    command = (row.command or row.case).replace(sys.executable, "python")
    return Measured(
        row.name, row.what, command, row.start if row.command else "checks on, one core", row.goal, row.unit,
        round(value, 2), round(cpu_s, 2), None if cache_mb is None else round(cache_mb, 1),
    )  # fmt: skip


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return found[0] if found else platform.machine()
