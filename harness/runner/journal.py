"""The journal of a run: one line of JSON per finished case, on disk at once, so that a killed run can resume."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.suite import ROOT

FILE = "journal.jsonl"
Record = dict[str, Any]


def sources_digest() -> str:
    """A digest of everything that decides verdicts: the harness, its kernels and its suites."""
    digest = hashlib.sha256()
    for folder, suffixes in (("harness", {".py", ".cu", ".cuh"}), ("suites", {".yaml"})):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


class Journal:
    """Appends records to `<run_dir>/journal.jsonl`. The first line tells which sources, set and device it is about."""

    def __init__(self, run_dir: Path, header: Record, resume: bool):
        """Start a journal, or take one up again.

        Raises UsageError if there is one already and `resume` is not asked for, if there is none to resume, or if its
        header differs: records of other sources or another device must not count for this run.
        """
        self.path = run_dir / FILE
        self.records: list[Record] = []
        if not resume and self.path.exists():
            raise UsageError(f"{run_dir} already holds a run; add --resume to go on with it, or name another --run-dir")
        if resume:
            self._take_up(header)
        run_dir.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", encoding="utf-8")
        if not resume:
            self._write(header)

    def append(self, record: Record) -> None:
        """Add one finished case; it is on disk when this returns."""
        self.records.append(record)
        self._write(record)

    def close(self) -> None:
        """Close the file; the journal stays readable."""
        self._file.close()

    def _write(self, record: Record) -> None:
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _take_up(self, header: Record) -> None:
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            # The process died in the middle of this line, so its case is not done.
            os.truncate(self.path, self.path.stat().st_size - len(lines.pop()))
        if not lines:
            raise UsageError(f"there is nothing to resume: {self.path} does not exist or holds no finished line")
        then, *self.records = map(json.loads, lines)
        changed = [key for key in header if header[key] != then.get(key)]
        if changed:
            raise UsageError(
                f"{self.path} cannot be resumed, because its {' and '.join(changed)} differ from this run's; start anew"
            )


def latest_run(runs: Path) -> Path:
    """The newest run folder with a journal. Raises UsageError if there is none."""
    found = sorted(path.parent for path in runs.glob(f"*/{FILE}"))
    if not found:
        raise UsageError(f"there is nothing to resume: no run in {runs} has a {FILE}")
    return found[-1]
