"""The kernels and suites of another revision, in a separate folder."""

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
    commit = git(
        repository, f"--base {name} names no commit of this repository", "rev-parse", "--verify", "--quiet",
        "--end-of-options", f"{name}^{{commit}}",
    )  # fmt: skip
    archive = git(
        repository, f"--base {name} has no {' and no '.join(FOLDERS)}", "archive", "--format=tar",
        commit.decode().strip(), *FOLDERS,
    )  # fmt: skip
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return Revision(commit.decode().strip(), into)


def git(repository: Path, problem: str, *arguments: str) -> bytes:
    """Run git; its output. Raises UsageError that begins with `problem` and ends with git's message."""
    try:
        done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"{problem}: git cannot be run: {error}") from None
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"{problem}{f' (git: {message[0]})' if message else ''}")
    return done.stdout
