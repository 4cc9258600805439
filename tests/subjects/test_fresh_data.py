"""Data of timed rounds: which fields are known to follow when rows change places, and what a stale answer fails."""

from __future__ import annotations

import numpy as np
import pytest

from harness.expected.expected import NUMPY_LARGEST, expect_on
from harness.subjects.audit.bench import WallClock
from harness.subjects.audit.fresh_data import MANY, FreshData
from harness.subjects.violations import Violation
from harness.suite.suite import find_case


def drawn(case_id: str) -> FreshData:
    return FreshData(find_case(case_id), "cpu", NUMPY_LARGEST)


@pytest.mark.parametrize(
    "case_id, left",
    [
        ("per_tensor/default/128x80/normal/eager", set()),
        ("per_tensor/outputs=both,block=block_16x16/128x64/outliers_rows/eager", set()),
        ("per_tensor/outputs=columnwise,rht=true/128x64/normal/eager", set()),
        ("per_tensor/outputs=columnwise,scale_layout=swizzled/1024x64/normal/eager", set()),
        ("per_tensor/outputs=rowwise,rounding=sr/128x64/normal/eager", {"rowwise_data"}),
        ("per_token/default/128x128/normal/eager", set()),
        ("dequantize/default/128x64/normal/eager", set()),
    ],
)
def test_outputs_follow_rows_that_change_places(case_id: str, left: set[str]):
    fresh = drawn(case_id)
    assert fresh.groups >= 8
    assert set(fresh.fields) - set(fresh.follows) == left
    one = fresh.draw()
    before = expect_on(fresh.case, fresh.sets[one.number])
    after = fresh.expected(one)
    assert not after.disagreement
    changed = []
    for name in fresh.follows:
        old, new = (each.values[name].reshape(-1).view(np.uint8) for each in (before, after))
        np.testing.assert_array_equal(fresh.output(name, old, one), new)
        changed.append(not np.array_equal(old, new))
    assert any(changed)
    assert all(fresh.output(name, np.zeros(0, np.uint8), one) is None for name in left)


@pytest.mark.parametrize(
    "case_id",
    [
        "gemm/default/128x144x64/normal/eager",
        "swizzle/direction=columnwise/1024x128/normal/eager",
        "per_tensor/stage=amax/128x64/normal/eager",
        "per_tensor/default/48x80/normal/eager",
        "grouped/outputs=rowwise/128+128x80/normal/eager",
    ],
)
def test_elsewhere_a_round_has_one_of_a_few_sets(case_id: str):
    fresh = drawn(case_id)
    assert (fresh.groups, len(fresh.sets)) == (0, MANY)
    assert len({b"".join(array.tobytes() for array in each.values()) for each in fresh.sets}) == MANY
    assert fresh.draw().order is None


def test_two_draws_are_hardly_ever_alike():
    fresh = drawn("per_tensor/default/128x64/normal/eager")
    inputs = [fresh.on_host(fresh.draw())["input"].tobytes() for _ in range(50)]
    assert len(set(inputs)) > 45


def bounded(passes: list[float], empty: list[float], calls: int = 100) -> WallClock:
    clock = WallClock(calls)
    clock._passes, clock._empty = passes, empty
    return clock


def test_a_time_below_the_least_pass_is_refused():
    clock = bounded([1.4e-3, 1.3e-3], [1e-4, 0.7e-4])
    assert clock.least == pytest.approx(1.03e-5)
    assert clock.finding([1.0e-5] * 5) is None
    assert clock.finding([1.03e-5, 0.5e-5, 0.5e-5]).violation is Violation.BELOW_WALL_CLOCK
    assert "it reports 5.00 us a call; by the wall clock around 100 calls" in clock.finding([0.5e-5]).sentence


def test_a_process_that_is_slow_to_answer_is_not_excused():
    assert bounded([1.7e-3], [1.0]).least == pytest.approx(1e-5)
    assert bounded([1e-5], [1e-4]).least == 0
