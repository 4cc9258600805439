"""Run a case, or functions of the kernels' headers, on the emulator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import oracle_of
from harness.files import KERNELS
from harness.jit.compile import FLAGS, include_closure
from harness.jit.nvrtc import build
from ptx_emulator.launches import Module


def output_of(case: Case, target: str, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """The field `output` of one run on these inputs."""
    fields = oracle_of(case.recipe).outputs(case)
    outcome = EmulatorDevice().prepare(case, target, tensors, fields).run(0xA5, 0)
    assert not outcome.trespass
    return outcome.outputs["output"]


def compiled(header: str, source: str, arch: str = "sm_90a") -> Module:
    """Kernels of a test, which call functions of a header of harness/kernels."""
    sources = {**include_closure(KERNELS / header, KERNELS), "test.cu": f'#include "{header}"\n{source}'}
    return Module(build("test.cu", sources, (), (*FLAGS, f"-arch={arch}")).ptx)
