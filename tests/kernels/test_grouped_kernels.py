"""Groups on the emulator: no grid changes a byte."""

from __future__ import annotations

import pytest

from harness.device.emulator import EmulatorDevice
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.verify import verify

ROWS_VARY = "grouped/rht=true,rounding=sr/0+128+0+0+256x80/normal/eager"
LINES = "grouped/recipe=per_token,rht=true,rounding=sr,resident=false/0+128+0+0+256x384/outliers_cols/eager"
TOGETHER = "grouped/recipe=per_token/0+128+128x128/outliers_cols/eager"
SUMS = "grouped/dtype=fp32,shape_representation=same_both_dims,dbias=true/2*272x16/heavy_tail/eager"
EDGES = "grouped/shape_representation=same_both_dims/3*16x48/normal/eager"


@pytest.mark.parametrize("multiprocessors", [1, 2, 7])
@pytest.mark.parametrize("case", [ROWS_VARY, LINES, SUMS, EDGES])
def test_the_grid_changes_no_byte(case: str, multiprocessors: int):
    assert verify(find_case(case), EmulatorDevice(multiprocessors=multiprocessors)).verdict is Verdict.PASS
