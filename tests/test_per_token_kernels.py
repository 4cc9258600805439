"""per_token's kernels beyond what a smoke set can hold: other grids, and wrong lines that must not pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import with_wrong_line

from harness.device.emulator import EmulatorDevice
from harness.suite import find_case
from harness.verdict import Verdict
from harness.verify import verify


@pytest.mark.parametrize("multiprocessors", [1, 3])
@pytest.mark.parametrize(
    "case_id",
    [
        # Fewer blocks than strips of columns; more rows for a block than it holds; teams of unequal shares.
        "per_token/rht=true,stage=amax/128x1408/row_scales/eager",
        "per_token/stage=amax/4864x128/row_scales/eager",
        "per_token/rht=true,stage=amax/384x640/row_scales/eager",
        "per_token/stage=amax,weight_2d=true/256x384/row_scales/eager",
    ],
)
def test_the_grid_changes_no_byte(case_id: str, multiprocessors: int):
    result = verify(find_case(case_id), EmulatorDevice(multiprocessors=multiprocessors))
    assert result.verdict is Verdict.PASS, result.story


WRONG = {
    "an accumulator that is left": (
        "per_token_amax.cuh",
        "__uint_as_float(atomicExch(maxima + line, 0u))",
        "__uint_as_float(atomicMax(maxima + line, 0u))",
        "stage=amax/128x640/row_scales",
        Verdict.OUT_OF_BOUNDS,
        "_state' is not zero after the last launch",
    ),
    "held rows overwritten before all warps have read them": (
        "per_token_amax.cuh",
        "if (!last) __syncthreads();",
        "",
        "stage=amax/4864x128/row_scales",
        Verdict.NONDETERMINISTIC,
        "race at",
    ),
    "the floor on the stored amax": (
        "per_token_amax.cuh",
        "amax[line] = __uint_as_float(atomicExch(maxima + line, 0u))",
        "amax[line] = fmaxf(__uint_as_float(atomicExch(maxima + line, 0u)), kWindowAmaxMin)",
        "stage=amax/256x128/zeros",
        Verdict.MISMATCH,
        "columnwise_amax",
    ),
    "no floor under the scale": (
        "per_token.cuh",
        "global_scale(amax, kE4m3Max) : window_scale(amax)",
        "global_scale(amax, kE4m3Max) : global_scale(amax, kE4m3Max)",
        "128x128/tiny_amax",
        Verdict.MISMATCH,
        "",
    ),
    "the reciprocal multiplier": (
        "per_token.cuh",
        "weight_2d ? Multiplier::reciprocal : Multiplier::direct",
        "weight_2d ? Multiplier::reciprocal : Multiplier::reciprocal",
        "128x128/scale_edges",
        Verdict.MISMATCH,
        "",
    ),
    "a rotated code without the quarter": (
        "per_token.cuh",
        "if constexpr (rht) multiplier = __fmul_rn(multiplier, kRhtNorm);",
        "",
        "rht=true/128x128/normal",
        Verdict.MISMATCH,
        "columnwise_data",
    ),
    "one random stream for rows and columns": (
        "per_token.cuh",
        "lines.scale[column], seed, index, 1, offset",
        "lines.scale[column], seed, index, 0, offset",
        "rounding=sr/128x128/normal",
        Verdict.MISMATCH,
        "columnwise_data",
    ),
    "swizzled columnwise scales": (
        "per_token.cuh",
        "store_inner_block<ScaleLayout::compact>",
        "store_inner_block<ScaleLayout::swizzled>",
        "128x128/normal",
        Verdict.MISMATCH,
        "columnwise_scale_inv",
    ),
    "a scale of the neighbouring line": (
        "per_token.cuh",
        "amax_of(role.row(i + odd))",
        "amax_of(role.row(i))",
        "128x128/row_scales",
        Verdict.MISMATCH,
        "rowwise_",
    ),
    "a tile that goes on before the others have come": (
        "resident.cuh",
        "while (*static_cast<const volatile u32*>(&by_row->arrived) < across)",
        "while (false)",
        "128x256/row_scales",
        Verdict.NONDETERMINISTIC,
        "race at",
    ),
    "a band that is left": (
        "resident.cuh",
        "atomicExch(maxima + i + lane, 0u)",
        "atomicMax(maxima + i + lane, 0u)",
        "128x128/normal",
        Verdict.OUT_OF_BOUNDS,
        "_bands' is not zero after the last launch",
    ),
    "a band of the other direction": (
        "per_token_resident.cuh",
        "columnwise_bands + u32(origin.col)",
        "columnwise_bands + u32(origin.row)",
        "128x256/outliers_cols",
        Verdict.MISMATCH,
        "columnwise_",
    ),
    "columns read before all rows are there": (
        "per_token_resident.cuh",
        "if constexpr (kByCol) {\n    __syncthreads();",
        "if constexpr (kByCol) {",
        "128x128/normal",
        Verdict.NONDETERMINISTIC,
        "race at",
    ),
}


@pytest.mark.parametrize(("file", "right", "wrong", "case", "verdict", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_is_caught(
    tmp_path: Path, file: str, right: str, wrong: str, case: str, verdict: Verdict, says: str
):
    kernels = with_wrong_line(tmp_path, file, right, wrong)
    flags = case if case.count("/") == 2 else f"default/{case}"
    result = verify(find_case(f"per_token/{flags}/eager"), EmulatorDevice(kernels=kernels, multiprocessors=1))
    assert (result.verdict, says in result.story) == (verdict, True), result.story
