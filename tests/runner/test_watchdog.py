"""The time limit of a case: waits for room are not the case's own time."""

from __future__ import annotations

import time
from contextlib import nullcontext

import pytest

from harness.ground.seconds import WAITS
from harness.runner.isolation import Watchdog
from harness.suite.suite import find_case

CASE = find_case("swizzle/default/16x16/normal/eager")


@pytest.mark.parametrize("waits", [1, 3])
def test_a_wait_for_room_is_not_counted(waits: int):
    late = []
    with Watchdog(0.3, lambda *told: late.append(told)).over(CASE):
        for _ in range(waits):
            with WAITS.waiting():
                time.sleep(0.5 / waits)
    assert not late


@pytest.mark.parametrize("wait", [0, 0.2])
def test_the_rest_is(wait: float):
    late = []
    with Watchdog(0.1, lambda *told: late.append(told)).over(CASE):
        with WAITS.waiting() if wait else nullcontext():
            time.sleep(wait)
        time.sleep(0.3)
    assert len(late) == 1 and late[0][1].startswith("no end after 0.1 s")
