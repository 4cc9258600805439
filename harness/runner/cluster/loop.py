"""pytest's loop over the items of a run on a cluster, in the order in which cases finish."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError
from harness.runner.case_item import CaseItem
from harness.runner.process import Process


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
