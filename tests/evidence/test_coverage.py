"""Coverage lists the values of flags, shapes and inputs that occur together in the cases of a set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evidence import coverage
from harness.contract.problem import Dense
from harness.suite.suite import find_case, load_suite, suite_of

TEXT = """
recipe: toy
contract: NUMERICS 2
axes: {dtype: [bf16, fp32], rht: [false, true], outputs: [both, rowwise]}
exclude:
  - when: {rht: true, outputs: rowwise}
    because: the rotation touches the columnwise output only
  - when: {dtype: fp32, outputs: both}
    because: no reason
launches: [{kernel: toy}]
sets:
  smoke:
    - {axes: default, shapes: [[16, 16]], inputs: [normal]}
  full:
    - {shapes: [[16, 16], [128, 128]], inputs: [normal, ties]}
  bench:
    - {axes: default, shapes: [[128, 128]], inputs: [normal]}
"""


@pytest.fixture
def sets(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(TEXT)
    return {each.set_name: each for each in coverage.coverage(load_suite(path))}


def test_a_pair_of_flags_is_possible_only_if_some_case_has_it(sets):
    # fp32 is rowwise only, and the rotation is not: the two never meet, though no exclusion names both.
    flags = {pair for pair in sets["full"].possible if "dtype" in (pair[0][0], pair[1][0])}
    assert (("dtype", "fp32"), ("rht", True)) not in flags
    assert (("dtype", "bf16"), ("rht", True)) in flags


def test_pairs_that_met_are_counted(sets):
    assert sets["smoke"].counts("flag, flag") == "3/9"
    assert sets["smoke"].counts("flag, input") == "3/12"
    assert sets["smoke"].counts("shape, input") == "1/4"
    assert sets["smoke"].counts("flag, group") == "-"
    assert (("shape", "ragged"), ("input", "ties")) in sets["smoke"].missing
    assert sets["full"].counts("flag, flag") == "9/9"
    assert sets["full"].missing == []


@pytest.mark.parametrize(
    "case_id, shape",
    [
        ("per_tensor/default/128x256/normal/eager", "whole tiles"),
        ("per_tensor/default/48x80/normal/eager", "ragged"),
        ("gemm/default/64x128x128/normal/eager", "few rows"),
        ("gemm/default/80x128x128/normal/eager", "ragged"),
        ("gemm/default/128x128x256/normal/eager", "whole tiles"),
        ("gemm_grouped/default/0+128x128x128/normal/eager", "whole tiles"),
        ("gemm_grouped/default/128+0x64x128/normal/eager", "ragged"),
    ],
)
def test_classes_of_shapes(case_id, shape):
    assert coverage.shape_class(find_case(case_id)) == shape


def test_tensors_that_take_a_minute_are_a_class_that_nothing_is_held_against():
    case = replace(find_case("per_tensor/default/128x256/normal/eager"), problem=Dense(1 << 16, 1 << 15))
    assert coverage.shape_class(case) == "huge"
    assert not any(("shape", "huge") in pair for each in coverage.coverage(suite_of("casts")) for pair in each.possible)


@pytest.mark.parametrize(
    "tensors, group",
    [
        ([(0, 128), (0, 128)], "all empty"),
        ([(0, 128), (128, 128)], "some empty"),
        ([(128, 128)] * 64, "many"),
        ([(128, 128)], "one"),
        ([(128, 128)] * 2, "alike"),
        ([(128, 128), (256, 128)], "varied"),
    ],
)
def test_classes_of_groups(tensors, group):
    case = find_case("grouped/default/2*256x128/normal/eager")
    case = replace(case, problem=replace(case.problem, tensors=tuple(tensors)))
    assert coverage.group_class(case) == group


def test_the_files_name_each_value_once_with_all_it_did_not_meet(sets, tmp_path):
    full = replace(sets["smoke"], set_name="full")
    page, table = coverage.write("python -m evidence coverage toy", [full], tmp_path)
    assert "**toy**" in page.read_text()
    assert "rht=true with shape " in page.read_text()
    assert table.read_text().splitlines()[0].startswith("recipe,set,cases")
