"""The targets from Hopper on compile and run."""

from __future__ import annotations

import numpy as np
import pytest
from exercises import ALL, Exercise
from test_exercises import emulated

HOPPER_ALONE = ("wgmma.",)  # ptxas refuses them for later targets


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a", "sm_120a", "sm_121a"])
@pytest.mark.parametrize("each", [pytest.param(each, id=each.name) for each in ALL if each.covers != HOPPER_ALONE])
def test_runs_as_on_hopper(each: Exercise, arch: str) -> None:
    found, wanted = emulated(each, arch), each.wanted(each.arrays)
    for name, array in each.arrays.items():
        if wanted.get(name, array) is not None:
            np.testing.assert_array_equal(found[name], wanted.get(name, array), err_msg=name)


def test_what_hopper_alone_has_is_refused_by_the_compiler() -> None:
    (product,) = (each for each in ALL if each.covers == HOPPER_ALONE)
    with pytest.raises(ValueError, match="not supported on .target 'sm_120a'"):
        emulated(product, "sm_120a")
