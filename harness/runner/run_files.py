"""What a run leaves in its folder, read back: records from the journal, and what its times were measured with."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.compile import FLAGS
from harness.errors import UsageError
from harness.runner import journal
from harness.suite import ROOT

BENCH_HEADER = "bench_header.json"
BENCH = "bench.jsonl"

Record = dict[str, Any]
Header = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """records: one a finished case; header: what the times were measured with, empty if the run timed nothing."""

    path: Path
    records: list[Record]
    header: Header

    @property
    def timed(self) -> list[Record]:
        """The records that carry times."""
        return [record for record in self.records if record.get("times")]


def read_run(run_dir: Path) -> RunFiles:
    """A run, finished or not. Raises UsageError if the folder holds none or a file of it cannot be read."""
    lines = _read(run_dir / journal.FILE).splitlines(keepends=True)
    # A line without its end was being written when the process died.
    whole = [line for line in lines if line.endswith("\n")]
    records = _parse(run_dir / journal.FILE, whole)[1:]
    path = run_dir / BENCH_HEADER
    header = _parse(path, [path.read_text(encoding="utf-8")])[0] if path.exists() else {}
    return RunFiles(run_dir, records, header)


def read_bench(path: Path) -> tuple[Header, list[Record]]:
    """Header and timed records of a `bench.jsonl`. Raises UsageError if it cannot be read."""
    header, *records = _parse(path, _read(path).splitlines()) or [{}]
    return header, records


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


def now() -> str:
    """This second, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _parse(path: Path, lines: list[str]) -> list[Any]:
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise UsageError(f"{path} is not what a run writes: {error}") from None


def shown(path: Path) -> str:
    """A path as a person would type it from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
