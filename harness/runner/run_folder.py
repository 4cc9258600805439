"""What a run leaves in its folder, read back: records from the journal, and what its times were measured with."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.files import ROOT
from harness.jit.compile import FLAGS
from harness.runner import journal
from harness.runner.records import Record, journal_lines, times_header, times_lines

BENCH_HEADER = "bench_header.json"
BENCH = "bench.jsonl"

Header = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """records: one a finished case; header: what the times were measured with, empty if the run timed nothing.

    about: the head of the journal: which sources, cases and device
    """

    path: Path
    records: list[Record]
    header: Header
    about: Header = field(default_factory=dict)

    @property
    def timed(self) -> list[Record]:
        """The records that carry times."""
        return [record for record in self.records if record.get("times")]


def read_run(run_dir: Path) -> RunFiles:
    """A run, finished or not. Raises UsageError if the folder holds none or a file of it cannot be read."""
    path = run_dir / journal.FILE
    # A line without its end was being written when the process died.
    whole = [line for line in _read(path).splitlines(keepends=True) if line.endswith(b"\n")]
    if not whole:
        raise UsageError(f"{path} holds no run: it has no finished line")
    about, records = journal_lines(path, whole)
    path = run_dir / BENCH_HEADER
    header = times_header(path, _read(path)) if path.exists() else {}
    if not header and any(record.get("times") for record in records):
        raise UsageError(f"{path} is missing, which says what the times of this run were measured with")
    return RunFiles(run_dir, records, header, about)


def read_bench(path: Path) -> tuple[Header, list[Record]]:
    """Header and timed records of a `bench.jsonl`. Raises UsageError if it cannot be read."""
    return times_lines(path, _read(path).splitlines())


def latest_bench(runs: Path) -> Path:
    """The run folder whose times are newest. Raises UsageError if no run there has any."""
    found = sorted(runs.glob(f"*/{BENCH_HEADER}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UsageError(f"no run in {runs} has times; make some with `make bench`, or name the run's folder")
    return found[-1].parent


def new_header(command: str, machine: dict[str, str], method: str, clock: str) -> Header:
    """What a record of times must say about itself; `roofline` and `floors_us` are filled while it runs."""
    return {
        "command": command,
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "edited": bool(_git("status", "--porcelain", "--", "harness", "suites")),
        "sources": journal.sources_digest()[:16],
        "date": now(),
        "machine": machine,
        "compile_flags": " ".join(FLAGS),
        "method": method,
        "clock": clock,
        "roofline": [],
        "floors_us": {},
    }


def gpu_folder(machine: dict[str, str]) -> str:
    """The name of a GPU as a folder is called: `nvidia-h200`. machine: a device's identity"""
    return re.sub(r"[^a-z0-9]+", "-", machine.get("gpu", "unknown").lower()).strip("-") or "unknown"


def new_folder() -> Path:
    """A folder of `results/runs` named by this second; it is not made."""
    return ROOT / "results" / "runs" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def now() -> str:
    """This second, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def shown(path: Path) -> str:
    """A path as a person would type it from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
