"""gemm_grouped on the emulator: every group has the bytes of the dense kernel, and one wrong line is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulated import output_of, with_wrong_line

from harness.device.emulator import EmulatorDevice
from harness.expectation import expect
from harness.launch import Launch
from harness.oracles import gemm_grouped
from harness.suite import find_case
from harness.verdict import Verdict
from harness.verify import verify

TENSOR = "b_e4m3_max=256,alpha=-2/0+128+0+128+0x16x16"
ROWS = "epilogue=row_scaled,layout=nn,b_scale_layout=swizzled,bias=true,accumulate=true/128+0+128x16x16"
TOKENS = "epilogue=per_token_fused,a_scale_layout=swizzled/128+0+128x128x128"
WIDE = "beta=0.5/0+0+256x80x144"

WRONG = {
    "an empty group has a tile": (
        "gemm_grouped.cu",
        "return tiles_in(rows) * tiles_in(N);",
        "return max(tiles_in(rows), 1u) * tiles_in(N);",
        TENSOR,
    ),
    "a tile for rows only": ("gemm_grouped.cu", "return tiles_in(rows) * tiles_in(N);", "return tiles_in(rows);", WIDE),
    "the A of the first group": (
        "gemm_grouped.cu",
        "(a_data, a_scale_inv, group.row, group.row,",
        "(a_data, a_scale_inv, 0, group.row,",
        TENSOR,
    ),
    "the scales of the first group's A": (
        "gemm_grouped.cu",
        "(a_data, a_scale_inv, group.row, group.row,",
        "(a_data, a_scale_inv, group.row, 0,",
        TOKENS,
    ),
    "the B of the first group": ("gemm_grouped.cu", "b_scale_inv, found.index * N,", "b_scale_inv, 0,", TENSOR),
    "scales of B without their padding": (
        "gemm_grouped.cu",
        "found.index * round_up(N, kScalePadding)",
        "found.index * N",
        TENSOR,
    ),
    "no B for an empty group": (
        "gemm_grouped.cu",
        "b_data, b_scale_inv, found.index * N,",
        "b_data, b_scale_inv, found.index / 2 * N,",
        TENSOR,
    ),
    "the alpha of the first group": (
        "gemm_grouped.cu",
        "own.a_amax += kOneOfA ? found.index",
        "own.a_amax += kOneOfA ? 0",
        TENSOR,
    ),
    "the alpha of the first group's B": (
        "gemm_grouped.cu",
        "own.b_amax += kOneOfB ? found.index",
        "own.b_amax += kOneOfB ? 0",
        TENSOR,
    ),
    "the rows' amaxes of the first group": (
        "gemm_grouped.cu",
        "found.index : row;",
        "found.index : 0;",
        TOKENS,
    ),
    "the columns' amaxes of the first group": ("gemm_grouped.cu", "found.index : col;", "found.index : 0;", TOKENS),
    "the C of the first group": ("gemm_grouped.cu", "own.c += row_offset(row, own.N);", "own.c += 0;", ROWS),
    "the bias of the first group": ("gemm_grouped.cu", "own.bias += col;", "own.bias += 0;", ROWS),
    "the output of the first group": (
        "gemm_grouped.cu",
        "return {output + row_offset(row, own.N),",
        "return {output,",
        TENSOR,
    ),
    "rows and columns of tiles swapped": (
        "gemm_grouped.cu",
        "{int(found.item / across) * kTile, int(found.item % across) * kTile}",
        "{int(found.item % across) * kTile, int(found.item / across) * kTile}",
        "default/0+256x16x16",
    ),
    "blocks beyond the last tile go on": (
        "gemm_grouped.cu",
        "if (found.index >= num_tensors) return;",
        "",
        "default/0x16x16",
    ),
    "the place is read before it is there": (
        "grouped.cuh",
        "      found = {index, tensor, item - tensor.item};\n    }\n  }\n  __syncthreads();",
        "      found = {index, tensor, item - tensor.item};\n    }\n  }",
        TENSOR,
    ),
}


def _case(text, input_name="normal"):
    return find_case(f"gemm_grouped/{text}/{input_name}/eager")


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_line_is_caught(name, tmp_path):
    file, right, wrong, case = WRONG[name]
    kernels = with_wrong_line(tmp_path, file, right, wrong)
    result = verify(_case(case), EmulatorDevice(kernels))
    assert result.verdict not in (Verdict.PASS, Verdict.COMPILE_ERROR, Verdict.EXCLUDED), result.story


@pytest.mark.parametrize("case", sorted({case for *_, case in WRONG.values()}))
def test_the_same_cases_pass_with_the_right_lines(case):
    result = verify(_case(case), EmulatorDevice())
    assert result.verdict is Verdict.PASS, result.story


@pytest.mark.parametrize(
    ("text", "input_name"),
    [
        (WIDE, "normal"),
        (TOKENS, "outliers_rows"),
        ("dtype=fp32/128+0+0x272x48", "wide_sum"),
        ("epilogue=row_scaled,b_granularity=tensor/0+128+128x144x16", "normal"),
    ],
)
def test_every_group_is_what_the_dense_kernel_makes_of_it(text, input_name):
    """Bit for bit, where sums round and the contract of either alone is an interval."""
    case = _case(text, input_name)
    tensors = expect(case).inputs
    for target in EmulatorDevice.targets:
        written = output_of(case, target, tensors)
        dense = [
            output_of(case.dense(g), target, gemm_grouped.inputs_of(case, tensors, g))
            for g, (rows, _) in enumerate(case.tensors)
            if rows
        ]
        np.testing.assert_array_equal(written, np.concatenate(dense))


def test_a_group_has_the_same_bytes_wherever_empty_ones_are():
    first, *others = (
        _case(f"default/{shape}x144x16", "wide_sum") for shape in ("128+128", "0+128+128", "128+0+0+128", "128+128+0")
    )
    tensors = expect(first).inputs
    right = output_of(first, "sm_90a", tensors)
    for case in others:
        place = np.flatnonzero(case.grouped.first_dims)
        spread = dict(expect(case).inputs)
        for name in ("a_data", "a_scale_inv", "b_data", "b_scale_inv", "a_amax", "b_amax"):
            if name in ("a_data", "a_scale_inv"):  # which an empty group has none of
                spread[name] = tensors[name]
            else:
                groups = spread[name].reshape(len(case.tensors), -1, *spread[name].shape[1:]).copy()
                groups[place] = tensors[name].reshape(2, -1, *tensors[name].shape[1:])
                spread[name] = groups.reshape(-1, *spread[name].shape[1:])
        np.testing.assert_array_equal(output_of(case, "sm_90a", spread), right)


def test_more_blocks_than_tiles_change_nothing(monkeypatch):
    """A host that does not know the extents may launch more."""
    case = _case(WIDE)
    right = output_of(case, "sm_90a", expect(case).inputs)
    blocks = Launch.grid(Launch(128, 128, 128, 0, 0), case, 4)[0]
    assert blocks == 2 * 2
    monkeypatch.setattr(Launch, "grid", lambda self, case, multiprocessors: (blocks + 5, 1, 1))
    np.testing.assert_array_equal(output_of(case, "sm_90a", expect(case).inputs), right)


def test_nothing_to_do():
    result = verify(_case("default/0+0x16x16", "exact_sum"), EmulatorDevice())
    assert result.verdict is Verdict.PASS, result.story


def test_the_fused_epilogue_with_unit_amaxes_is_the_plain_kernel():
    fused = _case("epilogue=per_token_fused/128+0+128x128x128")
    plain = [replace(fused.dense(g), flags=fused.dense(g).flags.replace(epilogue="per_token")) for g in (0, 2)]
    tensors = dict(expect(fused).inputs)
    tensors |= {name: np.ones_like(tensors[name]) for name in ("a_amax", "b_amax")}
    given = [gemm_grouped.inputs_of(fused, tensors, g) for g in (0, 2)]
    parts = [output_of(case, "sm_90a", group) for case, group in zip(plain, given, strict=True)]
    np.testing.assert_array_equal(output_of(fused, "sm_90a", tensors), np.concatenate(parts))
