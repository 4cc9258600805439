"""The exit code of a mistake is the table's through every door: pytest, `harness`, and make, which prints it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.errors import Exit
from harness.files import ROOT

PYTEST = [sys.executable, "-m", "pytest", "suites/casts.yaml"]
HARNESS = [sys.executable, "-m", "harness", "verify", "casts"]


def ended(words: list[str]) -> tuple[int, str]:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def _slow(*values: object):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize("door", [PYTEST, HARNESS], ids=["pytest", "harness"])
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--devise=cuda"], Exit.USAGE, "error: there is no option '--devise'; did you mean '--device'?\n"),
        _slow(["--case-timeout", "-3"], Exit.USAGE, "error: --case-timeout '-3' is no number of seconds"),
        _slow(["--set", "nope"], Exit.USAGE, "error: there is no set 'nope' in suites/casts.yaml"),
        _slow(["--subject", ""], Exit.USAGE, "error: --subject is empty; name one, or leave --subject out\n"),
        _slow(["--cluster", ""], Exit.USAGE, "error: --cluster is empty"),
        _slow(["--set", ""], Exit.USAGE, "error: --set is empty"),
        _slow(["--recipe-dir", "nope"], Exit.USAGE, "nope with recipes; `harness new NAME` makes one"),
    ],
    ids=str,
)  # fmt: skip
def test_a_mistake_ends_alike(door, words, code, says):
    found, printed = ended([*door, *words])
    assert (found, says in printed) == (code, True), printed
    assert printed.count("error:") == 1 and "usage:" not in printed.replace("(usage)", "")


@pytest.mark.slow
def test_a_device_that_pytest_does_not_know_is_a_mistake():
    code, printed = ended([*PYTEST, "--device", "tpu"])
    assert code == Exit.USAGE and "error: there is no device 'tpu'; choose auto, emulator or cuda" in printed


def test_a_device_that_is_not_there_is_told_apart(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, printed = ended([*PYTEST, "--device", "cuda"])
    assert code == Exit.NO_DEVICE and " without a result; exit 4 (no device)" in printed


def test_make_prints_the_code_that_it_hides():
    words = ["make", "verify", "VENV=", f"PYTHON={sys.executable}", "R=casts", "ARGS=-k nothing_like_it", "JOBS=0"]
    code, printed = ended(words)
    assert code == 2  # make's own
    assert "selected, 0 compared, 0 excluded; exit 64 (usage)" in printed


def test_without_assertions_nothing_runs(monkeypatch):
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    code, printed = ended(HARNESS)
    assert (code, printed.count("\n")) == (Exit.USAGE, 1), printed
    assert printed.startswith("error: python runs with -O or PYTHONOPTIMIZE, under which pytest asserts nothing")


def test_what_compares_nothing_is_no_wrong_kernel(tmp_path):
    code, printed = ended([*HARNESS, "--version", "--run-dir", str(tmp_path / "run")])
    assert code == Exit.USAGE and "error: nothing was compared" in printed and " 0 compared" in printed
