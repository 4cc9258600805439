"""The kernels of gemm_ordered on the emulator: unit amaxes make the fused epilogue the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import output_of

from harness.device.emulator import EmulatorDevice
from harness.suite.suite import find_case
from harness.verify.expected import expect

TOKEN = "1x128x128/normal/eager"


@pytest.mark.parametrize("target", EmulatorDevice.targets)
def test_the_fused_epilogue_with_unit_amaxes_is_the_plain_kernel(target):
    fused, plain = (find_case(f"gemm_ordered/epilogue={name}/{TOKEN}") for name in ("per_token_fused", "per_token"))
    tensors = dict(expect(fused).inputs)
    assert (output_of(fused, target, tensors) != output_of(plain, target, tensors)).any()
    tensors |= {name: np.ones_like(tensors[name]) for name in ("a_amax", "b_amax")}
    np.testing.assert_array_equal(output_of(fused, target, tensors), output_of(plain, target, tensors))
