"""A suite run in its controller: the journal, the summary and the exit code."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from harness.check.compared import shortfalls
from harness.device.device import Device
from harness.errors import Exit, StorageError, UsageError, worst
from harness.files import storage_error, write_text
from harness.ground.command_lines import Asked, is_guest
from harness.records import seal
from harness.records.journal import Journal
from harness.records.lines import one
from harness.records.records import Finished, Record
from harness.records.run_folder import begun, new_folder, newest_run, shown
from harness.report import tables
from harness.runner import resume_command, summary
from harness.runner.outcome import outcome
from harness.runner.selection import Selection
from harness.runner.supervisor import GO_ON, leave
from harness.verdict import Result
from harness.verify import not_run
from harness.verify.isolation import died
from harness.verify.screen import alike, screen

_LAST_WORDS = "last_words.*.json"
_GAVE_UP = 70  # exit code of a worker that gave up its case; only pytest-xdist sees it
_REPORTED = "fE"  # the default of -r: what pytest lists at the end


class Run:
    """A plugin of the controller, whose hooks see the reports of all workers."""

    def __init__(self, config: pytest.Config, selection: Selection, device: Device, asked: Asked):
        """Open the run's journal. Raises UsageError if --run-dir and --resume do not fit together."""
        option = config.option
        runs = config.rootpath / "results" / "runs"
        run_dir: Path = option.run_dir or (newest_run(runs) if option.resume else new_folder(runs=runs))
        header = {
            "sources": seal.sources_digest(),
            "sealed": seal.seal(selection.by_id.values(), selection.paths, option.subject or ""),
            "device": device.identity(),
            "cases": selection.digest,
            "selected": len(selection),
            "selection": selection.unsharded,
            "set": selection.set_name,
            "shard": option.shard,
            "timed": option.bench,
            "asked": asked.to_header(),
            "device_asked": option.device,
            **begun(shlex.join(resume_command.typed(config.invocation_params.args))),
        }
        self.selection, self.device, self.asked = selection, device, asked
        self.cases = selection.by_id
        self.guest = is_guest(option.subject or "")
        self.journal = Journal(run_dir, header, option.resume, self.guest)
        for left in run_dir.glob(_LAST_WORDS):  # by workers of a killed run
            left.unlink()
        self.going_on = resume_command.going_on(config.invocation_params.args, run_dir)
        self.resumed = {record["case_id"]: record for record in self.journal.records}
        self.errors: list[Exit] = []
        self.interrupted = False
        self.stopped = ""
        self.session: pytest.Session | None = None
        self.folded: dict[str, list[Any]] = {}  # pytest's reports, while its list of them is shorter
        self.gpus: dict[str, int] = {}
        self.began = time.monotonic()

    @property
    def results(self) -> list[Result]:
        """All results so far, resumed ones included."""
        return [Result.from_record(record) for record in self.journal.records]

    def gpu_of(self, worker: str, count: int) -> int:
        """Give a new worker the GPU that has the fewest workers."""
        held = Counter(self.gpus.values())
        self.gpus[worker] = min(range(max(count, 1)), key=lambda index: held[index])
        return self.gpus[worker]

    def go_on(self, config: pytest.Config, record: Record) -> NoReturn:
        """Keep the record of a case after which this process cannot go on, and end it for the supervisor to replace."""
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture:
            capture.stop_global_capturing()
        try:
            self.journal.append(record)
        except StorageError as error:
            print(f"\nerror: {error}", file=sys.stderr, flush=True)
            os._exit(error.exit_code)
        print(f"\n{record['case_id']}: {record['reason']}\ngoing on in a new process", flush=True)
        self.journal.close()
        leave(GO_ON)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the record of a case; end the run if no other case can be run or kept."""
        record: Record | None = getattr(report, "record", None)
        if record is not None:
            with self._storage_errors_kept():
                self.journal.append(record)
        code = getattr(report, "error_code", None)
        if code is not None:
            self.errors.append(Exit(code))
            if report.ends_run:
                self.stop(code, report.ends_run)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Mark the cases that were done before."""
        if report.when != "call" or not getattr(report, "resumed", False):
            return None
        return report.outcome, {"passed": ".", "failed": "F", "skipped": "s"}[report.outcome], "DONE BEFORE"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Free the GPU of a worker that ended, for its replacement, and hear what its subject wrote late."""
        self.fail(getattr(node, "workeroutput", {}).get("harness_late", ""))
        self.gpus.pop(node.gateway.id, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Turn the report of a dead worker into one of its case, with its last words if it left any."""
        case = self.cases.get(crashitem.partition("::")[2])
        if case is None:
            return
        how = report.longrepr
        record = _last_words(self.journal.path.parent, case.id) or died(case, how, self.device).to_record()
        report.when, report.record, report.longrepr = "call", record, screen(record, self.asked)
        report.location = (report.location[0], int(case.where.rpartition(":")[2] or 1) - 1, case.id)
        report.user_properties += [("verdict", record["verdict"]), ("bytes_compared", 0)]

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self) -> Generator[None, Any, Any]:
        """Report in one sentence that pytest's own reports cannot be written; its cache may fail.

        pytest lists failures next, for which those that fail alike become one.
        """
        try:
            ended = yield
            self._fold_alike()
            return ended
        except pytest.PytestCacheWarning:
            return None
        except OSError as error:
            refusal = storage_error(error.filename or "a report", error)
            self.stop(refusal.exit_code, str(refusal))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Tell Ctrl-C from pytest's own ways to stop early, which are subclasses of KeyboardInterrupt."""
        self.interrupted = excinfo.type is KeyboardInterrupt

    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, Any, Any]:
        """Print last what was compared, what was not and why, and where the reports are."""
        terminalreporter.stats.update(self.folded)
        with self._storage_errors_kept():
            yield
        with self._storage_errors_kept():
            self._sum_up(terminalreporter)

    def _fold_alike(self) -> None:
        """Leave the first of the cases that fail alike on pytest's list, with the ids of the others below its screen.

        All are counted, and listed by -r: `pytest_terminal_summary` puts them back once the screens are printed.
        """
        reporter = self.session.config.pluginmanager.getplugin("terminalreporter") if self.session else None
        failed = reporter.stats.get("failed", []) if reporter else []
        screens = {report.record["case_id"]: report for report in failed if getattr(report, "record", None)}
        hidden: set[int] = set()
        for first, *others in alike(report.record for report in screens.values()):
            if others:
                ids = [each["case_id"] for each in others]
                hidden.update(id(screens[each]) for each in ids)
                report = screens[first["case_id"]]
                report.longrepr = "\n".join([str(report.longrepr), f"{len(ids):,} more fail alike:", *ids])
        if hidden:
            self.folded = {"failed": failed}
            reporter.stats["failed"] = [report for report in failed if id(report) not in hidden]

    @contextmanager
    def _storage_errors_kept(self) -> Iterator[None]:
        """Go on where a file cannot be written, so that the reports still print what they say."""
        try:
            yield
        except StorageError as error:
            self.stop(error.exit_code, str(error))

    def _sum_up(self, terminalreporter: Any) -> None:
        seconds = time.monotonic() - self.began
        width = shutil.get_terminal_size((120, 24)).columns
        terminalreporter.section("verdicts")
        listing = resume_command.listing_refused(self.selection)
        text = summary.render(self.results, self.selection.excluded, seconds, width, listing)
        terminalreporter.write_line(text)
        _list_no_case_again(terminalreporter)
        if self.journal.records:
            written = tables.write_verify(
                self.journal.path.parent, self.journal.records, self.asked, self.journal.header
            )
            times = self.journal.path.with_name("bench.html")
            page = times if times.exists() else next(path for path in written if path.suffix == ".html")
            terminalreporter.write_line(f"{shown(page)}, with tables and journal beside it")
            for line in not_run.lines(self.journal.records):
                terminalreporter.write_line(line)
        else:
            terminalreporter.write_line(shown(self.journal.path))
        if self.interrupted or self.stopped:
            done = f"{len(self.journal.records)} of {len(self.selection)} cases are done"
            again_too = (
                "; --resume runs them again, because a function could change their records" if self.guest else ""
            )
            terminalreporter.write_line(f"interrupted: {done}{again_too}; go on with\n  {self.going_on}")

    def fail(self, sentence: str) -> None:
        """Make the run red at its end; does nothing for an empty sentence."""
        if sentence:
            print(f"error: {sentence}", file=sys.stderr, flush=True)
            self.errors.append(Exit.BYTES_DIFFER)

    def stop(self, code: int, sentence: str) -> None:
        """End the run; `sentence` says why."""
        print(f"error: {sentence}", file=sys.stderr, flush=True)
        self.errors.append(Exit(code))
        self.stopped = self.stopped or sentence
        if self.session is not None:
            self.session.shouldstop = self.stopped
            # pytest-xdist's controller also has a session object of its own.
            distributed = self.session.config.pluginmanager.getplugin("dsession")
            if distributed is not None:
                distributed.shouldstop = self.stopped

    def pytest_unconfigure(self) -> None:
        self.fail(self.journal.changed())
        self.journal.close()

    def outcome(self, status: int) -> tuple[Exit, str]:
        """The exit code of the run, and a sentence if the output does not explain it already. status: pytest's own"""
        if self.interrupted:
            return Exit.INTERRUPTED, ""
        judged, sentence = outcome(self.cases, self.selection.total, self.results, worst(self.errors))
        if self.errors:
            return worst([judged, *self.errors]), ""
        if not judged and self.selection.is_whole_set:
            chosen = self.selection
            for fewer in shortfalls(self.journal.records, chosen.paths, chosen.set_name, self.device):
                print(f"error: {fewer}", file=sys.stderr, flush=True)
                judged = Exit.BYTES_DIFFER
        if not judged and status != pytest.ExitCode.OK:
            return Exit.BYTES_DIFFER, ""  # a Python test failed, or pytest itself did
        return judged, sentence


def end_worker(run_dir: Path, record: Record) -> NoReturn:
    """End this worker of pytest-xdist at once, with the record of its case in a file for the controller."""
    try:
        write_text(run_dir / _LAST_WORDS.replace("*", str(os.getpid())), json.dumps(record))
    except StorageError as error:
        print(error, file=sys.stderr)
    os._exit(_GAVE_UP)


def _last_words(run_dir: Path, case_id: str) -> Record | None:
    """Take the record that the worker which gave up this case left, if it left one."""
    for path in run_dir.glob(_LAST_WORDS):
        try:
            record = one(path, path.read_bytes(), Finished)
        except (OSError, UsageError):
            continue
        if record["case_id"] == case_id:
            path.unlink()
            return record
    return None


def _list_no_case_again(reporter: Any) -> None:
    """Unless -r asks for it, keep pytest from listing failures that are all cases; the summary has the first ones."""
    asked = reporter.config.option.reportchars != _REPORTED
    if not asked and all(getattr(report, "record", None) for report in reporter.stats.get("failed", [])):
        reporter.reportchars = reporter.reportchars.replace("f", "")
