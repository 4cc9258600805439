"""Ctrl-C in a terminal at any moment of a run's start ends it with 130, and files beside the user change nothing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import python_path, wait_until
from toy_runs import Runs

from harness.errors import Exit
from harness.files import ROOT
from harness.ground import ending
from harness.runner import pytest_child
from harness.runner.below_supervisor import SUPERVISOR

CTRL_C = b"\x03"
SUPERVISE = """
import os, sys, time
from pathlib import Path
from harness.runner import supervisor
{}
sys.exit(supervisor.supervise(["-p", "harness.plugin", "suites", *sys.argv[1:]], Path.cwd(), Path.cwd(), Path("runs")))
"""
# Between fork and exec: tells that it is there and waits for a key to be typed.
FORKED = """
begin = supervisor.end_with_parent
def wait_for_a_key(parent):
    begin(parent)
    Path("reached").touch()
    while not Path("typed").exists(): time.sleep(0.01)
supervisor.end_with_parent = wait_for_a_key
"""
LOADS = "import time, pathlib\npathlib.Path('reached').touch()\ntime.sleep({})\n"
CONFIGURES = """
import os, pytest, signal
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    import harness.runner.process as process
    begin = process.interrupt_by_signals
    def interrupted():
        begin()
        os.killpg(0, signal.SIGINT)
    process.interrupt_by_signals = interrupted
"""


def typed(program: str, *words: str) -> tuple[int, str]:
    """Run a program in a terminal of its own and type Ctrl-C when it says that it is there; its code and output."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", program, *words])
    wait_until(Path("reached").exists)
    os.write(terminal, CTRL_C)
    Path("typed").touch()
    printed = b""
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # Linux's answer when the program has ended
            break
        printed += more
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), printed.decode()


def test_ctrl_c_between_fork_and_exec_is_not_lost(run: Runs):
    code, printed = typed(SUPERVISE.format(FORKED))
    assert code == Exit.INTERRUPTED, printed
    assert run.verified() == []


def test_ctrl_c_while_the_child_loads_modules_prints_no_traceback(run: Runs):
    Path("loads.py").write_text(LOADS.format(60))
    code, printed = typed(SUPERVISE.format(""), "-p", "loads")
    assert code == Exit.INTERRUPTED, printed
    assert "Traceback" not in printed and len(printed.splitlines()) < 5, printed


def test_ctrl_c_before_there_is_a_run_is_no_wrong_kernel(run: Runs):
    Path("configures.py").write_text(CONFIGURES)
    words = [sys.executable, "-c", SUPERVISE.format(""), "-p", "configures"]
    done = subprocess.run(words, capture_output=True, text=True, start_new_session=True)
    assert done.returncode == Exit.INTERRUPTED, done.stdout + done.stderr


def test_ctrl_c_when_the_child_has_ended_is_one(run: Runs):
    """It failed for whatever reason; nobody waits for a signal any more, so the pending ones are looked at."""
    Path("fails.py").write_text("raise RuntimeError\n")
    ended = """
import signal
poll = supervisor.subprocess.Popen.poll
def interrupted(process):
    process.wait()
    supervisor.subprocess.Popen.poll = poll
    os.kill(os.getpid(), signal.SIGINT)
    return poll(process)
supervisor.subprocess.Popen.poll = interrupted
"""
    words = [sys.executable, "-c", SUPERVISE.format(ended), "-p", "fails"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == Exit.INTERRUPTED, done.stdout + done.stderr


def test_a_process_that_runs_no_child_of_a_supervisor_is_not_supervised():
    program = "from harness.runner.below_supervisor import supervised; print(supervised())"
    named = {**os.environ, SUPERVISOR: str(os.getpid())}  # as anybody may; this is its parent, and the same Python
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=named, capture_output=True, text=True)
    assert ran.stdout == "False\n", ran.stderr


def test_the_child_lets_through_all_that_ends_a_process():
    assert set(ending.ENDING) == set(pytest_child.ENDING)


@pytest.mark.parametrize("installed", ["", "here", "elsewhere"])
def test_the_child_searches_where_the_supervisor_does(installed: str, monkeypatch, tmp_path: Path):
    """A folder of the harness would answer a user's import of `evidence` or `tests`, in one of the two processes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    monkeypatch.delitem(sys.modules, "harness")
    other = tmp_path / "other" / "harness" / "__init__.py"
    other.parent.mkdir(parents=True)
    other.touch()
    before = {"": [], "here": [str(ROOT)], "elsewhere": [str(other.parents[1])]}[installed]
    monkeypatch.setattr(sys, "path", [*before])
    pytest_child.search_current_folder_last()
    assert sys.path == [*([] if installed == "here" else [str(ROOT)]), *before, str(tmp_path)]
    # An editable install is found by a finder of its own, and has no folder in `sys.path`.
    finder = SimpleNamespace(find_spec=lambda *_: spec_from_file_location("harness", ROOT / "harness" / "__init__.py"))
    monkeypatch.setattr(sys, "meta_path", [finder])
    monkeypatch.setattr(sys, "path", [])
    pytest_child.search_current_folder_last()
    assert sys.path == [str(tmp_path)]


@pytest.mark.parametrize("processes", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_a_file_with_the_name_of_a_module_does_no_harm(tmp_path: Path, processes: str):
    for name in ("random", "numpy", "rich", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    program = "from harness.cli import main; main()"
    words = ["verify", "swizzle", "--shape", "48x80", "-k", "normal", "-n", processes, "--run-dir", "out"]
    environment = {**os.environ, "PYTHONPATH": python_path(ROOT)}
    command = [sys.executable, "-P", "-c", program, *words]  # the folder of a console script is not the current one
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == Exit.CLEAN, done.stdout + done.stderr


def test_a_plugin_of_the_current_folder_is_found(run: Runs):
    Path("loads.py").write_text(LOADS.format(0))
    assert run("suites", "-p", "loads", fork=True).ret == Exit.CLEAN
    assert Path("reached").exists()


def test_a_full_disk_behind_the_output_is_one_sentence(run: Runs):
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-c", SUPERVISE.format("")]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (Exit.USAGE, "error: the output: No space left on device\n")


def test_a_disk_that_is_full_at_the_last_line_is_told():
    program = "from harness.runner import supervisor as s; s.leave(s._say_last('line', s.Exit.CLEAN))"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (Exit.USAGE, "error: the output: No space left on device\n")
