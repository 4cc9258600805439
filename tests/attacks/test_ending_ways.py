"""Ways to keep a run from ending, or to have it end in a traceback; and trees whose files lie elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_here import command
from ways import must_be_red

from harness.records import seal
from harness.runner import below_supervisor


def test_a_parent_that_ignores_its_children():
    words = f"trap '' CHLD; exec {sys.executable} -m harness verify casts --case nonsense"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60)
    must_be_red(done, "'nonsense' is not a recipe of this run", code=64)


def test_a_folder_that_is_gone(tmp_path: Path):
    words = f"cd {tmp_path} && rmdir {tmp_path} && exec {sys.executable} -m harness list"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60)
    must_be_red(done, "error: the current folder: No such file or directory", code=64)


@pytest.mark.parametrize("above, expected", [("1", True), ("2", False), ("0", False)])
def test_a_supervisor_that_is_process_1(monkeypatch: pytest.MonkeyPatch, above: str, expected: bool):
    monkeypatch.setenv(below_supervisor.SUPERVISOR, above)
    monkeypatch.setattr(below_supervisor, "_runs_child", lambda pid: pid == os.getpid())
    monkeypatch.setattr(below_supervisor, "_parent", lambda pid: 1 if pid == os.getpid() else 0)
    monkeypatch.setattr(below_supervisor, "_program", lambda pid: "python")
    assert below_supervisor.supervised() is expected


@pytest.mark.parametrize("way", ["suite", "tensors", "counts", "all", "none"])
def test_a_suite_that_lies_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str):
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
    monkeypatch.setattr(seal, "SUITES", suites)
    assert len(seal.links()) == (way != "none")


@pytest.mark.parametrize("words", [[], ["--base", "HEAD"], ["--save"]], ids=["stored", "revision", "saved"])
def test_a_gate_of_suites_that_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
):
    suites = tmp_path / "suites"
    suites.symlink_to(seal.SUITES)
    monkeypatch.setattr(seal, "SUITES", suites)
    must_be_red(command(capsys, "gate", *words), "is a link to", code=64)
