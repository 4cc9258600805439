"""A run's folder: where it lies, and what is read back from its journal and its header of times."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import StorageError, UsageError
from harness.files import INSTALLED, RESULTS, ROOT, storage
from harness.jit.compile import FLAGS
from harness.records import journal
from harness.records.claims import unmeasured
from harness.records.lines import is_gate, journal_lines, one, times_lines
from harness.records.records import Record, TimesHeader
from harness.records.seal import sources_digest, trees
from harness.text import one_line, printable

RUNS = RESULTS / "runs"
BENCH_HEADER = "bench_header.json"
BENCH = "bench.jsonl"
_DATE = "%Y-%m-%dT%H:%M:%SZ"
EVENTS = "events"  # key of floors_us: the time between two events with nothing between them, a part of every eager time

Header = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """The files of a run, read.

    records: one for each finished case
    header: how its times were measured, empty if it timed nothing
    about: the first line of the journal: which sources, cases and device
    """

    path: Path
    records: list[Record]
    header: Header
    about: Header = field(default_factory=dict)

    @property
    def timed(self) -> list[Record]:
        return [record for record in self.records if record.get("times")]


def read_run(run_dir: Path) -> RunFiles:
    """Read a run, finished or not. Raises UsageError if the folder holds none or one of its files is damaged."""
    path = run_dir / journal.FILE
    # A last line without an end was being written when the process died.
    whole = [line for line in _read(path).splitlines(keepends=True) if line.endswith(b"\n")]
    if not whole:
        raise UsageError(f"{path} holds no run: it has no finished line")
    about, records = journal_lines(path, whole)
    path = run_dir / BENCH_HEADER
    header = one(path, _read(path), TimesHeader) if path.exists() else {}
    if problem := _other_machine(about.get("device", {}), header.get("machine", {})):
        raise UsageError(f"{path} is not what a run writes: {problem}")
    if not header and any(record.get("times") for record in records):
        raise UsageError(f"{path} is missing, which says what the times of this run were measured with")
    for record in records:
        if record.get("times") and (problem := unmeasured(record["times"], header)):
            raise UsageError(f"{path} is not what a run writes: {record['case_id']}: {problem}")
    return RunFiles(run_dir, records, header, about)


def _other_machine(device: dict[str, str], machine: dict[str, str]) -> str:
    """A sentence on how a header's machine differs from the journal's device, or an empty string."""
    if not device or not machine:
        return ""
    named = {key: one_line(value) for key, value in device.items()}
    # Without `device`, which earlier headers lack; the journal's is compared with every record's.
    for key in sorted({*named, *machine} - {"device"}):
        if named.get(key) != machine.get(key):
            ours, theirs = (repr(of[key]) if key in of else "missing" for of in (machine, named))
            return f"machine.{key} is {ours}, and in the journal's device it is {theirs}; take both of one run"
    return ""


def read_bench(path: Path) -> tuple[Header, list[Record]]:
    """Header and timed records of a `bench.jsonl`. Raises UsageError if it cannot be read, or is a gate's."""
    header, records = read_bench_or_gate(path)
    if is_gate(header):
        raise UsageError(f"{path} is of a gate against {header['base']}, and times of a bench are wanted")
    return header, records


def read_bench_or_gate(path: Path) -> tuple[Header, list[Record]]:
    """Header and lines of a `bench.jsonl`, or of a `gate.jsonl`, finished or not. Raises UsageError if it cannot be
    read.
    """
    return times_lines(path, _read(path).splitlines(keepends=True))


def newest_run(runs: Path, timed: bool = False) -> Path:
    """The folder of the newest run, or of the newest with times. Raises UsageError if there is none."""
    found = [path.parent for path in runs.glob(f"*/{BENCH_HEADER if timed else journal.FILE}")]
    if not found:
        what, verb = ("has times", "bench") if timed else (f"has a {journal.FILE}", "verify")
        raise UsageError(f"no run in {runs} {what}; make one with `harness {verb}`, or name the run's folder")
    return max(found, key=_age)


def _age(folder: Path) -> tuple[str, int, Path]:
    """When a run began, because copying a folder changes file times; when it ended, where its journal lacks that.

    A merged run is as new as its newest shard, and has the rooflines of all shards.
    """
    path = folder / BENCH_HEADER
    if path.exists():
        header = one(path, _read(path), TimesHeader)
        return header["date"], len(header["roofline"]), folder
    ended = datetime.fromtimestamp((folder / journal.FILE).stat().st_mtime, UTC)
    return _began(folder / journal.FILE) or ended.strftime(_DATE), 0, folder


def _began(path: Path) -> str:
    """The date in a journal's first line; empty if it has none, or cannot be read, which the run's reader will say."""
    with suppress(ValueError), path.open(encoding="utf-8") as lines:
        first = json.loads(lines.readline())
        return str(first.get("date", "")) if isinstance(first, dict) else ""
    return ""


def new_header(command: str, machine: dict[str, str], method: str, clock: str) -> Header:
    """How times are measured; `roofline` and `floors_us` are filled in as the run goes on."""
    return {
        **begun(command),
        "sources": sources_digest()[:16],
        "machine": {key: one_line(value) for key, value in machine.items()},
        "compile_flags": " ".join(FLAGS),
        "method": method,
        "clock": clock,
        "roofline": [],
        "floors_us": {},
    }


def begun(command: str) -> Header:
    """The origin of a run that begins now: the command, the commit of this tree, and the time."""
    return {"command": one_line(command), "commit": commit(), "edited": edited(), "date": now()}


def gpu_folder(machine: dict[str, str]) -> str:
    """The folder name for a GPU, such as `nvidia-h200`. machine: a device's identity"""
    return re.sub(r"[^a-z0-9]+", "-", machine.get("gpu", "unknown").lower()).strip("-") or "unknown"


def new_folder(prefix: str = "", runs: Path = RUNS) -> Path:
    """Make a folder of runs named by the time, in UTC, and a number if another run began in the same second."""
    name = f"{prefix}{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    for ending in ("", *(f".{number:03}" for number in range(2, 1000))):
        path = runs / f"{name}{ending}"
        with storage(path):
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            return path
    raise StorageError(f"{runs} has a thousand runs of this second; name one with --run-dir")


def commit() -> str:
    """The commit that is checked out, or `unknown`."""
    return _git("rev-parse", "HEAD") or "unknown"


def same_sources(then: str) -> bool:
    """Whether no file that times depend on differs between a commit and this tree's commit."""
    if then == commit():
        return True
    return _quiet("diff", "--quiet", then, "HEAD", "--", *_trees())


def now_here(header: Header) -> Header:
    """The commit for a header without one, or whose tree was edited: this tree's commit, if the sources are the same.

    A machine that only runs kernels may have no git, or a checkout that is behind the files copied onto it.
    """
    named = header["commit"] != "unknown" and not header["edited"]
    if named or header["sources"] != sources_digest()[:16]:
        return {}
    return {"commit": commit(), "edited": edited()}


def edited() -> bool:
    """Whether the tree's sources differ from its commit."""
    return bool(_git("status", "--porcelain", "--", *_trees()))


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime(_DATE)


def _trees() -> list[str]:
    """The folders of a checkout that decide verdicts."""
    return [name for name, *_ in trees()]


def _git(*words: str) -> str:
    if INSTALLED:
        return ""  # a repository around an installed package is not the harness's
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _quiet(*words: str) -> bool:
    """Whether the git command succeeds."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def shown(path: Path) -> str:
    """A path as a person would type it in this folder."""
    here = Path.cwd()
    return printable(str(path.relative_to(here) if path.is_relative_to(here) else path))
