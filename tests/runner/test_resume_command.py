"""What a run says at its end may be pasted: it goes on with the same command, and lists the same combinations."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from own_recipe import NAME, in_use, written
from processes import python_path

from harness.commands import verify
from harness.commands.list import command as list_command
from harness.files import ROOT, SUITES
from harness.ground.command_lines import this_harness
from harness.runner import resume_command
from harness.runner.selection import select

INTERRUPTS = """
import pytest
def pytest_runtest_protocol(item):
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize(
    ("paths", "set_name", "command"),
    [
        (sorted(SUITES.glob("*.yaml")), "smoke", "harness list --refused"),
        (sorted(SUITES.glob("*.yaml")), "bench", "harness list --set bench --refused"),
        ([SUITES / "row_scaled.yaml"], "smoke", "harness list row_scaled --refused"),
        ([SUITES / "swizzle.yaml", SUITES / "casts.yaml"], "full", "harness list casts swizzle --set full --refused"),
    ],
)
def test_the_command_lists_what_was_refused(paths: list[Path], set_name: str, command: str):
    selection = select(paths, set_name)
    assert resume_command.listing_refused(selection) == command.replace("harness", shlex.join(this_harness(Path.cwd())))
    _, _, *words = shlex.split(command)
    printed = CliRunner().invoke(list_command, words).output
    assert printed.startswith(f"{selection.excluded.total():,} combinations are refused\n")


def test_recipes_of_ones_own_are_listed_with_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    folder = written(tmp_path / NAME)
    with in_use(folder):
        command = resume_command.listing_refused(select([folder / f"{NAME}.yaml"], "smoke"))
    assert shlex.split(command) == [*this_harness(tmp_path), "list", NAME, "--recipe-dir", NAME, "--refused"]


def test_this_python_is_named_as_one_would_type_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resume_command.this_python(tmp_path) == sys.executable
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python3"))
    assert resume_command.this_python(tmp_path) == "bin/python3"
    (tmp_path / "bin").mkdir()
    for name in ("python3", "python"):
        (tmp_path / "bin" / name).symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert resume_command.this_python(tmp_path) == "python"
    (tmp_path / "bin" / "python3").unlink()  # as where an environment is made anew while it runs
    assert resume_command.this_python(tmp_path) == "bin/python3"
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr(sys, "executable", "/bin/nothing")
    assert resume_command.this_python(tmp_path) == "/bin/nothing"


def test_a_run_goes_on_by_the_command_that_began_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(resume_command.TYPED, raising=False)
    found = resume_command.going_on(["suites", "-k", "a b"], Path("out"))
    assert shlex.split(found)[1:] == ["-m", "pytest", "suites", "-k", "a b", "--run-dir", "out", "--resume"]
    monkeypatch.setenv(resume_command.TYPED, "harness verify casts --resume --run-dir=there")
    monkeypatch.setattr(resume_command, "supervised", lambda: True)
    assert resume_command.going_on(["suites"], Path("out")) == "harness verify casts --run-dir=there --resume"


@pytest.mark.parametrize(
    "door", ["module", *(pytest.param(each, marks=pytest.mark.slow) for each in ("harness", "pytest"))]
)
def test_an_interrupted_run_says_what_was_typed(tmp_path: Path, door: str):
    (tmp_path / "interrupts.py").write_text(INTERRUPTS)
    folder = written(tmp_path / NAME)
    words = ["verify", "-n", "0", "-p", "interrupts", "--run-dir", "out", "--recipe-dir", folder.name]
    python, suite = resume_command.this_python(tmp_path), f"{NAME}/{NAME}.yaml"
    command, typed = {
        "harness": (["-c", "from harness.cli import main; main()", *words], this_harness(tmp_path)),
        "module": (["-m", "harness", *words], this_harness(tmp_path)),
        "pytest": (["-m", "pytest", "-p", "harness.plugin", suite, *words[3:]], [python, "-m", "pytest"]),
    }[door]
    environment = {**os.environ, "PYTHONPATH": python_path(ROOT)}
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    (line,) = [lines[number + 1] for number, line in enumerate(lines) if line.endswith("cases are done; go on with")]
    said = shlex.split(line)
    assert said[: len(typed)] == typed, done.stdout
    assert said[-1] == "--resume" and said.count("--run-dir") == 1 and "interrupts" in said and folder.name in said


def test_verify_says_itself_with_folders_of_recipes(tmp_path: Path):
    folder = written(tmp_path / NAME)
    with in_use(folder), verify.command.make_context("verify", ["--recipe-dir", str(folder)]):
        assert shlex.split(verify._shared.made_by()) == ["harness", "verify", "--recipe-dir", str(folder)]
