"""One suite run as its controller sees it: keeps the journal, sums up, and knows the exit code."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.errors import SEVERITY, Exit
from harness.runner import journal, summary
from harness.runner.journal import Journal, Record
from harness.runner.run_files import shown
from harness.runner.selection import Selection
from harness.verdict import Result, Verdict


class Run:
    """Registered as a plugin of the controller, so that its hooks see every report, from whichever worker."""

    def __init__(self, selection: Selection, kept: Journal, command: str):
        self.selection = selection
        self.journal = kept
        self.command = command
        self.resumed = frozenset(record["case_id"] for record in kept.records)
        self.errors: list[Exit] = []
        self.interrupted = False
        self.began = time.monotonic()

    @classmethod
    def start(cls, config: pytest.Config, selection: Selection, identity: Record) -> Run:
        """Open the run's journal. Raises UsageError if --run-dir and --resume do not fit together."""
        option = config.option
        runs = config.rootpath / "results" / "runs"
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        run_dir: Path = option.run_dir or (journal.latest_run(runs) if option.resume else runs / stamp)
        header = {
            "sources": journal.sources_digest(),
            "device": identity,
            "cases": _digest(case.id for cases in selection.cases.values() for case in cases),
            "timed": option.bench,
        }
        return cls(selection, Journal(run_dir, header, option.resume), _resume_command(config, run_dir))

    @property
    def results(self) -> list[Result]:
        """What is known so far, resumed records included."""
        return [Result.from_record(record) for record in self.journal.records]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the record of a case the moment it is known."""
        record: Record | None = getattr(report, "record", None)
        if record is not None:
            self.journal.append(record)
        code = getattr(report, "error_code", None)
        if code is not None:
            self.errors.append(Exit(code))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Tell a person's Ctrl-C from pytest's own ways to stop early, which are subclasses."""
        self.interrupted = excinfo.type is KeyboardInterrupt

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """What was compared, what was not and why, and where the reports are."""
        seconds = time.monotonic() - self.began
        width = shutil.get_terminal_size((120, 24)).columns
        terminalreporter.section("verdicts")
        terminalreporter.write_line(summary.render(self.results, self.selection.excluded, seconds, width))
        if self.journal.records:
            from harness import report

            for path in report.write_verify(self.journal.path.parent, self.journal.records):
                terminalreporter.write_line(shown(path))
        terminalreporter.write_line(shown(self.journal.path))
        if self.interrupted:
            done = f"{len(self.journal.records)} of {len(self.selection)} cases are done"
            terminalreporter.write_line(f"interrupted: {done}; go on with\n  {self.command}")

    def pytest_unconfigure(self) -> None:
        """Let go of the journal."""
        self.journal.close()

    def outcome(self, status: int) -> tuple[Exit, str]:
        """The exit code of the run, and a sentence if the code is not explained by what was printed.

        status: what pytest would have exited with
        """
        if self.interrupted:
            return Exit.INTERRUPTED, ""
        results = self.results
        codes = {*self.errors, *(result.verdict.exit_code for result in results)} - {Exit.CLEAN}
        if not codes and status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            # A crash of a worker or of pytest itself: bytes that nobody compared count as different.
            codes = {Exit.BYTES_DIFFER}
        if codes:
            return next(code for code in SEVERITY if code in codes), ""
        if not results:
            return Exit.USAGE, f"no case was selected out of {len(self.selection)}; loosen -k, --case, --set or --shard"
        if all(result.verdict is Verdict.EXCLUDED for result in results):
            return Exit.NO_DEVICE, f"nothing was compared: all {len(results)} cases are excluded on this device"
        return Exit.CLEAN, ""


def _digest(ids: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def _resume_command(config: pytest.Config, run_dir: Path) -> str:
    words = [str(word) for word in config.invocation_params.args if word != "--resume"]
    if not config.option.run_dir:
        words += ["--run-dir", str(run_dir)]
    return shlex.join(["python", "-m", "pytest", *words, "--resume"])
