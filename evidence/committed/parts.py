"""A folder of tables: read and write its `tables.json`, even from several processes, and check files against it.

`results/` is such a folder, too, with its files where the catalogue puts them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.committed.catalogue import load
from evidence.committed.state import state
from harness.errors import UsageError
from harness.files import storage, write_text
from harness.records.run_folder import commit, shown

FILE = "tables.json"


@dataclass
class Making:
    """The content of a folder.

    state, commit: of the sources; gpu: folder name of the GPU, empty until one is there
    made: by table, when it was complete, in how many seconds, and its files' digests by path below the folder; older
    tables have no digests
    """

    folder: Path
    state: str
    commit: str
    gpu: str = ""
    made: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def left(self) -> list[str]:
        return [name for name in load()[0] if name not in self.made]

    def save(self, made: Mapping[str, dict[str, Any]] | None = None) -> None:
        """Write `tables.json` with these tables and the ones that other processes have added."""
        with held(self.folder / FILE):
            self.take()
            self.made |= made or {}
            write_text(self.folder / FILE, self.text())

    def take(self) -> None:
        """Take over the tables that other processes have made.

        Raises UsageError if they started again with another state or GPU.
        """
        there = read(self.folder)
        if there is None:
            return
        if there.state != self.state:
            raise UsageError(
                f"{self.folder} became one of state {there.state[:12]} while tables of {self.state[:12]} were made in "
                "it; name another --into"
            )
        if there.gpu and self.gpu and there.gpu != self.gpu:
            raise UsageError(f"the parts are of {there.gpu}, and this GPU is {self.gpu}; name another --into")
        self.gpu, self.made = self.gpu or there.gpu, there.made

    def text(self) -> str:
        about = {"state": self.state, "commit": self.commit, "gpu": self.gpu, "tables": self.made}
        return json.dumps(about, indent=1) + "\n"

    def altered(self, among_parts: bool) -> dict[str, list[str]]:
        """By table, what is wrong with its files; tables with unchanged files are left out.

        among_parts: whether each table's files are in a folder of its own, or where the catalogue puts them
        """
        found: dict[str, list[str]] = {}
        for name, entry in self.made.items():
            files = load()[0][name].files_of(self.gpu)
            there = [f"{name}/{source}" for source in files.values()] if among_parts else list(files)
            for path, known in (dict.fromkeys(there, "") | entry.get("files", {})).items():
                if why := problem(self.folder / path, known):
                    found.setdefault(name, []).append(f"{shown(self.folder / path)} {why}")
        return found


def begin(folder: Path) -> Making:
    """The folder's content, or a new one. Raises UsageError if it is of another state than this tree."""
    here, found = state(), read(folder)
    if found is None:
        folder.mkdir(parents=True, exist_ok=True)
        return Making(folder, here, commit())
    if found.state != here:
        raise UsageError(
            f"{folder} holds {len(found.made)} tables of state {found.state[:12]} (commit {found.commit[:12]}), and "
            f"this tree is of {here[:12]}; tables of two states are not mixed: check that out, or name another --into"
        )
    return found


def read(folder: Path) -> Making | None:
    """The content of a folder's `tables.json`, None without one. Raises UsageError if it is damaged."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        found = Making(folder, about["state"], about["commit"], about["gpu"], about["tables"])
        whole = all(isinstance(each, str) for each in (found.state, found.commit, found.gpu)) and all(
            isinstance(entry, dict)
            and isinstance(entry.get("files", {}), dict)
            and all(isinstance(digest, str) for digest in entry.get("files", {}).values())
            for entry in found.made.values()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise UsageError(f"{path} is not what `python -m evidence tables` writes; delete it and begin anew")
    unknown = [name for name in found.made if name not in load()[0]]
    if unknown:
        raise UsageError(
            f"{path} names the table '{unknown[0]}', which evidence/committed/catalogue.yaml has not; take it "
            "out there, or make the tables anew"
        )
    return found


@contextmanager
def held(path: Path, refusal: str = "") -> Iterator[None]:
    """Hold the lock beside a path, waiting for it; with `refusal`, raise that as a UsageError instead of waiting."""
    lock = path.with_name(f"{path.name}.lock")
    with storage(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("ab")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError:
            raise UsageError(refusal) from None
        except OSError:
            pass  # the file system has no locks
        yield


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def problem(path: Path, known: str) -> str:
    """Say what is wrong with a file; empty if nothing is. known: the digest it must have, empty for any content"""
    try:
        same = digest(path.read_bytes()) == known or not known
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    return "" if same else "is not what it was when its table was made"
