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
    others: the tables of other kinds of GPU in `results/`: folder name → state, commit and tables
    kept: tables that stay as they are in `results/`, as `made`
    made: by table, when it was complete, in how many seconds, and its files' digests by path below the folder; older
    tables have no digests
    """

    folder: Path
    state: str
    commit: str
    gpu: str = ""
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def left(self) -> list[str]:
        return [name for name in load()[0] if name not in self.made and name not in self.kept]

    def keep(self, results: Path) -> None:
        """Leave tables that are of no GPU as they are in `results/`, if another kind of GPU made them of this state.

        So a second kind of GPU makes its own tables alone.
        """
        there = replaced(results)
        if there and self.gpu and there.state == self.state and there.gpu not in ("", self.gpu):
            gone = there.altered(among_parts=False)
            whole = (name for name, table in load()[0].items() if not table.of_a_gpu and name not in gone)
            self.kept = {name: there.made[name] for name in whole if name in there.made and name not in self.made}

    def beside(self) -> list[Making]:
        """The tables of the other kinds of GPU, each with its state."""
        return [
            Making(self.folder, each["state"], each["commit"], gpu, each["tables"]) for gpu, each in self.others.items()
        ]

    def beside_new(self, gpu: str) -> dict[str, dict[str, Any]]:
        """`others` of a folder into which tables of this GPU come: all but its own."""
        own = {name: entry for name, entry in self.made.items() if load()[0][name].of_a_gpu}
        all_of_them = self.others | {self.gpu: {"state": self.state, "commit": self.commit, "tables": own}}
        return {name: each for name, each in all_of_them.items() if name and name != gpu}

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
        about |= {name: value for name in ("others", "kept") if (value := getattr(self, name))}
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


def replaced(results: Path) -> Making | None:
    """The `tables.json` of `results/`; None if there is none or a damaged one, which an install replaces."""
    try:
        return read(results)
    except UsageError:
        return None


def read(folder: Path) -> Making | None:
    """The content of a folder's `tables.json`, None without one. Raises UsageError if it is damaged."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        more = [about.get(name, {}) for name in ("others", "kept")]
        found = Making(folder, about["state"], about["commit"], about["gpu"], about["tables"], *more)
        every = [found, *found.beside()]
        whole = all(isinstance(each, str) for one in every for each in (one.state, one.commit, one.gpu)) and all(
            isinstance(entry, dict)
            and isinstance(entry.get("files", {}), dict)
            and all(isinstance(digest, str) for digest in entry.get("files", {}).values())
            for one in every
            for entry in (*one.made.values(), *one.kept.values())
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise UsageError(f"{path} is not what `python -m evidence tables` writes; delete it and begin anew")
    named = [name for one in (found, *found.beside()) for name in (*one.made, *one.kept)]
    unknown = [name for name in named if name not in load()[0]]
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
