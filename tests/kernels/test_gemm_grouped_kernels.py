"""gemm_grouped on the emulator: every group has the bytes of the dense kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulated import output_of

from harness.device.emulator import EmulatorDevice
from harness.expected.expected import expect
from harness.jit.geometry import LaunchGeometry
from harness.oracles import gemm_grouped, nvfp4
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.verify import verify

TENSOR = "b_e4m3_max=256,alpha=-2/0+128+0+128+0x16x16"
ROWS = "epilogue=row_scaled,layout=nn,b_scale_layout=swizzled,bias=true,accumulate=true/128+0+128x16x16"
TOKENS = "epilogue=per_token_fused,a_scale_layout=swizzled/128+0+128x128x128"
WIDE = "beta=0.5/0+0+256x80x144"
ANY_M = "epilogue=row_scaled,a_scale_layout=swizzled,b_scale_layout=swizzled/1+130+0+17x144x48"
WGRAD = "shape_representation=varying_last_dim,layout=nt,a_scale_layout=swizzled/144x16+0+80+64x32"
MAIN_GRAD = (
    "shape_representation=varying_last_dim,epilogue=per_token_fused,dtype=fp32,layout=nt,b_scale_layout=swizzled,"
    "accumulate=true/48x128+0+144x144"
)
BOTH = "shape_representation=varying_both_dims"
EACH = "16+0+144+16+32x144+16+32+48+0x16+48+144+0+16"


def _case(text, input_name="normal"):
    return find_case(f"gemm_grouped/{text}/{input_name}/eager")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "input_name"),
    [
        (WIDE, "normal"),
        (TOKENS, "outliers_rows"),
        ("dtype=fp32/128+0+0x272x48", "wide_sum"),
        ("epilogue=row_scaled,b_granularity=tensor/0+128+128x144x16", "normal"),
        (ANY_M, "wide_sum"),
        (WGRAD, "wide_sum"),
        (MAIN_GRAD, "normal"),
        (f"{BOTH},a_e4m3_max=256,alpha=-2/{EACH}", "wide_sum"),
        (f"{BOTH},epilogue=row_scaled,layout=nn,b_scale_layout=swizzled,bias=true,accumulate=true/{EACH}", "normal"),
    ],
)
def test_every_group_is_what_the_dense_kernel_makes_of_it(text, input_name):
    """Bit for bit, where sums round and the contract of either alone is an interval."""
    case = _case(text, input_name)
    tensors = expect(case).inputs
    for target in EmulatorDevice.targets:
        written, start = output_of(case, target, tensors).reshape(-1), 0
        for g, part in enumerate(case.parts):
            size = part.rows * part.problem.n * np.dtype(nvfp4.DTYPES[case.flags.dtype]).itemsize
            own, start = written[start : start + size], start + size
            if size and part.cols:
                dense = _by_the_same_kernel(part, target, case, tensors, g)
                np.testing.assert_array_equal(own, dense.reshape(-1))
        assert start == len(written)


def _by_the_same_kernel(alone, target, case, tensors, g):
    """Up to 64 rows, `gemm_skinny` sums in an order of its own; rows that are repeated do not change the others."""
    given = dict(gemm_grouped.inputs_of(case, tensors, g))
    m = alone.problem.m
    if m > 64:
        return _lines(alone, output_of(alone, target, given))
    taller = replace(alone, problem=replace(alone.problem, m=128))
    for name in ("a_data", "a_amax", "c"):
        if name in given and len(given[name]) == m:
            given[name] = np.concatenate([given[name], np.repeat(given[name][:1], 128 - m, axis=0)])
    return _lines(taller, output_of(taller, target, given))[:m]


def _lines(case, written):
    """The bytes of each row of an output."""
    return written.reshape(-1, case.problem.n * np.dtype(nvfp4.DTYPES[case.flags.dtype]).itemsize)


def test_a_group_without_k_is_the_epilogue_of_zeros():
    case = _case(MAIN_GRAD)
    tensors = expect(case).inputs
    written = _lines(case, output_of(case, "sm_90a", tensors))
    np.testing.assert_array_equal(written[48:96], tensors["c"][48:96].view(np.uint8))
    case = _case("shape_representation=varying_last_dim,layout=nt,bias=true/16x0+32x16")
    tensors = expect(case).inputs
    written = _lines(case, output_of(case, "sm_90a", tensors))
    np.testing.assert_array_equal(written[:16], np.broadcast_to(tensors["bias"][:16].view(np.uint8), (16, 32)))


def test_a_group_has_the_same_bytes_wherever_empty_ones_are():
    first, *others = (
        _case(f"default/{shape}x144x16", "wide_sum") for shape in ("128+128", "0+128+128", "128+0+0+128", "128+128+0")
    )
    tensors = expect(first).inputs
    right = output_of(first, "sm_90a", tensors)
    for case in others:
        place = np.flatnonzero(case.problem.group.first_dims)
        spread = dict(expect(case).inputs)
        for name in ("a_data", "a_scale_inv", "b_data", "b_scale_inv", "a_amax", "b_amax"):
            if name in ("a_data", "a_scale_inv"):  # which an empty group has none of
                spread[name] = tensors[name]
            else:
                groups = spread[name].reshape(len(case.problem.tensors), -1, *spread[name].shape[1:]).copy()
                groups[place] = tensors[name].reshape(2, -1, *tensors[name].shape[1:])
                spread[name] = groups.reshape(-1, *spread[name].shape[1:])
        np.testing.assert_array_equal(output_of(case, "sm_90a", spread), right)


def test_more_ctas_than_tiles_change_nothing(monkeypatch):
    """A host that does not know the extents may launch more."""
    case = _case(WIDE)
    right = output_of(case, "sm_90a", expect(case).inputs)
    ctas = LaunchGeometry.grid(LaunchGeometry(128, 128, 128, 0, 0), case.problem, 4)[0]
    assert ctas == 2 * 2
    monkeypatch.setattr(LaunchGeometry, "grid", lambda self, case, multiprocessors: (ctas + 5, 1, 1))
    np.testing.assert_array_equal(output_of(case, "sm_90a", expect(case).inputs), right)


def test_nothing_to_do():
    result = verify(_case("default/0+0x16x16", "exact_sum"), EmulatorDevice())
    assert result.verdict is Verdict.PASS, result.story


def test_the_fused_epilogue_with_unit_amaxes_is_the_plain_kernel():
    fused = _case("epilogue=per_token_fused/128+0+128x128x128")
    plain = [replace(fused.part(g), flags=fused.part(g).flags.replace(epilogue="per_token")) for g in (0, 2)]
    tensors = dict(expect(fused).inputs)
    tensors |= {name: np.ones_like(tensors[name]) for name in ("a_amax", "b_amax")}
    given = [gemm_grouped.inputs_of(fused, tensors, g) for g in (0, 2)]
    parts = [output_of(case, "sm_90a", group) for case, group in zip(plain, given, strict=True)]
    np.testing.assert_array_equal(output_of(fused, "sm_90a", tensors), np.concatenate(parts))
