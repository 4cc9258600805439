"""A suite and its cases as pytest collects and runs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.contract.case import Case
from harness.errors import CaseError, HarnessError
from harness.records.records import Record
from harness.runner.process import PROCESS
from harness.verdict import Result, Verdict
from harness.verify.screen import commands, screen

# Exceptions that make pytest skip, xfail or exit; here they could only hide that nothing was compared.
_OUTCOMES = (pytest.skip.Exception, pytest.xfail.Exception, pytest.fail.Exception, pytest.exit.Exception, SystemExit)


class CaseFailedError(Exception):
    """A case has a red verdict; only this error's text is shown."""


class SuiteFile(pytest.File):
    """A suite: one item for each selected case."""

    def collect(self) -> Iterator[CaseItem]:
        for case in self.config.stash[PROCESS].selection.cases[self.path.resolve()]:
            yield CaseItem.from_parent(self, name=case.id, case=case)


class CaseItem(pytest.Item):
    """One case; its name is the case id."""

    def __init__(self, *, case: Case, **rest: Any):
        super().__init__(**rest)
        self.case = case
        self.record: Record | None = None
        self.resumed = False

    def runtest(self) -> None:
        """Verify the case, time it with --bench, and keep its record, whatever the verdict."""
        process = self.config.stash[PROCESS]
        done = process.done.get(self.case.id)
        self.resumed = done is not None
        if done is None:
            try:
                with process.watchdog.over(self.case):
                    result = process.result_of(self)
            except _OUTCOMES as outcome:
                raise CaseError(f"{self.case.id} may not end by {type(outcome).__name__}: {outcome}") from None
            self.record = result.to_record()
        else:
            result = Result.from_record(done)
        self.user_properties += [("verdict", str(result.verdict)), ("bytes_compared", result.bytes_compared)]
        if result.verdict is Verdict.EXCLUDED:
            raise pytest.skip.Exception(result.reason, _use_item_location=True)
        if not result.verdict.right:
            raise CaseFailedError(screen(result, process.asked))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The screen of a mismatch; the sentence of a harness error, or a traceback, with the command to repeat it."""
        if isinstance(excinfo.value, CaseFailedError):
            return str(excinfo.value)
        text = excinfo.value if isinstance(excinfo.value, HarnessError) else super().repr_failure(excinfo, style)
        again = commands({"case_id": self.case.id, "device": ""}, self.config.stash[PROCESS].asked)
        return "\n".join([str(text), *again])

    def reportinfo(self) -> tuple[Path, int, str]:
        """The line of the set that made the case."""
        line = self.case.where.rpartition(":")[2]
        return self.path, int(line) - 1 if line else 0, self.name
