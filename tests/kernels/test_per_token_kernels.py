"""per_token's kernels beyond what a smoke set can hold: other grids."""

from __future__ import annotations

import pytest

from harness.device.emulator import EmulatorDevice
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.verify import verify


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
