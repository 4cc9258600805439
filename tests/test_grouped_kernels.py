"""Groups on the emulator: no grid changes a byte, and what reviewers of grouped kernels asked for is caught."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import with_wrong_line

from harness.device.emulator import EmulatorDevice
from harness.suite import find_case
from harness.verdict import Verdict
from harness.verify import verify

ROWS_VARY = "grouped/rht=true,rounding=sr/0+128+0+0+256x80/normal/eager"
LINES = "grouped/recipe=per_token,rht=true,rounding=sr,resident=false/0+128+0+0+256x384/outliers_cols/eager"
TOGETHER = "grouped/recipe=per_token/0+128+128x128/outliers_cols/eager"
SUMS = "grouped/dtype=fp32,shape_representation=same_both_dims,dbias=true/2*272x16/heavy_tail/eager"
EDGES = "grouped/shape_representation=same_both_dims/3*16x48/normal/eager"

WRONG = {
    "an empty tensor has an item": (
        "grouped.cuh",
        "items_to[1] <= item",
        "items_to[1] < item",
        ROWS_VARY,
    ),
    "tensors share their random bits": (
        "grouped.cu",
        "columnwise_scale_inv + tensor.columnwise_scale_inv, tensor.rows, tensor.cols,\n"
        "            TurnTiles::origin(tensor.cols, item), seed, offset + index)",
        "columnwise_scale_inv + tensor.columnwise_scale_inv, tensor.rows, tensor.cols,\n"
        "            TurnTiles::origin(tensor.cols, item), seed, offset)",
        ROWS_VARY,
    ),
    "the scales of one tensor after those of all before it and itself": (
        "grouped.cuh",
        "(first + 1 < index ?",
        "(first + 1 <= index ?",
        LINES,
    ),
    "bands of the first tensor for all": (
        "grouped.cu",
        "rowwise_bands + tile, columnwise_bands + tile",
        "rowwise_bands, columnwise_bands",
        TOGETHER,
    ),
    "an empty tensor's columns without an amax": (
        "grouped.cu",
        "rows == 0 && columnwise_amax != nullptr",
        "rows == 1 && columnwise_amax != nullptr",
        TOGETHER,
    ),
    "chunks of 256 rows": ("grouped.cuh", "kChunkRows = 128;", "kChunkRows = 256;", SUMS),
    "chunks are summed from the last": ("grouped.cu", "sum = __fadd_rn(sum, *partial)", "sum = *partial", SUMS),
    "no row or column ends a tile": ("source.cuh", "if (!place.inside) return {};", "", EDGES),
    "maxima stay in the scratch": (
        "group_max.cuh",
        "atomicExch(&state->bits[v][index], 0u)",
        "state->bits[v][index]",
        EDGES,
    ),
    "every tensor's first columns": (
        "grouped.cu",
        "columnwise_amax + tensor.col, rowwise_data",
        "columnwise_amax, rowwise_data",
        LINES,
    ),
    "a strip arrives for a team": (
        "shares.cuh",
        "tensor, number, strips)",
        "tensor, number, team)",
        LINES,
    ),
}


@pytest.mark.parametrize("multiprocessors", [1, 2, 7])
@pytest.mark.parametrize("case", [ROWS_VARY, LINES, SUMS, EDGES])
def test_the_grid_changes_no_byte(case: str, multiprocessors: int):
    assert verify(find_case(case), EmulatorDevice(multiprocessors=multiprocessors)).verdict is Verdict.PASS


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_line_is_caught(name: str, tmp_path: Path):
    file, right, wrong, case = WRONG[name]
    kernels = with_wrong_line(tmp_path, file, right, wrong)
    verdict = verify(find_case(case), EmulatorDevice(kernels, multiprocessors=1)).verdict
    assert verdict not in (Verdict.PASS, Verdict.COMPILE_ERROR)
