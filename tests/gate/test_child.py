"""A command below a gate ends with it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.files import ROOT
from harness.gate import child


def test_it_runs_this_harness_and_tells_how_it_ended():
    done = child.harness("list", "nope", cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout) == (64, "")
    assert "nope" in done.stderr


def test_one_whose_gate_was_killed_ends(tmp_path: Path):
    sleeper, number = tmp_path / "sleeper", tmp_path / "pid"
    sleeper.write_text(f"#!/bin/sh\necho $$ > {number}.new; mv {number}.new {number}; exec sleep 60\n")
    sleeper.chmod(0o755)
    program = f"import sys; sys.executable = {str(sleeper)!r}\nfrom harness.gate import child; child.harness()"
    gate = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    _until(number.exists)
    gate.kill()
    gate.wait()
    _until(lambda: not _runs(int(number.read_text())))


def _runs(pid: int) -> bool:
    """Whether a process exists and is not a zombie; in a container there may be nobody to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _until(done) -> None:
    for _ in range(300):
        if done():
            return
        time.sleep(0.1)
    pytest.fail("not within 30 s")
