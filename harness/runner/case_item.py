"""A suite and its cases as pytest collects and runs them, and the order in which they run.

The largest cases are spread over the processes and begin early; a cluster's are reported as they finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from xdist.scheduler import WorkStealingScheduling

from harness.contract.case import Case
from harness.errors import CaseError, HarnessError
from harness.records.records import Record
from harness.runner.process import PROCESS, Process
from harness.verdict import Result, Verdict
from harness.verify.room import LARGE
from harness.verify.screen import commands, screen

Item = TypeVar("Item")
TIMES = 6  # large cases begin at six points, a sixth of them at each, so that not all draw inputs at once
BEGUN = 0.6  # the last large case begins after this share of a part
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


def spread(items: Sequence[Item], elements: Callable[[Item], int], processes: int) -> list[Item]:
    """Order the items in parts of similar length, one for each process, with large items far apart.

    The large ones are placed at several points in the first BEGUN of a part; all others keep their order.
    """
    large = sorted((item for item in items if elements(item) >= LARGE), key=elements, reverse=True)
    if not large:
        return list(items)
    others = [item for item in items if elements(item) < LARGE]
    length = -(-len(others) // processes)
    parts = [others[i * length : (i + 1) * length] for i in range(processes)]
    for number, item in enumerate(large):
        part = parts[number % processes]
        part.insert(int(len(part) * BEGUN * (number % TIMES) / (TIMES - 1)), item)
    return [item for part in parts for item in part]


class Stealing(WorkStealingScheduling):
    """Work stealing that survives the end of a worker."""

    def check_schedule(self) -> None:
        try:
            super().check_schedule()
        except OSError:
            # A dead worker cannot be asked to give back its cases. Its end is reported next, and that returns them.
            return


def loop(session: pytest.Session, process: Process) -> None:
    """Report each case when it is answered, and run tests in Python here."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.showfspath = False  # suites finish mixed: nearly every case would print its path
    cases = {item.case.id: item for item in session.items if isinstance(item, CaseItem)}
    for item in session.items:
        if not isinstance(item, CaseItem) or item.case.id in process.done:
            _report(session, item)
    waiting = [item.case for case_id, item in cases.items() if case_id not in process.done]
    try:
        for case in process.cluster.answered(waiting):
            _report(session, cases[case.id])
    except HarnessError as error:
        process.run.stop(error.exit_code, str(error))
        raise session.Interrupted(str(error)) from None


def _report(session: pytest.Session, item: pytest.Item) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
