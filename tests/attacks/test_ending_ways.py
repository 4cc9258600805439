"""Ways to keep a run from ending, or to have it end in a traceback; and trees whose files lie elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_here import command
from ways import StillGreenError, must_be_red

from harness.records import seal
from harness.runner import supervisor

try:
    from harness.runner import below_supervisor
except ImportError:  # before it was a module of its own
    below_supervisor = supervisor


class BegunError(Exception):
    """Nothing was refused."""


def begins(*_: object, **__: object) -> None:
    raise BegunError


def test_a_parent_that_ignores_its_children(tmp_path: Path):
    """The supervisor waits for a signal that the kernel never sends."""
    (tmp_path / "late.py").write_text("import time\ntime.sleep(5)\n")  # when the supervisor waits already
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    words = [sys.executable, "-m", "harness", "verify", "casts", "--case", "nonsense", "-p", "late"]

    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # `trap '' CHLD` does not in every shell

    try:
        done = subprocess.run(words, env=environment, preexec_fn=ignore, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        raise StillGreenError("the run does not end") from None
    must_be_red(done, "'nonsense' is not a recipe of this run", code=64)


def test_a_folder_that_is_gone(tmp_path: Path):
    words = f"cd {tmp_path} && rmdir {tmp_path} && exec {sys.executable} -m harness list"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60)
    if "Traceback" in done.stderr:
        raise StillGreenError(f"it ends in a traceback:\n{done.stderr}")
    must_be_red(done, "error: the current folder: No such file or directory", code=64)


@pytest.fixture
def below_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is what a supervisor starts, and process 1 has started it."""
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(below_supervisor, "_runs_child", lambda pid: pid == os.getpid(), raising=False)
    monkeypatch.setattr(below_supervisor, "_parent", lambda pid: 1 if pid == os.getpid() else 0)
    monkeypatch.setattr(below_supervisor, "_program", lambda pid: "python")


def test_a_supervisor_that_is_process_1(below_1: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(below_supervisor.SUPERVISOR, "1")
    if not below_supervisor.supervised():
        raise StillGreenError("a run below process 1 is supervised twice")


@pytest.mark.parametrize("above", ["2", "0"])
def test_a_supervisor_that_is_another_process(below_1: None, monkeypatch: pytest.MonkeyPatch, above: str):
    """No way to green: process 1 is no supervisor where another one is named."""
    monkeypatch.setenv(below_supervisor.SUPERVISOR, above)
    assert not below_supervisor.supervised()


def suites_in(tmp_path: Path, way: str) -> Path:
    """A folder of suites, of which a part lies elsewhere."""
    elsewhere, suites = tmp_path / "elsewhere", tmp_path / "suites"
    (elsewhere / "data").mkdir(parents=True)
    (elsewhere / "x.yaml").write_text("")
    if way == "all":
        suites.symlink_to(elsewhere)
    else:
        suites.mkdir()
        name = {"suite": "x.yaml", "tensors": "data", "counts": "compared.csv"}.get(way)
        if name:
            (suites / name).symlink_to(elsewhere / name)
    return suites


@pytest.mark.parametrize("way", ["suite", "tensors", "counts", "all"])
def test_a_suite_that_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], way: str
):
    suites = suites_in(tmp_path, way)
    monkeypatch.setattr(seal, "SUITES", suites)
    monkeypatch.setattr(seal, "seal", begins)  # what every run does first
    try:
        code = supervisor.supervise([str(suites)], tmp_path, tmp_path, tmp_path / "runs")
    except BegunError:
        raise StillGreenError("a run begins") from None
    assert code == 64 and " is a link to " in capsys.readouterr().err


def test_a_suite_that_lies_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No way to green: nothing is a link."""
    suites = suites_in(tmp_path, "none")
    monkeypatch.setattr(seal, "SUITES", suites)
    monkeypatch.setattr(seal, "seal", begins)
    with pytest.raises(BegunError):
        supervisor.supervise([str(suites)], tmp_path, tmp_path, tmp_path / "runs")


@pytest.mark.parametrize("words", [[], ["--base", "HEAD"], ["--save"]], ids=["stored", "revision", "saved"])
def test_a_gate_of_suites_that_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
):
    suites = tmp_path / "suites"
    suites.symlink_to(seal.SUITES)
    monkeypatch.setattr(seal, "SUITES", suites)
    for begin in ("_against_revision", "latest_bench"):
        monkeypatch.setattr(f"harness.commands.gate.{begin}", begins)
    try:
        must_be_red(command(capsys, "gate", *words), "is a link to", code=64)
    except BegunError:
        raise StillGreenError("a gate begins") from None
