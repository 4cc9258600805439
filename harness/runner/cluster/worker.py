"""The functions that a worker of a Dask cluster runs, and the messages between it and the run.

Cases run in a child process, because a case may kill its process. Each thread of a worker keeps its child, with
everything it has compiled and decoded, from case to case.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from harness import errors
from harness.contract.case import Case
from harness.errors import CaseError, HarnessError, UsageError
from harness.records.records import Record
from harness.records.seal import Seal, seal

_ENDING = 10.0  # seconds that a killed process may take to end
_OWN = threading.local()


@dataclass(frozen=True)
class Work:
    """The settings that all cases of a run share.

    device, case_timeout: as on the command line, the second in seconds; recipe_dirs: absolute
    strict: whether it has `--strict`
    suites: their files; state: `state_of` the run's seal; tensors: digest of each tensor file that a case reads
    """

    device: str
    case_timeout: float
    recipe_dirs: tuple[Path, ...]
    suites: tuple[Path, ...]
    state: str
    tensors: Seal = field(hash=False)
    strict: bool = False


@dataclass(frozen=True)
class Ready:
    """A worker's answer that it can run cases.

    memory: its GPU's in bytes, 0 without one; sealed: without tensor files
    """

    host: str
    identity: dict[str, str]
    memory: int
    sealed: Seal


@dataclass(frozen=True)
class Answer:
    """The record of a case, or the error that it raised. kind: the error's class; ends: whether the process ends"""

    record: Record | None = None
    kind: str = ""
    sentence: str = ""
    ends: bool = False
    host: str = ""

    @classmethod
    def of(cls, error: HarnessError) -> Answer:
        """The answer that makes the other machine raise this error."""
        return cls(kind=type(error).__name__, sentence=str(error))

    def taken(self) -> Record:
        """Return the record, or raise the error, in its class or the nearest base class that takes one sentence."""
        if self.record is not None:
            return self.record
        raise error_of(self.kind, f"{self.sentence} (on {self.host})")


class Died(Exception):
    """Raised if the process of a case ended without a record, so that Dask runs the case again."""


def error_of(kind: str, sentence: str) -> HarnessError:
    """Make an error with this sentence, of the class with this name."""
    found = getattr(errors, kind, None)
    if not (isinstance(found, type) and issubclass(found, HarnessError)):
        return CaseError(sentence)
    if issubclass(found, errors.SuiteError):
        return UsageError(sentence)
    return CaseError(sentence) if issubclass(found, errors.AccessError) else found(sentence)


def sealed_here(suites: tuple[Path, ...]) -> Seal:
    """The digests that verdicts depend on, without tensor files, which each case checks when it reads one."""
    return seal((), suites)


def state_of(sealed: Seal) -> str:
    """Combine many digests into one."""
    return hashlib.sha256("\n".join(f"{name} {digest}" for name, digest in sorted(sealed.items())).encode()).hexdigest()


def look(work: Work) -> Ready | Answer:
    """The device that this worker runs cases on, or why it cannot run any."""
    return _child(work).ready


def run_case(work: Work, case: Case) -> Answer:
    """Run a case. Raises Died if its process ends without an answer, so that Dask runs it again, perhaps elsewhere."""
    child = _child(work)
    if isinstance(child.ready, Answer):
        return replace(child.ready, host=child.host)
    if state_of(child.ready.sealed) != work.state:
        return Answer(
            kind="UsageError", host=child.ready.host,
            sentence="a worker that came later has other sources or packages than the run; give it the same",
        )  # fmt: skip
    return child.run(case)


def _child(work: Work) -> _Child:
    """This thread's child process; a new one if it has none for this run."""
    child: _Child | None = getattr(_OWN, "child", None)
    if child is None or child.work != work or not child.alive():
        if child is not None:
            child.end()
        child = _OWN.child = _Child(work)
    return child


class _Child:
    """A process that runs cases one after the other. ready: its first message"""

    def __init__(self, work: Work):
        self.work = work
        self._pipe, theirs = Pipe()
        threads = {name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.runner.cluster.child", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **threads},
            start_new_session=True,
        )
        theirs.close()
        self.host = socket.gethostname()
        self.ready: Ready | Answer = self._asked(work)

    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, case: Case) -> Answer:
        answer = self._asked(case)
        if answer.ends:
            self.end()
        return replace(answer, host=self.host)

    def end(self) -> None:
        """End the process, even inside a kernel."""
        self._pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING)
            return
        self._process.kill()
        self._process.wait()

    def _asked(self, what: Work | Case) -> Ready | Answer:
        pipe: Connection = self._pipe
        try:
            pipe.send(what)
            return pipe.recv()
        except (EOFError, OSError):
            self.end()
            raise Died(f"its process on {self.host} {_ended(self._process.returncode)}") from None


def _ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
