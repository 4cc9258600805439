"""Other splits of an allocation: which there are, and what they share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.contract.case import Case, other_splits
from harness.suite.suite import find_case

FIRST = "grouped/default/128+256+384+1024+2304of8192x256/normal/eager"
BOTH = "grouped/shape_representation=varying_both_dims/128+0+256x256+128+128of163840/normal/eager"

BY_64 = "grouped/default/64+192+0+128of1024by64x64/normal/eager"


def splits(case_id: str) -> tuple[Case, ...]:
    return other_splits(find_case(case_id))


def test_all_in_one_then_gaps_then_a_drawn_one_then_none():
    one, gaps, drawn, none = ([rows for rows, _ in split.problem.tensors] for split in splits(FIRST))
    assert sorted(one) == [0, 0, 0, 0, 8192]
    assert gaps == [0, 4096, 0, 4096, 0]
    assert 0 < sum(drawn) <= 8192
    assert none == [0] * 5


@pytest.mark.parametrize("case_id", [FIRST, BOTH, FIRST.replace("128+256+384+1024+2304of", "64*128of"), BY_64])
def test_a_split_is_a_case_of_its_own_with_the_same_seed_and_capacity(case_id: str):
    case = find_case(case_id)
    assert len(splits(case_id)) == 4
    for split in splits(case_id):
        found = find_case(split.id)
        assert found == split
        assert (found.seed, found.problem.capacity) == (case.seed, case.problem.capacity)
        assert all(rows % case.problem.splits_by == 0 for rows, _ in found.problem.tensors)
        assert found.problem.grid_extents == case.problem.grid_extents
        assert found.data_id != case.data_id


def test_some_split_is_as_fine_as_the_case_says():
    assert any(rows % 128 for split in splits(BY_64) for rows, _ in split.problem.tensors)


def test_both_extents_vary_within_the_allocation():
    for split in splits(BOTH):
        assert split.problem.group.elements <= 163840
        split.problem.group.require("varying_both_dims")
    one, *_ = splits(BOTH)
    assert one.problem.group.elements == 163840


def test_the_split_of_the_case_is_not_repeated():
    assert [split.shape for split in splits("grouped/default/128of256x16/normal/eager")][0] == "256of256x16"
    assert all(split.shape != "256of256x16" for split in splits("grouped/default/256of256x16/normal/eager"))


def test_a_group_that_fills_its_allocation_has_no_other_split():
    assert splits("grouped/default/128+256x256/normal/eager") == ()


def test_the_seed_of_a_case_without_a_capacity_is_that_of_its_id():
    case = find_case("grouped/default/128+256x256/normal/eager")
    assert case.seed == replace(case, seed_of=case.data_id).seed
