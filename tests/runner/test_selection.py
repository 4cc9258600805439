"""Shards: every case in exactly one, of like cost, and the same on every machine."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.runner.selection import Meant, cost, select, shards
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


def test_a_sets_cases_take_on_the_flags_of_a_card_once_each():
    suite = suite_of("per_tensor")
    flags = {"outputs": ["rowwise"], "rounding": ["rne"], "stage": ["encode"], "dtype": ["bf16", "fp32"]}
    found = select([suite.path], "smoke", meant=Meant("per_tensor", flags))
    theirs = suite.cases("smoke")
    cases = found.cases[suite.path]
    assert all(case.flags[flag] in values for case in cases for flag, values in flags.items())
    assert len({case.id for case in cases}) == len(cases) > 50
    # No input is lost, and a shape only where the flags do not go together with one of its own.
    assert {case.input for case in cases} == {case.input for case in theirs}
    assert {case.flags.dtype for case in cases} == {"bf16", "fp32"}
    kept = [case for case in theirs if all(case.flags[flag] in values for flag, values in flags.items())]
    assert {case.id for case in kept} <= {case.id for case in cases}
    assert found.set_name == "" and not found.is_whole_set  # which a merge would look for


def test_only_the_suite_of_a_card_takes_on_its_flags_and_an_unknown_flag_is_left_to_its_check():
    paths = [suite_of(name).path for name in ("swizzle", "per_tensor")]
    meant = Meant("swizzle", {"direction": ["columnwise"]})
    found, whole = select(paths, "smoke", meant=meant), select(paths, "smoke")
    assert found.cases[paths[1]] == whole.cases[paths[1]]
    assert {case.flags.direction for case in found.cases[paths[0]]} == {"columnwise"}
    unknown = select(paths, "smoke", meant=Meant("swizzle", {"way": ["x"]}))
    assert unknown.cases == whole.cases


def test_shards_of_a_card_are_of_one_selection():
    path, meant = suite_of("swizzle").path, Meant("swizzle", {"direction": ["rowwise"]})
    whole = select([path], "smoke", meant=meant)
    parts = [select([path], "smoke", shard=f"{index}/2", meant=meant) for index in (1, 2)]
    assert {part.unsharded for part in parts} == {whole.unsharded}
    assert sorted(case_id for part in parts for case_id in part.by_id) == sorted(whole.by_id)


def test_flags_that_a_recipe_refuses_together_are_refused_with_its_reason():
    flags = {"outputs": ["rowwise"], "rht": [True]}
    with pytest.raises(UsageError, match="per_tensor excludes this combination: "):
        select([suite_of("per_tensor").path], "smoke", meant=Meant("per_tensor", flags))
