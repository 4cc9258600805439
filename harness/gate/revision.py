"""The kernels and suites of another revision: fetched into a folder, and where the compiler would see a difference."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from harness.contract.case import Case
from harness.errors import HarnessError, UsageError
from harness.files import ROOT
from harness.ground.side_by_side import process_pool
from harness.jit.compile import key_of
from harness.suite.instantiations import Job
from harness.suite.launch_plan import Step, all_steps

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


class Side(Protocol):
    """The part of a device that identifies the sources it runs."""

    kernels: Path
    suites: Path | None
    targets: tuple[str, ...]


def same_sources(case: Case, head: Side, base: Side) -> bool:
    """Whether both sides have the same launches from the same sources, so that nothing needs to be compiled."""
    try:
        return _launched(case, head) == _launched(case, base)
    except HarnessError:
        return False


def same_arguments(head: Iterable[Step], base: Iterable[Step]) -> bool:
    """Whether both sides give their launches the same memory, of the same size and in the same order.

    Machine code does not show this: parameters are bound by name, and the suite sets the size of scratch.
    """
    return list(map(_arguments, head)) == list(map(_arguments, base))


def compile_changed(cases: Iterable[Case], head: Side, base: Side, processes: int = 0) -> list[str]:
    """Compile every instantiation that only one side has into the cache, in parallel; return their keys.

    Instantiations of both sides have the same machine code, and are compiled only when a case that differs needs them.
    processes: as many as there are cores, if 0. An error of the compiler is left to the case that meets it.
    """
    sides = [_jobs(cases, side) for side in (head, base)]
    jobs = {key: job for side in sides for key, job in side.items() if not all(key in each for each in sides)}
    count = min(processes or os.cpu_count() or 1, len(jobs))
    if count > 1:
        with process_pool(count, "spawn") as pool:
            for task in [pool.submit(_compile, job) for job in jobs.values()]:
                task.result()
    return list(jobs)


def _launched(case: Case, side: Side) -> list[tuple[object, ...]]:
    """All launches of a case, fit or not, as far as the sources decide them."""
    return [
        (step.library or key_of(step.signature, step.flags, side.targets[0]), *_arguments(step))
        for step in _steps(case, side)
    ]


def _arguments(step: Step) -> tuple[object, ...]:
    """The memory and launch options of a launch; its parameters are identified by the names of their arrays."""
    return (
        step.signature.name if step.library else "",
        [replace(each, name=step.key(each.name)) for each in step.signature.call],
        step.together,
        step.early,
        sorted(step.scratch.items()),
        sorted(step.workspace.items()),
    )


def _compile(job: Job) -> None:
    with suppress(HarnessError):
        job.compile()


def _jobs(cases: Iterable[Case], side: Side) -> dict[str, Job]:
    """Every instantiation by its key, for launches that fit on the device at once and for the ones that do not."""
    found: dict[str, Job] = {}
    for case in cases:
        with suppress(HarnessError):
            for step in _steps(case, side):
                if step.library:
                    continue
                key = key_of(step.signature, step.flags, side.targets[0])
                found.setdefault(key, Job(step.signature, step.flags, side.targets[0]))
    return found


def _steps(case: Case, side: Side) -> Iterator[Step]:
    return all_steps(case, side.kernels, side.suites)
