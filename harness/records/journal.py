"""The journal of a run: a line of JSON for each finished case, on disk at once, so that a killed run can resume."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from harness.errors import UsageError
from harness.files import storage
from harness.records import seal
from harness.records.lines import journal_lines
from harness.records.records import Record

FILE = "journal.jsonl"
_INSTEAD = "add --resume to go on with it, or name another --run-dir"


class Journal:
    """`<run_dir>/journal.jsonl`: a header (sources, cases, device), then a record a line."""

    def __init__(self, run_dir: Path, header: Record, resume: bool):
        """Start a journal, or with `resume` go on with one. A file without a finished line counts as none.

        Raises UsageError if there is one already, or none to resume; if its header differs, because records of other
        sources or another device must not count for this run; or if another process writes it. Raises StorageError if
        it cannot be written.
        """
        self.path = run_dir / FILE
        self.records: list[Record] = []
        if resume and not self.path.exists():
            raise UsageError(f"there is nothing to resume: {self.path} does not exist yet")
        with storage(self.path):
            run_dir.mkdir(parents=True, exist_ok=True)
            # Unbuffered, so that closing the file does not write again what a full disk refused.
            self._file = self.path.open("a+b", buffering=0)
        try:
            self._begin(header, resume)
        except BaseException:
            self.close()
            raise

    def append(self, record: Record) -> None:
        """Add one finished case; it is on disk when this returns. Raises StorageError."""
        self.records.append(record)
        self._write(record)

    def close(self) -> None:
        self._file.close()

    def _begin(self, header: Record, resume: bool) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{self.path} is written by another run; wait for it, or name another folder") from None
        except OSError:
            pass  # the file system has no locks
        kept = self._finished_lines()
        if not kept:
            self._write(header)
        elif resume:
            self._resume(header, kept)
        else:
            raise _begun(self.path.parent)

    def _finished_lines(self) -> list[bytes]:
        """Every line with an end. A last one without it, which a process died in the middle of, is cut off."""
        with storage(self.path):
            self._file.seek(0)
            lines = self._file.read().splitlines(keepends=True)
            if lines and not lines[-1].endswith(b"\n"):
                os.truncate(self._file.fileno(), sum(map(len, lines[:-1])))
                lines.pop()
        return lines

    def _resume(self, header: Record, lines: list[bytes]) -> None:
        then, records = journal_lines(self.path, lines)
        sealed = seal.changed(then.get("sealed", {}), header.get("sealed", {}))
        # Do not report fields that repeat others: the digest of cases covers number, set and shard, and seals are
        # listed. A run may go on from another folder.
        told = {
            "selected",
            "selection",
            "set",
            "shard",
            "sealed",
            "asked",
            "device_asked",
            *(("sources",) if sealed else ()),
        }
        changed = [key for key in header if key not in told and header[key] != then.get(key)]
        if changed or sealed:
            raise UsageError(
                f"{self.path} cannot be resumed, because its {' and '.join(changed or ['sources'])} differ from this "
                f"run's{': ' + seal.listed(sealed) if sealed else ''}; start anew"
            )
        # A process may have died for another reason than its case, so the case is run again.
        self.records = [record for record in records if not record.get("died")]

    def _write(self, record: Record) -> None:
        line = json.dumps(record, ensure_ascii=False).encode(errors="replace") + b"\n"
        with storage(self.path):
            whole = self._file.seek(0, os.SEEK_END)
            try:
                written = 0
                while written < len(line):
                    written += self._file.write(line[written:])
                os.fsync(self._file.fileno())
            except OSError:
                os.truncate(self._file.fileno(), whole)  # otherwise the next record would continue this line
                raise


def refuse_begun(run_dir: Path, instead: str = _INSTEAD) -> None:
    """Raise UsageError if a folder holds a journal with a finished line. instead: what to do"""
    try:
        begun = b"\n" in (run_dir / FILE).read_bytes()
    except OSError:
        return
    if begun:
        raise _begun(run_dir, instead)


def _begun(run_dir: Path, instead: str = _INSTEAD) -> UsageError:
    return UsageError(f"{run_dir} already holds a run; {instead}")


def latest_run(runs: Path) -> Path:
    """The newest run folder with a journal. Raises UsageError if there is none."""
    found = sorted(path.parent for path in runs.glob(f"*/{FILE}"))
    if not found:
        raise UsageError(f"there is nothing to resume: no run in {runs} has a {FILE}")
    return found[-1]
