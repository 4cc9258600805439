"""The targets from Hopper on compile and run."""

from __future__ import annotations

import numpy as np
import pytest
from exercises import ALL
from test_exercises import emulated

BY_NAME = {each.name: each for each in ALL}


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a", "sm_120a", "sm_121a"])
@pytest.mark.parametrize(
    "name", ["ring", "load.2d.128B.24", "reduce.add.u32", "cluster.neighbour", "wmma.bf16.row.row"]
)
def test_runs_as_on_hopper(name: str, arch: str) -> None:
    each = BY_NAME[name]
    found, wanted = emulated(each, arch), each.wanted(each.arrays)
    for name_of, array in each.arrays.items():
        np.testing.assert_array_equal(found[name_of], wanted.get(name_of, array), err_msg=name_of)
