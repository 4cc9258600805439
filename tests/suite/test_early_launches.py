"""Launches that may begin before the one ahead has ended: what a suite may say, who is early, and a wait left out."""

from __future__ import annotations

import shutil

import pytest
from suite_files import assert_mistake

from harness.device.emulator import EmulatorDevice
from harness.files import KERNELS
from harness.suite.launch_plan import plan
from harness.suite.suite import find_case
from harness.verify.verify import verify

TEXT = """\
recipe: routed
contract: NUMERICS 0
gemm: true
axes: {dtype: [bf16]}
launches:
  - kernel: first
  - kernel: second
    early: true
  - library: cublas_gemm
sets: {smoke: &one [{shapes: [[4, 16, 16]], inputs: [normal]}], full: *one, bench: *one}
"""
WAIT = "      if (pass == 0) wait_for_launch_ahead();\n"


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("kernel: first", "kernel: first\n    early: true", 7, "the first launch, first, is early"),
        ("early: true", "early: true\n    fits: true", 7, "whose blocks all run at once, cannot be early"),
        ("cublas_gemm", "cublas_gemm\n    early: true", 9, "of a library, which waits for nothing, cannot be early"),
    ],
)
def test_launches_that_cannot_be_early(tmp_path, old, new, line, sentence):
    assert_mistake(tmp_path, TEXT, (old, new), sentence, line)


def early(case_id: str) -> list[bool]:
    return [step.early for step in plan(find_case(case_id))]


def test_the_first_launch_of_a_stage_is_never_early():
    assert early("per_tensor/default/48x80/normal/eager") == [False, True]
    assert early("per_tensor/stage=encode/48x80/normal/eager") == [False]
    assert early("row_scaled/outputs=both/48x80/normal/eager") == [False, True, True]


def test_the_emulator_names_a_wait_that_is_left_out(tmp_path):
    kernels = tmp_path / "kernels"
    shutil.copytree(KERNELS, kernels)
    source = kernels / "encode" / "per_tensor.cuh"
    source.write_text(source.read_text().replace(WAIT, ""))
    result = verify(find_case("per_tensor/default/16x16/normal/eager"), EmulatorDevice(kernels))
    assert "no griddepcontrol.wait comes before; it let others begin at" in str(result)
