"""The controller of a run: reports, dead workers and errors, and the code that it ends with."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runs_on_disk import IDS, passed

from harness.device.emulator import EmulatorDevice
from harness.errors import Exit, StorageError
from harness.ground.command_lines import Asked
from harness.runner import run as running
from harness.runner.run import Run
from harness.runner.supervisor import GO_ON
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict


class Journal:
    """In memory. full: whether the disk is; said: what `changed` answers"""

    def __init__(self, folder: Path):
        self.path, self.records, self.header, self.full, self.said, self.closed = (
            folder / "journal.jsonl",
            [],
            {},
            False,
            "",
            0,
        )

    def append(self, record: dict) -> None:
        self.records.append(record)
        if self.full:
            raise StorageError("the disk is full")

    def changed(self) -> str:
        return self.said

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of four cases, none of them done."""
    monkeypatch.setattr(running, "shortfalls", lambda *_: [])
    found = object.__new__(Run)
    found.cases = {name: find_case(name) for name in IDS}
    found.selection = SimpleNamespace(total=9, is_whole_set=False, paths=(), set_name="smoke")
    found.device, found.asked, found.journal = EmulatorDevice(), Asked.here(), Journal(tmp_path)
    found.errors, found.interrupted, found.stopped, found.session, found.gpus, found.folded = (
        [],
        False,
        "",
        None,
        {},
        {},
    )
    return found


@pytest.fixture
def session(run: Run) -> SimpleNamespace:
    """A stand-in for pytest's session, with xdist's controller beside it."""
    plugins = {"dsession": SimpleNamespace(shouldstop=""), "terminalreporter": SimpleNamespace(stats={})}
    manager = SimpleNamespace(getplugin=plugins.get)
    found = SimpleNamespace(shouldstop="", config=SimpleNamespace(pluginmanager=manager), plugins=plugins)
    run.pytest_sessionstart(found)
    return found


def wrong(number: int, verdict: str = "MISMATCH", reason: str = "bytes differ") -> dict[str, Any]:
    return Result(IDS[number], "swizzle", Verdict(verdict), reason).to_record()


def test_a_worker_that_is_replaced_gets_the_gpu_of_the_one_before(run: Run):
    assert [run.gpu_of(f"gw{i}", 2) for i in range(4)] == [0, 1, 0, 1]
    node = SimpleNamespace(gateway=SimpleNamespace(id="gw1"), workeroutput={"harness_late": ""})
    run.pytest_testnodedown(node)
    run.pytest_testnodedown(node)  # one that never had a GPU
    assert (run.gpu_of("gw4", 2), run.gpu_of("gw5", 0), run.errors) == (1, 0, [])


def test_what_a_subject_wrote_late_makes_the_run_red(run: Run, capsys: pytest.CaptureFixture[str]):
    run.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw1"), workeroutput={"harness_late": "late"}))
    run.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw2")))
    assert run.errors == [Exit.BYTES_DIFFER] and capsys.readouterr().err == "error: late\n"


