"""An account of a GPU's memory, shared by all processes of the harness that use it: large cases wait for room.

Each process has a file in a folder of the GPU, which it keeps locked for as long as it lives: an entry whose lock can
be had is that of a dead process, also of one that was killed. Entries are read and written under the GPU's lock. A case
within the share of its process reads and writes nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from harness.device.capability import CONTEXT
from harness.errors import NoDevice
from harness.files import storage_error
from harness.ground.locks import NamedLock
from harness.ground.seconds import WAITS

_FOLDER = Path("/tmp")  # noqa: S108 - not $TMPDIR: account and lock are shared by all users of the GPU
FIRST_PAUSE, PAUSE = 0.02, 0.5  # seconds between looks at the account; they grow from one to the other
PATIENCE = 5.0  # seconds that memory may be missing while no process has a reservation; one that ended frees its own


def gpu_lock(uuid: bytes, folder: Path = _FOLDER) -> NamedLock:
    """Held while a GPU is needed alone. uuid: of the GPU, the same whatever number CUDA_VISIBLE_DEVICES gives it"""
    return NamedLock.of(
        folder / f"nvfp4-harness-gpu-{uuid.hex()}.lock",
        0o666,
        "it is for all users of this GPU, so ask its owner to remove it",
    )


@dataclass
class Entry:
    """One process. Bytes, but for pid, ticket, contexts and known.

    share: what it may use and keep without asking; holds: reserved for its case
    ticket: its place in the queue, 0 if it does not wait; contexts: CUDA contexts, its own and that of a subject
    quiet: what was in use on the GPU before its reservation, when nobody had one; known: contexts that this includes
    """

    pid: int
    share: int
    contexts: int = 1
    ticket: int = 0
    holds: int = 0
    quiet: int = 0
    known: int = 0


class GpuMemory(Protocol):
    """The memory of a GPU as one process sees it."""

    def free(self) -> int:
        """Bytes that are free on the GPU."""

    def clear(self) -> None:
        """Free all that this process keeps between cases."""

    def release(self) -> None:
        """Free what the last case left in pools."""


class GpuAccount:
    """The account of one GPU, seen by one process; `account_of` makes it. total: bytes; folder: of all accounts"""

    def __init__(self, uuid: bytes, total: int, folder: Path = _FOLDER):
        self.total = total
        self._lock = gpu_lock(uuid, folder)
        self._folder = folder / f"nvfp4-harness-gpu-{uuid.hex()}.account"
        self._own = Entry(os.getpid(), 0)
        self._path: Path | None = None
        self._file = -1

    @property
    def holds(self) -> int:
        """Bytes that this process has reserved."""
        return self._own.holds

    def join(self, share: int, contexts: int = 1) -> None:
        """Enter this process, or change its share, in bytes."""
        if self._path is None or (share, contexts) != (self._own.share, self._own.contexts):
            self._own.share, self._own.contexts = share, contexts
            with self._lock:
                self._write()

    @contextmanager
    def hold(self, name: str, wants: int, least: int, memory: GpuMemory, alone: bool = False) -> Iterator[None]:
        """Wait for `wants` bytes, first come, first served, and hold them. A process has one reservation at a time.

        name: of the case; least: bytes that are enough where no process has a reservation. What this process and
            others of the harness keep for themselves may leave less; then the case is given that
        memory: of the GPU, of which this process frees what it keeps before it waits and afterwards
        alone: wait until no other process has a reservation
        Raises NoDevice if no process has a reservation and less than `least` is free, because of other programs, or
        whatever the reason for a case that is alone.
        """
        if self.holds:
            yield
            return
        memory.clear()
        try:
            with WAITS.waiting():
                self._wait(name, wants, least, memory.free, alone)
            yield
        finally:
            with suppress(RuntimeError):  # of a context that a kernel broke, whose process ends next
                memory.release()
            self._leave()

    def _wait(self, name: str, wants: int, least: int, free: Callable[[], int], alone: bool) -> None:
        pause, missing_since = FIRST_PAUSE, 0.0
        while True:
            with self._lock:
                others = self._others()
                if not self._own.ticket:
                    self._own.ticket = 1 + max((other.ticket for other in others), default=0)
                    self._write()
                held = [other for other in others if other.holds]
                first = not any(0 < other.ticket < self._own.ticket for other in others)
                there = free() if first and not (held and alone) else 0
                if there >= wants and wants <= self._room(others, held, there):
                    self._take(wants, others, held, there)
                    return
                if held or not first:
                    missing_since = 0.0
                elif not missing_since:
                    missing_since = time.monotonic()
                elif time.monotonic() - missing_since >= PATIENCE:
                    foreign = self._foreign(there, others)
                    if there < least and (alone or 0 < least - there <= foreign):
                        raise NoDevice(self._missing(name, least, there, others))
                    # Needs are estimates, and what others may use is counted twice where they use it already.
                    self._take(min(wants, there), others, held, there)
                    return
            time.sleep(pause)
            pause = min(1.5 * pause, PAUSE)

    def _room(self, others: Sequence[Entry], held: Sequence[Entry], there: int) -> int:
        """Bytes that nobody uses or was promised."""
        contexts = self._own.contexts + sum(other.contexts for other in others)
        if held:
            last = max(held, key=lambda other: other.quiet)
            quiet = last.quiet + max(0, contexts - last.known) * CONTEXT
        else:
            quiet = self.total - there
        return self.total - quiet - sum(other.share + other.holds for other in others)

    def _take(self, wants: int, others: Sequence[Entry], held: Sequence[Entry], there: int) -> None:
        own, last = self._own, max(held, key=lambda other: other.quiet, default=None)
        own.ticket, own.holds = 0, wants
        own.quiet = last.quiet if last else self.total - there
        own.known = last.known if last else own.contexts + sum(other.contexts for other in others)
        self._write()

    def _ours(self, others: Sequence[Entry]) -> int:
        """Bytes that processes of the harness may keep, without any reservation and without this one's pools."""
        return sum(entry.contexts * CONTEXT for entry in (self._own, *others)) + sum(other.share for other in others)

    def _foreign(self, there: int, others: Sequence[Entry]) -> int:
        """Bytes in use that no process of the harness can have, where none has a reservation."""
        return max(0, self.total - there - self._ours(others))

    def _missing(self, name: str, least: int, there: int, others: Sequence[Entry]) -> str:
        """Whose memory is missing. Others are blamed only for what no process of the harness can have."""
        foreign = self._foreign(there, others)
        says = f"{name} needs about {_gib(least)} of GPU memory, and {_gib(there)} of {_gib(self.total)} are free; "
        if there + foreign >= least:
            return (
                f"{says}about {_gib(foreign)} are held by programs that are not the harness's; end what else uses the "
                "GPU and run it again"
            )
        too = f", and other programs about {_gib(foreign)}" if foreign else ""
        return (
            f"{says}{1 + len(others)} processes of the harness on this GPU keep up to {_gib(self._ours(others))} for "
            f"themselves{too}; run it again with fewer, as with -n 1"
        )

    def _leave(self) -> None:
        self._own.ticket = self._own.holds = self._own.quiet = self._own.known = 0
        with self._lock:
            self._write()

    def _others(self) -> list[Entry]:
        """The entries of all other processes that live."""
        found = []
        for path in self._folder.glob("*.json") if self._folder.is_dir() else ():
            if path == self._path:  # closing another descriptor of it would unlock it
                continue
            entry = _of_a_living(path)
            if entry is not None:
                found.append(entry)
        return found

    def _write(self) -> None:
        try:
            if self._path is None:
                self._enter()
            text = json.dumps(asdict(self._own)).encode()
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))
        except OSError as error:
            raise storage_error(error.filename or self._folder, error) from None

    def _enter(self) -> None:
        with suppress(FileExistsError):
            self._folder.mkdir()
            self._folder.chmod(0o1777)
        if self._folder.is_symlink():
            raise NotADirectoryError(20, "a link, which leads elsewhere", str(self._folder))
        path = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.fchmod(self._file, 0o644)  # whatever the umask
        # Not `flock`, whose lock a forked process would share and keep.
        fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._path = path


@lru_cache(maxsize=64)
def account_of(uuid: bytes, total: int) -> GpuAccount:
    """The account of a GPU; one object for a process, which is one entry."""
    return GpuAccount(uuid, total)


def _of_a_living(path: Path) -> Entry | None:
    """The entry in a file; None, without the file, if its process ended, and None for what is no entry."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read(os.pread(file, 4096, 0))
    finally:
        os.close(file)
    with suppress(OSError):  # another user's, in a folder where only the owner removes a file
        path.unlink()
    return None


def _read(text: bytes) -> Entry | None:
    try:
        entry = Entry(**json.loads(text))
    except (ValueError, TypeError):
        return None
    return entry if all(type(value) is int and value >= 0 for value in asdict(entry).values()) else None


def _gib(size: int) -> str:
    return f"{size >> 30} GiB"
