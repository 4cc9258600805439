"""Ways to green by changing what a verdict depends on while the run is stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from toy_runs import Runs
from ways import must_be_red

import harness.plugin
from harness.files import ROOT

SUBJECT = """
from helper import tiles_of

def swizzle(case, inputs, outputs):
    source = inputs["scale_inv"]
    tiles = tiles_of(source)
    outputs["swizzled_scale_inv"].reshape(tiles.shape)[...] = tiles
"""
HELPER = """
def tiles_of(source):
    rows, cols = source.shape
    return source.reshape(rows // 128, 4, 32, cols // 4, 4).transpose(0, 3, 2, 1, 4)
"""


def done(result: pytest.RunResult) -> CompletedProcess[str]:
    return CompletedProcess((), int(result.ret), result.stdout.str(), result.stderr.str())


def test_a_tensor_is_changed_before_the_rest_is_run(run: Runs):
    """Let a tensor of a file pass, change it, and resume: the report says that the tensor there now passed."""
    path = run.pytester.path / "x.npy"
    np.save(path, np.zeros((16, 16), np.float32))
    words = ("suites", "--case", f"toy/default/16x16/file:{path}/eager")
    assert run(*words).ret == 0
    np.save(path, np.ones((16, 16), np.float32))
    must_be_red(done(run(*words, "--resume")), "x.npy")


def test_a_helper_of_a_subject_is_changed_before_the_rest_is_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    """Let a subject pass with a helper of one kind, change the helper, and resume with what is its own."""
    # A run in this process is not supervised.
    monkeypatch.setattr(harness.plugin, "named_suites", lambda words, folder: ((), {}), raising=False)
    monkeypatch.syspath_prepend(str(pytester.path))
    for name in ("sealed_subject", "helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    pytester.makepyfile(sealed_subject=SUBJECT, helper=HELPER)
    words = (
        str(ROOT / "suites/swizzle.yaml"), "-p", "harness.plugin", "-p", "no:hypothesispytest",
        "--case", "swizzle/default/256x256/normal/eager", "--device", "emulator", "--run-dir", "out",
        "--subject", "sealed_subject:swizzle",
    )  # fmt: skip
    first = pytester.runpytest_inprocess(*words)
    assert first.ret == 0, first.stdout.str()
    Path("helper.py").write_text(HELPER.replace("return", "return 0 *"))
    must_be_red(done(pytester.runpytest_inprocess(*words, "--resume")), "helper.py")
