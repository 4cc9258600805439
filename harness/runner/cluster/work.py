"""What travels between a run and the workers of a cluster."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from harness import errors
from harness.errors import CaseError, HarnessError, UsageError
from harness.records.records import Record
from harness.records.seal import Seal, seal


@dataclass(frozen=True)
class Work:
    """What all cases of a run have in common.

    device, case_timeout: as on the command line, the second in seconds; recipe_dirs: absolute
    suites: their files; state: `state_of` the run's seal; tensors: digest of each tensor file that a case reads
    """

    device: str
    case_timeout: float
    recipe_dirs: tuple[Path, ...]
    suites: tuple[Path, ...]
    state: str
    tensors: Seal = field(hash=False)


@dataclass(frozen=True)
class Ready:
    """A worker that could run cases. memory: of its GPU in bytes, 0 without one; sealed: without tensor files"""

    host: str
    identity: dict[str, str]
    memory: int
    sealed: Seal


@dataclass(frozen=True)
class Answer:
    """The record of a case, or the error that it raised. kind: the error's class; ends: the process does"""

    record: Record | None = None
    kind: str = ""
    sentence: str = ""
    ends: bool = False
    host: str = ""

    @classmethod
    def of(cls, error: HarnessError) -> Answer:
        """The answer that raises this error on the other machine."""
        return cls(kind=type(error).__name__, sentence=str(error))

    def taken(self) -> Record:
        """The record. Raises the error: of its class, or of the class above it that takes one sentence."""
        if self.record is not None:
            return self.record
        raise error_of(self.kind, f"{self.sentence} (on {self.host})")


class Died(Exception):
    """The process of a case ended and left no record; Dask runs the case again."""


def error_of(kind: str, sentence: str) -> HarnessError:
    """An error of a class that was named, with a sentence."""
    found = getattr(errors, kind, None)
    if not (isinstance(found, type) and issubclass(found, HarnessError)):
        return CaseError(sentence)
    if issubclass(found, errors.SuiteError):
        return UsageError(sentence)
    return CaseError(sentence) if issubclass(found, errors.AccessError) else found(sentence)


def sealed_here(suites: tuple[Path, ...]) -> Seal:
    """What verdicts depend on, tensor files aside, which each case that reads one asks for itself."""
    return seal((), suites)


def state_of(sealed: Seal) -> str:
    """One digest of many."""
    return hashlib.sha256("\n".join(f"{name} {digest}" for name, digest in sorted(sealed.items())).encode()).hexdigest()
