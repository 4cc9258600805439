"""The kernels of gemm on the emulator: a wrong line leaves the a-priori bound, on inputs whose sums round."""

from __future__ import annotations

import pytest
from emulated import with_wrong_line

from harness.device.emulator import EmulatorDevice
from harness.suite import find_case
from harness.verdict import Verdict
from harness.verify import verify

WRONG = {
    "the scales of the neighbouring blocks": (
        "gemm_tile.cuh",
        "two_scales(stage.scales[b_line(lane, i)], lane.member)",
        "two_scales(stage.scales[b_line(lane, i)], lane.member ^ 1)",
        "default/80x64x16/normal/eager",
    ),
    "a product left out": (
        "gemm_tile.cuh",
        "multiply_add(sum[i][j], wide[i], {line.pair[0], line.pair[1]});",
        "multiply_add(sum[i][j], wide[i], {quad == 3 ? line.pair[0] & 0xFFFFu : line.pair[0], line.pair[1]});",
        "dtype=fp32/80x48x16/normal/eager",
    ),
    "the amax of the row before": (
        "epilogues.cuh",
        "out = __fmul_rn(__fmul_rn(out, __ldg(p.a_amax + row)), __ldg(p.b_amax + col));",
        "out = __fmul_rn(__fmul_rn(out, __ldg(p.a_amax + (row ^ 1))), __ldg(p.b_amax + col));",
        "epilogue=row_scaled/80x48x16/normal/eager",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_line_leaves_the_bound(name, tmp_path):
    file, right, wrong, case = WRONG[name]
    kernels = with_wrong_line(tmp_path, file, right, wrong)
    result = verify(find_case(f"gemm/{case}"), EmulatorDevice(kernels=kernels))
    assert result.verdict is Verdict.MISMATCH, result.story
    assert "entries are outside their intervals" in result.story
    assert "beyond    " in result.story


@pytest.mark.parametrize("case", sorted({case for *_, case in WRONG.values()}))
def test_the_same_cases_pass_with_the_right_lines(case):
    result = verify(find_case(f"gemm/{case}"), EmulatorDevice())
    assert result.verdict is Verdict.PASS, result.story
