"""The messages between a run and the workers of a cluster."""

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
