"""One lock for each GPU of a machine, for all processes and users."""

from __future__ import annotations

import pwd
import sys
import time
from pathlib import Path

from filelock import FileLock, Timeout

from harness.errors import StorageError

_FOLDER = Path("/tmp")  # noqa: S108 - not $TMPDIR, which users may have each their own of
_TELL_EVERY = 60.0  # seconds


class GpuLock(FileLock):
    """A file's lock; entering it waits for as long as it is held, and says for whom."""

    def __enter__(self) -> GpuLock:
        """Raises StorageError if the file cannot be opened."""
        since, patience = time.monotonic(), 0.0
        while True:
            try:
                self.acquire(timeout=patience)
                return self
            except Timeout:
                waited = f", for {time.monotonic() - since:.0f} s by now" if patience else ""
                told = f"waiting for {self.lock_file}{waited}: {holder(Path(self.lock_file))} uses this GPU alone"
                print(told, file=sys.stderr, flush=True)
                patience = _TELL_EVERY
            except OSError as error:
                why = f"{self.lock_file} cannot be opened: {error.strerror or error}"
                raise StorageError(f"{why}; it is for all users of this GPU, so ask its owner to remove it") from None


def gpu_lock(uuid: bytes, folder: Path = _FOLDER) -> GpuLock:
    """Held while a GPU is needed alone. uuid: of the GPU, the same whatever number CUDA_VISIBLE_DEVICES gives it"""
    return GpuLock(folder / f"nvfp4-harness-gpu-{uuid.hex()}.lock", mode=0o666)


def holder(path: Path, locks: Path = Path("/proc/locks")) -> str:
    """Who holds a file's lock, `process 12 of ann`; `another process` where the kernel does not say."""
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
