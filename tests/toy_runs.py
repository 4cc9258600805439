"""Runs of pytest on a suite whose verification is a fake: nothing is compiled or run."""

from __future__ import annotations

import json

import pytest
from processes import python_path

import harness.device
import harness.report
import harness.report.tables
import harness.runner.process
import harness.verify
from harness.files import ROOT

# Imported by every process of a run, pytest-xdist workers included. A verdict is chosen by a part of the case id.
CONFTEST = """
import errno, json, os, time
from pathlib import Path
import harness.device, harness.report.tables, harness.verify
import harness.report, harness.runner.process
from harness.errors import DeviceUnavailable, InputError, StorageError
from harness.verdict import Result, Verdict

HERE = Path(__file__).parent

class FakeDevice:
    name, targets, modes, subject_label = "emulator", ("sm_90a",), frozenset({"eager"}), ""
    memory = 1 << 30
    def identity(self):
        return {"device": "emulator"}
    broken = ""
    def lost(self):
        if self.broken == "GONE":
            raise DeviceUnavailable("GPU 0 is there no more: cudaErrorNoDevice")
        return self.broken and "cudaErrorIllegalAddress"

def select(name="auto", index=0):
    if name == "cuda":
        raise DeviceUnavailable("device 'cuda' was asked for, and CUDA sees no GPU")
    return FakeDevice()

def verify(case, device, numpy_largest):
    with (HERE / "verified.txt").open("a") as file:
        print(case.id, os.environ.get("PYTEST_XDIST_WORKER", ""), file=file)
    chosen = json.loads((HERE / "verdicts.json").read_text())
    word = next((verdict for part, verdict in chosen.items() if part in case.id), "PASS")
    if word == "CTRL-C":
        raise KeyboardInterrupt
    if word == "INPUT":
        raise InputError("the tensor has 3 dimensions; a case takes 2")
    if word == "BUG":
        raise ZeroDivisionError("nobody meant this")
    if word == "SLOW":
        time.sleep(0.1)
        word = "PASS"
    if word == "WAIT":
        while not (HERE / "go on").exists():
            time.sleep(0.01)
        word = "PASS"
    if word == "HANG":
        time.sleep(1000)
    if word == "EXIT":
        os._exit(3)
    if word == "FULL":
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/of/kernels")
    if word in ("STICKY", "LOUD", "GONE"):
        device.broken = word
    if word in ("LOUD", "GONE"):
        raise RuntimeError("CUDA error")
    if word == "STICKY":
        word = "LAUNCH_ERROR"
    if device.broken:
        word = "MISMATCH" if word == "PASS" else word
    story = "" if word in ("PASS", "EXCLUDED") else f"THE STORY of {case.id}\\nthe end of it"
    ran = ("sm_90a toy<bf16>",) if word == "PASS" else ()
    compared = ((), (), 0) if word == "EXCLUDED" else (ran, ("numpy",), 100)
    return Result(case.id, case.recipe, Verdict(word), "a reason", story, case.input, "emulator", ("sm_90a",),
                  *compared, 0.5)

def write_verify(run_dir, records, asked=None, about=None):
    if (HERE / "full").exists():
        raise StorageError("report.html cannot be written: No space left on device")
    path = run_dir / "report.html"
    path.write_text(str(len(records)))
    return [path]

harness.runner.process.select_device, harness.runner.process.verify = select, verify
harness.report.tables.write_verify = write_verify
"""

SMOKE = 8  # cases in the smoke set of the toy suite


class Runs:
    """Runs pytest in a folder with the toy suite."""

    def __init__(self, pytester: pytest.Pytester):
        self.pytester = pytester
        self.run_dir = pytester.path / "out"

    def verdicts(self, **chosen: str) -> None:
        (self.pytester.path / "verdicts.json").write_text(
            json.dumps({k.replace("_", "/"): v for k, v in chosen.items()})
        )

    def __call__(self, *arguments: str, fork: bool = False) -> pytest.RunResult:
        run = self.pytester.runpytest_subprocess if fork else self.pytester.runpytest_inprocess
        # Without the plugin of Hypothesis, which imports Hypothesis again for every summary and takes a second.
        return run("-p", "harness.plugin", "-p", "no:hypothesispytest", "--run-dir", "out", *arguments)

    def verified(self) -> list[str]:
        path = self.pytester.path / "verified.txt"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def journal(self) -> list[dict]:
        return [json.loads(line) for line in (self.run_dir / "journal.jsonl").read_text().splitlines()][1:]


def toy_runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, suite_text: str) -> Runs:
    """Runs in the folder of `pytester`."""
    # Set to themselves, so that what CONFTEST puts in their place in this process is undone.
    for module, name in (
        (harness.runner.process, "select_device"),
        (harness.runner.process, "verify"),
        (harness.report.tables, "write_verify"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))
    pytester.makeconftest(CONFTEST)
    folder = pytester.mkdir("suites")
    (folder / "toy.yaml").write_text(suite_text)
    (folder / "schema.json").write_text("{}")
    runs = Runs(pytester)
    runs.verdicts()
    return runs
