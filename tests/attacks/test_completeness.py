"""Ways to a green run that compares less than the command line asked for.

Verification is a fake in which some cases differ; nothing is compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import LONGEST
from toy_runs import CONFTEST, SMOKE, Runs
from ways import must_be_red

from harness.files import ROOT


def in_this_process(run: Runs, *words: str) -> subprocess.CompletedProcess[str]:
    """For what no supervisor is needed for: the process judges itself by the same rules."""
    result = run(*words)
    return subprocess.CompletedProcess(words, result.ret, result.stdout.str(), result.stderr.str())


def pytest_run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "harness.plugin", "-p", "no:hypothesispytest", *words]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=LONGEST)


LEAVING = {
    "leaves at the start": "def pytest_configure(): os._exit(0)",
    "leaves when it is loaded": "os._exit(0)",
    "leaves at the first case": "def pytest_runtest_call(): os._exit(0)",
    "leaves at the end": "def pytest_unconfigure(): os._exit(0)",
    "leaves by atexit": "import atexit; atexit.register(os._exit, 0)",
    "becomes another program": "def pytest_sessionstart(): os.execv('/bin/true', ['true'])",
    "ends by pytest.exit": "import pytest\ndef pytest_sessionstart(): pytest.exit('done', 0)",
    "says that all went well": "def pytest_sessionfinish(session): session.exitstatus = 0\n"
    "import pytest\n@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_cmdline_main():\n yield\n return 0",
}
DROPPING = {
    "drops cases": "def pytest_collection_modifyitems(items): items[:] = items[:1]",
    "drops cases and tells": "def pytest_collection_modifyitems(config, items):\n"
    " config.hook.pytest_deselected(items=items[1:]); items[:] = items[:1]",
    "drops cases after all others": "import pytest\n@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
    "def pytest_collection_modifyitems(items):\n yield\n items[:] = items[:1]",
    "ignores the suite": "def pytest_ignore_collect(): return True",
    "collects nothing": "collect_ignore_glob = ['*']",
    "runs nothing": "def pytest_runtestloop(): return True",
    "runs no protocol": "def pytest_runtest_protocol(): return True",
    "marks all as skipped": "import pytest\ndef pytest_collection_modifyitems(items):\n"
    " for item in items: item.add_marker(pytest.mark.skip)",
    "skips when a case begins": "import pytest\ndef pytest_runtest_setup(): pytest.skip('not now')",
    "expects failures": "import pytest\ndef pytest_collection_modifyitems(items):\n"
    " for item in items: item.add_marker(pytest.mark.xfail)",
    "turns reports": "import pytest\n@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_runtest_makereport():\n"
    " report = yield\n report.outcome, report.record, report.longrepr = 'passed', None, None\n return report",
    "takes the first report for all": "import pytest\n@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
    "def pytest_runtest_makereport():\n report = yield\n"
    " kept = globals().setdefault('kept', getattr(report, 'record', 0))\n"
    " report.record = kept\n return report",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAVING)
def test_a_conftest_that_leaves(run: Runs, name: str):
    """A conftest or plugin ends the process early, or has the last word."""
    run.verdicts(**{"16x16/ties": "MISMATCH"})
    run.pytester.makeconftest(f"{CONFTEST}\n{LEAVING[name]}\n")
    must_be_red(pytest_run("suites", "--run-dir", "out"))


@pytest.mark.parametrize("name", DROPPING)
def test_a_conftest_that_drops_cases(run: Runs, name: str):
    """A conftest or plugin drops, skips or whitewashes cases, one of which is wrong."""
    run.verdicts(**{"16x16/ties": "MISMATCH"})
    run.pytester.makeconftest(f"{CONFTEST}\n{DROPPING[name]}\n")
    must_be_red(in_this_process(run, "suites"))


IN_CASE = {
    "skips": "pytest.skip('not me')",
    "is expected to fail": "pytest.xfail('known')",
    "leaves": "os._exit(0)",
    "becomes another program": "os.execv('/bin/true', ['true'])",
    "ends all": "pytest.exit('done', 0)",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "processes"), [*((name, ()) for name in IN_CASE), ("leaves", ("-n", "1", "-k", "48x80 and ties"))]
)
def test_from_inside_a_case(run: Runs, name: str, processes: tuple[str, ...]):
    """What a case runs skips, leaves or becomes something else."""
    hook = f"import pytest\ndef verify(case, *_):\n {IN_CASE[name]}\nharness.runner.process.verify = verify\n"
    run.pytester.makeconftest(CONFTEST + hook)
    must_be_red(pytest_run("suites", "--run-dir", "out", *processes))


ADDED = ["-k normal", "--set full", "--collect-only", "-m absent", "--help", "--shard 1/8"]


@pytest.mark.slow
@pytest.mark.parametrize("added", ADDED)
def test_the_environment_chooses_cases(run: Runs, added: str):
    """PYTEST_ADDOPTS leaves cases out, among them the wrong ones."""
    run.verdicts(ties="MISMATCH")
    must_be_red(pytest_run("suites", "--run-dir", "out", PYTEST_ADDOPTS=added))


@pytest.mark.parametrize("added", [ADDED[0], pytest.param(ADDED[1], marks=pytest.mark.slow)])
def test_a_file_of_pytests_chooses_cases(run: Runs, added: str):
    """addopts in pytest.ini leaves cases out."""
    Path("pytest.ini").write_text(f"[pytest]\naddopts = {added}\n")
    must_be_red(pytest_run("suites", "--run-dir", "out"))


@pytest.mark.sweep
@pytest.mark.parametrize("word", ["--collect-only", "--co", "--setup-plan", "--fixtures",
                                  "--markers", "--cache-show"])  # fmt: skip
def test_an_option_that_runs_nothing(run: Runs, word: str):
    """A word on the command line has pytest do something else than run cases."""
    must_be_red(in_this_process(run, "suites", word))


@pytest.mark.slow  # test_doors.py has the same sentence through `harness`
def test_a_word_for_pytest_behind_the_command():
    """`harness verify` hands --version to pytest, which prints it and runs nothing."""
    command = [sys.executable, "-m", "harness", "verify", "swizzle", "--version"]
    must_be_red(subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, cwd=ROOT))


def test_the_last_failures_alone(run: Runs):
    """--lf runs what failed last time, and pytest's cache says what that was."""
    run.verdicts(**{"16x16/ties": "MISMATCH"})
    run("suites", "--run-dir", "first")
    run.verdicts(**{"48x80/ties": "MISMATCH"})
    must_be_red(pytest_run("suites", "--lf", "--run-dir", "out"), "without a result", "selected cases have no result")


