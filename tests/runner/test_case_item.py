"""Where the largest cases stand among those of several processes."""

from __future__ import annotations

import pytest
from xdist.scheduler import WorkStealingScheduling

from harness.runner.case_item import Stealing, spread
from harness.verify.room import LARGE


@pytest.mark.parametrize("processes", [1, 2, 15])
def test_every_item_is_there_once_and_small_ones_keep_their_order(processes: int) -> None:
    items = [LARGE + i if i % 50 == 7 else i for i in range(500)]
    found = spread(items, lambda item: item, processes)
    assert sorted(found) == sorted(items)
    assert [item for item in found if item < LARGE] == [item for item in items if item < LARGE]


def test_large_ones_lie_in_parts_of_different_processes() -> None:
    items = [*range(450), *range(LARGE, LARGE + 13)]
    found = spread(items, lambda item: item, 15)
    at = [number for number, item in enumerate(found) if item >= LARGE]
    assert all(after - before > 10 for before, after in zip(at, at[1:], strict=False))


def test_small_ones_alone_stay_as_they_are() -> None:
    assert spread([3, 1, 2], lambda item: item, 2) == [3, 1, 2]


def test_a_worker_that_is_gone_when_its_cases_are_wanted_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(scheduling: WorkStealingScheduling) -> None:
        raise OSError("cannot send (already closed?)")

    monkeypatch.setattr(WorkStealingScheduling, "check_schedule", gone)
    object.__new__(Stealing).check_schedule()
