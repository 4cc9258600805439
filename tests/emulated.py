"""Kernels on the emulator: a copy of them with one wrong line, and what one run of a case writes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from harness.case import Case
from harness.device.emulator import EmulatorDevice
from harness.expectation import oracle_of
from harness.signature import KERNELS


def with_wrong_line(folder: Path, file: str, right: str, wrong: str) -> Path:
    """All kernels, in a folder of their own, `wrong` being where one of their files has `right`."""
    kernels = shutil.copytree(KERNELS, folder / "kernels")
    source = (kernels / file).read_text()
    assert source.count(right) == 1, f"{file} has the line that this test breaks {source.count(right)} times"
    (kernels / file).write_text(source.replace(right, wrong))
    return kernels


def output_of(case: Case, target: str, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """The field `output` of one run on these inputs."""
    fields = oracle_of(case.recipe).outputs(case)
    outcome = EmulatorDevice().prepare(case, target, tensors, fields).run(0xA5, 0)
    assert not outcome.trespass
    return outcome.outputs["output"]
