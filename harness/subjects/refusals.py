"""A subject's own refusals: it is asked about each case before there are data, and held to its answer afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from harness.contract.case import Case
from harness.device.capability import DECLARED, OF_THE_DEVICE
from harness.subjects.audit.violations import Violation, ViolationError
from harness.subjects.subject import Subject


class Refusals:
    """The answers of one subject. Its first answer on a case is final.

    A changed answer is a violation, and so is a first refusal after the subject has seen any data, even another case's.
    """

    def __init__(self, subject: Subject):
        self.subject = subject
        self.saw_data = False
        self._absent = subject.absent()
        self._answers: dict[Case, str] = {}
        self._violations: dict[Case, ViolationError] = {}

    def freeze(self, cases: Iterable[Case]) -> None:
        """Ask about all cases before any runs; a violation then counts only for its own case."""
        for case in cases:
            try:
                self.of(case)
            except ViolationError as error:
                self._violations[case] = error

    def of(self, case: Case) -> str:
        """Why the subject does not take a case, empty if it does. Raises ViolationError."""
        if self._absent:
            return self._absent
        if outside := self.subject.outside(case):
            return outside
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
            answer = self.subject.refuses(case)
        except ViolationError as error:
            finding = error.finding
            raise ViolationError(finding.violation, f"refuses() of {finding.sentence}") from None
        if type(answer) is not str:
            sentence = f"refuses() of {self.subject.name} returned {type(answer).__name__}; it must return a str"
            raise ViolationError(Violation.RAISES, sentence)
        # What a device says, or the declared flags, is not counted as a refusal, so no subject may say it.
        return f"it says: {answer}" if answer.startswith((OF_THE_DEVICE, DECLARED)) else answer

    def _late(self, sentence: str) -> ViolationError:
        return ViolationError(Violation.DECLINES_LATE, f"{self.subject.name} {sentence}")