@pytest.mark.parametrize(
    ("records", "changes", "status", "ended"),
    [
        ([0, 1, 2, 3], {}, 0, Exit.CLEAN),
        ([0, 1, 2, 3], {}, 1, Exit.BYTES_DIFFER),  # a Python test failed
        ([0, 1, 2], {}, 0, Exit.BYTES_DIFFER),
        ([0, 1, 2, 3], {"interrupted": True}, 0, Exit.INTERRUPTED),
        ([0, 1, 2, 3], {"errors": [Exit.USAGE]}, 0, Exit.USAGE),
        ([0, 1, 2, 3], {"errors": [Exit.NO_DEVICE, Exit.USAGE]}, 0, Exit.USAGE),
        ([0, 1, 2], {"errors": [Exit.NO_DEVICE]}, 0, Exit.NO_DEVICE),
        ([], {"cases": {}}, 0, Exit.USAGE),
    ],
)  # fmt: skip
def test_how_a_run_ends(run: Run, records: list[int], changes: dict, status: int, ended: Exit):
    run.journal.records = [passed(IDS[number]) for number in records]
    vars(run).update(changes)
    code, sentence = run.outcome(status)
    assert code is ended
    assert ("1 of 4 selected cases have no result" in sentence) is (records == [0, 1, 2] and not changes)
    assert sentence == "" or "no result" in sentence or sentence.startswith("no case was selected out of 9")


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("few", [[], ["fewer than before", "and fewer"]])
def test_of_a_whole_set_fewer_cases_than_before_are_red(run: Run, monkeypatch, capsys, whole: bool, few: list[str]):
    asked = []
    monkeypatch.setattr(running, "shortfalls", lambda *given: asked.append(given) or few)
    run.journal.records, run.selection.is_whole_set = [passed(name) for name in IDS], whole
    assert run.outcome(0) == (Exit.BYTES_DIFFER if whole and few else Exit.CLEAN, "")
    assert capsys.readouterr().err == "".join(f"error: {each}\n" for each in few) * whole
    assert asked == [(run.journal.records, (), "smoke", run.device)] * whole
    run.journal.records = [wrong(0), *map(passed, IDS[1:])]
    assert run.outcome(1) == (Exit.BYTES_DIFFER, "") and len(asked) == whole


def test_a_report_is_kept_and_may_end_the_run(run: Run, session: SimpleNamespace, capsys: pytest.CaptureFixture[str]):
    run.pytest_runtest_logreport(SimpleNamespace())
    run.pytest_runtest_logreport(SimpleNamespace(record=passed(IDS[0])))
    assert (len(run.journal.records), run.errors, run.stopped) == (1, [], "")
    run.pytest_runtest_logreport(SimpleNamespace(record=None, error_code=64, ends_run=""))
    assert (run.errors, run.stopped, session.shouldstop) == ([Exit.USAGE], "", "")
    run.pytest_runtest_logreport(SimpleNamespace(error_code=4, ends_run="the GPU is gone"))
    run.stop(64, "later")
    assert run.errors == [Exit.USAGE, Exit.NO_DEVICE, Exit.NO_DEVICE, Exit.USAGE] and run.stopped == "the GPU is gone"
    assert session.shouldstop == session.plugins["dsession"].shouldstop == "the GPU is gone"
    assert capsys.readouterr().err == "error: the GPU is gone\nerror: later\n"


def test_a_disk_that_is_full_ends_the_run(run: Run, session: SimpleNamespace):
    del session.plugins["dsession"]
    run.journal.full = True
    run.pytest_runtest_logreport(SimpleNamespace(record=passed(IDS[0])))
    assert (run.errors, run.stopped, session.shouldstop) == ([Exit.USAGE], "the disk is full", "the disk is full")


@pytest.mark.parametrize("full", [False, True])
def test_a_process_that_can_go_on_no_more_keeps_its_record_and_ends(run: Run, monkeypatch, capfd, full: bool):
    """full: whether the disk is; then the run ends, and does not go on"""
    done: list[str] = []
    capture = SimpleNamespace(stop_global_capturing=lambda: done.append("captures no more"))
    monkeypatch.setattr(running, "leave", lambda code: done.append(f"leaves with {code}"))

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(running.os, "_exit", end)
    run.journal.full = full
    for plugin in (capture, None):
        config = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin={"capturemanager": plugin}.get))
        if full:
            with pytest.raises(SystemExit, match="64"):
                run.go_on(config, wrong(0))
        else:
            run.go_on(config, wrong(0))
    printed = capfd.readouterr()
    assert len(run.journal.records) == 2 and done == ["captures no more", *[f"leaves with {GO_ON}"] * 2 * (not full)]
    assert printed.err.count("error: the disk is full") == 2 * full and run.journal.closed == 2 * (not full)
    assert printed.out.count(f"{IDS[0]}: bytes differ\ngoing on in a new process") == 2 * (not full)


def test_a_journal_that_another_process_changed_makes_the_run_red(run: Run):
    run.pytest_unconfigure()
    assert (run.errors, run.journal.closed) == ([], 1)
    run.journal.said = "was changed"
    run.pytest_unconfigure()
    assert (run.errors, run.journal.closed) == ([Exit.BYTES_DIFFER], 2)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, pytest.exit.Exception])
