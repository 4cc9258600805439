"""Shards: every case in exactly one, of like cost, and the same on every machine."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.runner.selection import cost, select, shards
from harness.suite.suite import suite_of


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_case_is_in_exactly_one_shard(count: int):
    cases = suite_of("per_tensor").cases("smoke")
    parts = shards(cases, count)
    assert len(parts) == count
    assert sorted(case.id for part in parts for case in part) == sorted(case.id for case in cases)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_no_shard_costs_more_than_the_cheapest_by_more_than_its_last_case(count: int):
    costs = [sum(map(cost, part)) for part in shards(suite_of("per_tensor").cases("full"), count)]
    largest = max(map(cost, suite_of("per_tensor").cases("full")))
    assert max(costs) - min(costs) <= largest
    assert min(costs) > 0


def test_one_huge_case_does_not_drag_small_ones_along():
    """Without costs a case of 2^32 elements would share its shard with a quarter of all others."""
    cases = suite_of("per_tensor").cases("full")
    alone = next(part for part in shards(cases, 4) if any(case.cols == 272629760 for case in part))
    assert len(alone) == 1


def test_shards_do_not_depend_on_the_order_of_cases():
    cases = suite_of("swizzle").cases("smoke")
    assert shards(cases, 3) == shards(cases[::-1], 3)


def test_the_modes_of_a_case_are_in_one_shard():
    parts = shards(select(sorted(Path("suites").glob("*.yaml")), "bench").by_id.values(), 3)
    homes = [{case.data_id for case in part} for part in parts]
    assert all(homes) and not any(one & other for one, other in itertools.combinations(homes, 2))
