"""The kernels of gemm_ordered on the emulator: one wrong line is caught, and unit amaxes make the fused one plain."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import output_of, with_wrong_line

from harness.device.emulator import EmulatorDevice
from harness.expectation import expect
from harness.suite import find_case
from harness.verdict import Verdict
from harness.verify import verify

SMALL, TOKEN = "16x64x16/normal/eager", "1x128x128/normal/eager"
WRONG = {
    "last block first": (
        "gemm_ordered.cu",
        "for (int block = 0; block < K / kBlock; ++block)",
        "for (int block = K / kBlock - 1; block >= 0; --block)",
        "default/16x64x16/wide_sum/eager",
        Verdict.MISMATCH,
    ),
    "a scale left out": (
        "gemm_ordered.cu",
        "dot = __fadd_rn(dot, __fmul_rn(a.code[row][i], b.code[col][i]));\n"
        "  return __fmul_rn(__fmul_rn(a.scale[row], b.scale[col]), dot);",
        "dot = __fadd_rn(dot, __fmul_rn(a.code[row][i], b.code[col][i]));\n  return __fmul_rn(a.scale[row], dot);",
        f"dtype=fp32/{SMALL}",
        Verdict.MISMATCH,
    ),
    "no barrier after a block": (
        "gemm_ordered.cu",
        "tile_row, tile_col));\n    __syncthreads();",
        "tile_row, tile_col));",
        f"default/{SMALL}",
        Verdict.NONDETERMINISTIC,
    ),
    "the scale layout of the other operand": (
        "gemm_ordered.cu",
        "decode_tile<a_scale_layout>(a,",
        "decode_tile<b_scale_layout>(a,",
        "a_scale_layout=swizzled/48x80x16/normal/eager",
        Verdict.MISMATCH,
    ),
    "rows beyond the last": (
        "gemm_ordered.cu",
        "inside = row < M && col < N",
        "inside = col < N",
        f"epilogue=row_scaled/{TOKEN}",
        Verdict.UNWRITTEN,
    ),
    "448 for 256": (
        "gemm_ordered.cu",
        "accumulator_scale(float(a_e4m3_max), float(b_e4m3_max))",
        "accumulator_scale(float(a_e4m3_max), float(a_e4m3_max))",
        f"b_e4m3_max=256/{SMALL}",
        Verdict.MISMATCH,
    ),
    "alpha ignored": (
        "epilogues.cuh",
        "__fmul_rn(p.alpha, __ldg(p.a_amax))",
        "__ldg(p.a_amax)",
        f"alpha=-2/{SMALL}",
        Verdict.MISMATCH,
    ),
    "beta ignored": ("epilogues.cuh", "__fmaf_rn(p.beta,", "__fmaf_rn(1.0f,", f"beta=0.5/{SMALL}", Verdict.MISMATCH),
    "accumulated before it is rounded": (
        "epilogues.cuh",
        "__fadd_rn(to_float(rounded<Dtype>(out)),",
        "__fadd_rn(out,",
        "epilogue=row_scaled,accumulate=true/48x80x32/normal/eager",
        Verdict.MISMATCH,
    ),
    "bias ignored": (
        "epilogues.cuh",
        "if (p.bias != nullptr)",
        "if (false)",
        f"epilogue=row_scaled,bias=true/{SMALL}",
        Verdict.MISMATCH,
    ),
    "row and column factors swapped": (
        "epilogues.cuh",
        "__fmul_rn(__fmul_rn(to_float(value), a_amax), b_amax)",
        "__fmul_rn(__fmul_rn(to_float(value), b_amax), a_amax)",
        "epilogue=per_token/16x128x128/exact_sum/eager",
        Verdict.MISMATCH,
    ),
    "the fused constant first": (
        "epilogues.cuh",
        "__fmul_rn(__ldg(p.a_amax + row), acc));\n    return rounded<Dtype>(__fmul_rn(p.c_ab, scaled));",
        "__fmul_rn(__ldg(p.a_amax + row), __fmul_rn(p.c_ab, acc)));\n    return rounded<Dtype>(scaled);",
        "epilogue=per_token_fused/16x128x128/exact_sum/eager",
        Verdict.MISMATCH,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_line_is_caught(name, tmp_path):
    file, right, wrong, case, verdict = WRONG[name]
    kernels = with_wrong_line(tmp_path, file, right, wrong)
    result = verify(find_case(f"gemm_ordered/{case}"), EmulatorDevice(kernels=kernels))
    assert result.verdict is verdict, result.story
    if verdict is Verdict.MISMATCH:
        assert "of A by row" in result.story


@pytest.mark.parametrize("case", sorted({case for *_, case, _ in WRONG.values()}))
def test_the_same_cases_pass_with_the_right_lines(case):
    result = verify(find_case(f"gemm_ordered/{case}"), EmulatorDevice())
    assert result.verdict is Verdict.PASS, result.story


@pytest.mark.parametrize("target", EmulatorDevice.targets)
def test_the_fused_epilogue_with_unit_amaxes_is_the_plain_kernel(target):
    fused, plain = (find_case(f"gemm_ordered/epilogue={name}/{TOKEN}") for name in ("per_token_fused", "per_token"))
    tensors = dict(expect(fused).inputs)
    assert (output_of(fused, target, tensors) != output_of(plain, target, tensors)).any()
    tensors |= {name: np.ones_like(tensors[name]) for name in ("a_amax", "b_amax")}
    np.testing.assert_array_equal(output_of(fused, target, tensors), output_of(plain, target, tensors))
