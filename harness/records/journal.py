"""The journal of a run: a line of JSON for each finished case, on disk at once, so that a killed run can resume."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

from harness.errors import UsageError
from harness.files import storage
from harness.records import seal
from harness.records.lines import journal_lines
from harness.records.records import Record

FILE = "journal.jsonl"
GOES_ON = "HARNESS_GOES_ON"  # environment variable: digest of the journal that the supervisor saw a process leave
_INSTEAD = "add --resume to go on with it, or name another --run-dir"


class Journal:
    """`<run_dir>/journal.jsonl`: a header (sources, cases, device), then a record a line.

    header: that of the file, which a resumed run's may differ from in what `_resume` lists
    """

    def __init__(self, run_dir: Path, header: Record, resume: bool, guest: bool = False):
        """Start a journal, or with `resume` go on with one. A file without a finished line counts as none.

        guest: the run has a subject, which can write any file of its user. Then no record of an earlier run counts, and
        all cases are run again, but for those of a process whose journal the supervisor digested when it had ended.

        Raises UsageError if there is one already, or none to resume; if its header differs, because records of other
        sources or another device must not count for this run; or if another process writes it. Raises StorageError if
        it cannot be written.
        """
        self.path, self.header, self._guest = run_dir / FILE, header, guest
        self.records: list[Record] = []
        self._written = hashlib.sha256()  # of all that this process read at the start or wrote itself
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

    def changed(self) -> str:
        """A sentence if the file is not what this process wrote; else an empty string."""
        if digest(self.path.parent) == self._written.hexdigest():
            return ""
        return self._was_changed()

    def _was_changed(self) -> str:
        return f"{self.path} was changed by another process while the run went on; start anew"

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
        may_differ = {"selected", "selection", "set", "shard", "sealed", "asked", "device_asked"}
        may_differ |= {"commit", "edited", "date", "command"}  # of the begin
        may_differ |= {"sources"} if sealed else set()
        changed = [key for key in header if key not in may_differ and header[key] != then.get(key)]
        if changed or sealed:
            raise UsageError(
                f"{self.path} cannot be resumed, because its {' and '.join(changed or ['sources'])} differ from this "
                f"run's{': ' + seal.listed(sealed) if sealed else ''}; start anew"
            )
        self.header = then
        # A process may have died for another reason than its case, so the case is run again.
        self.records = [record for record in records if not record.get("died")]
        if self._guest:
            lines = self._of_this_run(lines)
        self._written.update(b"".join(lines))

    def _of_this_run(self, lines: list[bytes]) -> list[bytes]:
        """The lines that count where a subject runs: all of a process that this one replaces; of an earlier run, only
        the header, and the others are cut off.
        """
        then = os.environ.get(GOES_ON, "")
        if then and hashlib.sha256(b"".join(lines)).hexdigest() != then:
            raise UsageError(self._was_changed())
        if then:
            return lines
        with storage(self.path):
            os.truncate(self._file.fileno(), len(lines[0]))
        self.records = []
        return lines[:1]

    def _write(self, record: Record) -> None:
        line = json.dumps(record, ensure_ascii=False).encode(errors="replace") + b"\n"
        with storage(self.path):
            whole = self._file.seek(0, os.SEEK_END)
            try:
                written = 0
                while written < len(line):
                    written += self._file.write(line[written:])
                os.fsync(self._file.fileno())
                self._written.update(line)
            except OSError:
                os.truncate(self._file.fileno(), whole)  # otherwise the next record would continue this line
                raise


def digest(run_dir: Path) -> str:
    """The digest of a folder's journal, also of one that is not there."""
    try:
        return hashlib.sha256((run_dir / FILE).read_bytes()).hexdigest()
    except OSError:
        return "gone"


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
