"""The kernels and suites of another revision, as files in a folder of their own."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.files import ROOT

FOLDERS = ("harness/kernels", "suites")


@dataclass(frozen=True)
class Revision:
    """A commit's files. commit: 40 hex digits; root: the folder they lie in"""

    commit: str
    root: Path

    @property
    def kernels(self) -> Path:
        return self.root / FOLDERS[0]

    @property
    def suites(self) -> Path:
        return self.root / FOLDERS[1]


def fetch(name: str, into: Path, repository: Path = ROOT) -> Revision:
    """Write a revision's kernels and suites to the folder `into`, which is made; nothing in the repository changes.

    Raises UsageError for a name that is no commit, and for a commit without kernels or suites.
    """
    commit = _git(
        repository, f"--base {name} names no commit of this repository", "rev-parse", "--verify", "--quiet",
        "--end-of-options", f"{name}^{{commit}}",
    )  # fmt: skip
    archive = _git(
        repository, f"--base {name} has no {' and no '.join(FOLDERS)}", "archive", "--format=tar",
        commit.decode().strip(), *FOLDERS,
    )  # fmt: skip
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return Revision(commit.decode().strip(), into)


def _git(repository: Path, problem: str, *words: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"--base needs git: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"{problem}{f' (git: {said[0]})' if said else ''}")
    return done.stdout
