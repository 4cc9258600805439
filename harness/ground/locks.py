"""Locks between processes: one that is waited for says who holds it, and a file that is no lock is named."""

from __future__ import annotations

import pwd
import sys
import time
from pathlib import Path
from typing import Any

from filelock import AcquireReturnProxy, FileLock, Timeout

from harness.errors import StorageError

_TELL_AFTER, _TELL_EVERY = 10.0, 60.0  # seconds; most locks are held for less than the first


class NamedLock(FileLock):
    """A file's lock; entering it waits for as long as it is held, and says for whom.

    remedy: what to do about a file that cannot be opened
    """

    remedy = "remove it"

    @classmethod
    def of(cls, path: Path, mode: int, remedy: str) -> NamedLock:
        lock = cls(path, mode=mode)
        lock.remedy = remedy
        return lock

    def acquire(self, *words: Any, **options: Any) -> AcquireReturnProxy:
        """FileLock's `acquire`. Raises StorageError if the file cannot be opened, as if it is a folder or a link."""
        try:
            return super().acquire(*words, **options)
        except Timeout:
            raise
        except (OSError, NotImplementedError) as error:
            why = getattr(error, "strerror", None) or error
            raise StorageError(f"{self.lock_file} cannot be opened: {why}; {self.remedy}") from None

    def __enter__(self) -> NamedLock:
        """Raises StorageError."""
        since, patience = time.monotonic(), _TELL_AFTER
        while True:
            try:
                self.acquire(timeout=patience)
                return self
            except Timeout:
                tell_waiting(since, Path(self.lock_file))
                patience = _TELL_EVERY


def tell_waiting(since: float, *paths: Path) -> None:
    """Say on stderr since when this process waits for one of these locks, and who holds them."""
    waits = f"waiting for {' or '.join(map(str, paths))}, for {time.monotonic() - since:.0f} s by now"
    print(f"{waits}: held by {' and '.join(dict.fromkeys(map(holder, paths)))}", file=sys.stderr, flush=True)


def holder(path: Path, locks: Path = Path("/proc/locks")) -> str:
    """The holder of a file's lock, `process 12 of ann`; `another process` where the kernel does not say."""
    try:
        inode = path.stat().st_ino
        rows = [line.split() for line in locks.read_text().splitlines()]
        pid = next(int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].rpartition(":")[2] == str(inode))
        owner = Path(f"/proc/{pid}").stat().st_uid
    except (OSError, StopIteration, ValueError, IndexError):
        return "another process"
    try:
        return f"process {pid} of {pwd.getpwuid(owner).pw_name}"
    except KeyError:
        return f"process {pid} of user {owner}"