def test_ctrl_c_is_no_way_of_pytest_s_to_stop(run: Run, kind: type[BaseException]):
    run.pytest_keyboard_interrupt(SimpleNamespace(type=kind))
    assert run.interrupted is (kind is KeyboardInterrupt)


@pytest.mark.parametrize(
    ("report", "found"),
    [
        ({"when": "call", "resumed": True, "outcome": "passed"}, ("passed", ".", "DONE BEFORE")),
        ({"when": "call", "resumed": True, "outcome": "failed"}, ("failed", "F", "DONE BEFORE")),
        ({"when": "call", "resumed": True, "outcome": "skipped"}, ("skipped", "s", "DONE BEFORE")),
        ({"when": "setup", "resumed": True, "outcome": "passed"}, None),
        ({"when": "call", "resumed": False, "outcome": "passed"}, None),
        ({"when": "call", "outcome": "passed"}, None),
    ],
)
def test_cases_that_were_done_before_are_marked(run: Run, report: dict, found: tuple | None):
    assert run.pytest_report_teststatus(SimpleNamespace(**report)) == found


def crashed(run: Run, case_id: str) -> SimpleNamespace:
    report = SimpleNamespace(when="???", longrepr="worker 'gw0' crashed", location=("f", 0, ""), user_properties=[])
    run.pytest_handlecrashitem(f"suites/swizzle.yaml::{case_id}", report)
    return report


def test_the_report_of_a_dead_worker_becomes_one_of_its_case(run: Run):
    report = crashed(run, IDS[0])
    assert report.when == "call" and report.record["case_id"] == IDS[0] and report.record["died"]
    assert "worker 'gw0' crashed" in report.record["reason"] and IDS[0] in report.longrepr
    assert report.location == ("f", int(find_case(IDS[0]).where.rpartition(":")[2] or 1) - 1, IDS[0])
    assert report.user_properties == [("verdict", "LAUNCH_ERROR"), ("bytes_compared", 0)]
    assert vars(crashed(run, "nobody's"))["when"] == "???"


def test_the_last_words_of_a_worker_are_taken_once(run: Run, tmp_path: Path):
    for number, text in enumerate((json.dumps(wrong(1)), "{", json.dumps(wrong(0, "LAUNCH_ERROR", "no end")))):
        (tmp_path / f"last_words.{number}.json").write_text(text)
    report = crashed(run, IDS[0])
    assert (report.record["reason"], report.record["died"]) == ("no end", False)
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["last_words.0.json", "last_words.1.json"]
    assert crashed(run, IDS[0]).record["died"]


def test_cases_that_fail_alike_are_listed_under_the_first(run: Run, session: SimpleNamespace):
    reports = [SimpleNamespace(record=wrong(number), longrepr=f"SCREEN {number}") for number in (0, 1)]
    reports += [SimpleNamespace(record=wrong(2, "UNWRITTEN", "bytes were never written"), longrepr="OTHER")]
    reports += [SimpleNamespace(longrepr="a Python test")]
    stats = session.plugins["terminalreporter"].stats
    run._fold_alike()
    assert stats == {} and run.folded == {}
    stats["failed"] = [*reports]
    run._fold_alike()
    assert stats["failed"] == [reports[0], *reports[2:]] and run.folded == {"failed": reports}
    assert reports[0].longrepr == f"SCREEN 0\n1 more fail alike:\n{IDS[1]}" and reports[1].longrepr == "SCREEN 1"


@pytest.mark.parametrize(
    ("asked", "python_failed", "listed"), [("fE", False, "E"), ("fE", True, "fE"), ("fEs", False, "fEs")]
)
def test_cases_are_not_listed_twice_unless_asked_for(asked: str, python_failed: bool, listed: str):
    failed = [SimpleNamespace(record=wrong(0)), *[SimpleNamespace()] * python_failed]
    option = SimpleNamespace(reportchars=asked)
    reporter = SimpleNamespace(config=SimpleNamespace(option=option), stats={"failed": failed}, reportchars=asked)
    running._list_no_case_again(reporter)
    assert reporter.reportchars == listed