def test_the_plugin_is_switched_off(run: Runs):
    """The harness's plugin is disabled, so that no suite is collected."""
    must_be_red(pytest_run("suites", "-p", "no:harness.plugin"))


def test_an_older_run_in_the_folder(run: Runs):
    """The folder holds the journal of an earlier run, and this one leaves at once."""
    assert run("suites").ret == 0
    run.verdicts(toy="MISMATCH")
    run.pytester.makeconftest(CONFTEST + "\nos._exit(0)\n")
    must_be_red(pytest_run("suites", "--run-dir", "out"))


@pytest.mark.parametrize("word", ["-k absent", "--shard 1/100", "--case toy/default/16x16/normal/eager"])
def test_resumed_with_another_selection(run: Runs, word: str):
    """A run that is done is resumed with an empty or smaller selection."""
    assert run("suites").ret == 0
    must_be_red(in_this_process(run, "suites", "--resume", *word.split()))


@pytest.mark.slow
def test_resumed_and_left_at_once(run: Runs):
    """A run that lacks cases is resumed, and the process leaves before it begins."""
    run.verdicts(**{"48x80": "CTRL-C"})
    run("suites", fork=True)
    run.pytester.makeconftest(CONFTEST + "\nos._exit(0)\n")
    must_be_red(pytest_run("suites", "--run-dir", "out", "--resume"), "without a result")


def test_a_suite_that_changes_during_the_run(run: Runs):
    """A case rewrites its suite while the run is under way, so that what was verified is not what lies there."""
    hook = "\nwith (HERE / 'suites' / 'toy.yaml').open('a') as file: file.write('# changed')\n"
    run.pytester.makeconftest(CONFTEST + f"def pytest_sessionfinish():{hook}".replace("\n", "\n    "))
    must_be_red(pytest_run("suites", "--run-dir", "out"), "suites/toy.yaml")


def test_the_environment_says_that_somebody_supervises(run: Runs):
    """The variable by which a supervised process knows itself names the shell that started it."""
    run.pytester.makeconftest(CONFTEST + "\nos._exit(0)\n")
    command = f"HARNESS_SUPERVISOR=$$ {sys.executable} -m pytest -p harness.plugin suites --run-dir out; exit $?"
    must_be_red(subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=LONGEST))


def test_what_a_green_run_prints_last(run: Runs):
    """No way to green: a run that compared everything says so in its last line, and exits with 0."""
    run.verdicts(ties="EXCLUDED")
    done = pytest_run("suites", "--run-dir", "out")
    ties = sum("ties" in record["case_id"] for record in run.journal())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{SMOKE} selected, {SMOKE - ties} compared, {ties} excluded"
    assert done.stderr.startswith("this exit code is no gate, because pytest's plugins could set it; that of `")
    assert json.loads(Path("out/journal.jsonl").read_text().splitlines()[0])["selected"] == SMOKE
