"""Run a case on the emulator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import oracle_of


def output_of(case: Case, target: str, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """The field `output` of one run on these inputs."""
    fields = oracle_of(case.recipe).outputs(case)
    outcome = EmulatorDevice().prepare(case, target, tensors, fields).run(0xA5, 0)
    assert not outcome.trespass
    return outcome.outputs["output"]
