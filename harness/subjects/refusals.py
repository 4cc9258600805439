"""What a subject refuses, by its own word: asked of a case before there are data, and held to it afterwards."""

from __future__ import annotations

import unittest
from collections.abc import Iterable
from pathlib import Path
from traceback import extract_tb

import pytest

from harness.contract.case import Case
from harness.errors import NotCapable
from harness.subjects.audit.oracle_guard import watch
from harness.subjects.audit.violations import Violation, ViolationError
from harness.subjects.subject import Subject

# What a function raises in order to say "not me".
_DECLINING = (NotCapable, NotImplementedError, pytest.skip.Exception, pytest.xfail.Exception, unittest.SkipTest)


class Refusals:
    """The answers of one subject. The first that it gives on a case stands.

    An answer that changes is a violation, and so is a case that is refused for the first time after the subject has
    seen data, be they another case's.
    """

    def __init__(self, subject: Subject):
        self.subject = subject
        self.saw_data = False
        self._absent = subject.absent()
        self._answers: dict[Case, str] = {}
        self._violations: dict[Case, ViolationError] = {}

    def freeze(self, cases: Iterable[Case]) -> None:
        """Ask of all cases before any runs; a violation is that of its case alone."""
        for case in cases:
            try:
                self.of(case)
            except ViolationError as error:
                self._violations[case] = error

    def of(self, case: Case) -> str:
        """Why the subject does not take a case, empty if it does. Raises ViolationError."""
        if self._absent:
            return self._absent
        if case in self._violations:
            raise self._violations[case]
        answer = self._ask(case)
        known = self._answers.get(case)
        if known is None and answer and self.saw_data:
            raise self._late(f"refused {case.id} for the first time after it had seen data: {answer}")
        if known not in (None, answer):
            raise self._late(f"first said {known or 'that it takes the case'!r}, and then {answer!r}")
        self._answers[case] = answer
        return answer

    def _ask(self, case: Case) -> str:
        try:
            with watch(self.subject):
                answer = self.subject.refuses(case)
        except (KeyboardInterrupt, ViolationError):
            raise
        except BaseException as error:
            raise ViolationError(Violation.RAISES, f"refuses() of {self.subject.name} {describe(error)}") from None
        if type(answer) is not str:
            sentence = f"refuses() of {self.subject.name} returned {type(answer).__name__}; it must return a str"
            raise ViolationError(Violation.RAISES, sentence)
        return answer

    def _late(self, sentence: str) -> ViolationError:
        return ViolationError(Violation.DECLINES_LATE, f"{self.subject.name} {sentence}")


def declines(error: BaseException) -> bool:
    """Whether an error says that its function is not meant for what it was given."""
    return isinstance(error, _DECLINING)


def describe(error: BaseException) -> str:
    """`raised ValueError at mine.py:12: the sentence`"""
    frames = extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"raised {type(error).__name__}{where}: {' '.join(str(error).split())}"
