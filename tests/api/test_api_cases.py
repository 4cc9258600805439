"""Cases by set, by id and by their parts."""

from __future__ import annotations

import pytest

import harness
from harness.errors import UsageError
from harness.suite.suite import suite_of


def test_cases_of_a_set_are_filtered_by_flags_and_text():
    found = harness.find_cases("per_tensor", "smoke", contains="48x80", rht=True, rounding="sr")
    assert found and all(case.flags.rht is True and case.flags.rounding == "sr" for case in found)
    assert set(found) <= set(suite_of("per_tensor").cases("smoke"))


def test_a_case_is_made_of_its_parts():
    case = harness.make_case("per_tensor", (256, 192), rht=True, rounding="sr", mode="graph")
    assert case.id == "per_tensor/rht=true,rounding=sr/256x192/normal/graph"
    assert case == harness.find_case(case.id)
    assert harness.make_case("grouped", "128+0+256x512", outputs="rowwise").shape == "128+0+256x512"
    assert harness.make_case("per_tensor", (16, 16), rht=False).variant == "default"


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: harness.make_case("per_tenser", (16, 16)), "did you mean 'per_tensor'"),
        (lambda: harness.make_case("per_tensor", (16, 17)), "cols = 17 is not a positive multiple of 16"),
        (lambda: harness.make_case("per_tensor", (16, 1.5)), "1.5 is no extent of a shape"),
        (lambda: harness.make_case("per_tensor", (16, 16), rounding="rz"), "flag rounding has no value 'rz'"),
        (lambda: harness.make_case("per_tensor", (16, 16), rht=True, dtype="fp32"), "excludes this combination"),
        (lambda: harness.find_cases("casts", "smok"), "did you mean 'smoke'"),
        (lambda: harness.find_case("casts"), "is not a case id"),
        (lambda: harness.find_case(None), "case_id is a NoneType; it must be a str"),
        (lambda: harness.find_cases(3), "recipe is a int; it must be a str"),
        (lambda: harness.find_cases("casts", contains=3), "contains is a int"),
        (lambda: harness.make_case("casts", None), "shape is a NoneType; give extents"),
        (lambda: harness.make_case("casts", (16, 16), input=None), "input is a NoneType"),
        (lambda: harness.make_case("casts", (16, 16), mode=b"eager"), "mode is a bytes"),
        (lambda: harness.make_case("casts", (16, 16), input="file:a\0.npy"), "this path leads nowhere"),
        (lambda: harness.use_recipe_dir(3), "folder is a int; it must be a path"),
        (lambda: harness.use_recipe_dir("a\0"), "this path leads nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(ask, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        ask()
    assert "\n" not in str(caught.value)


def test_recipes_are_those_of_the_suites():
    assert "per_tensor" in harness.list_recipes() and "forward" in harness.list_recipes()


def test_the_recipe_of_a_groups_tensors_is_a_flag_of_that_name():
    case = harness.make_case("grouped", "128+128x128", recipe="row_scaled")
    assert case.flags["recipe"] == "row_scaled"
    assert all(found.flags["recipe"] == "row_scaled" for found in harness.find_cases("grouped", recipe="row_scaled"))
    with pytest.raises(
        UsageError, match="recipe='x' is no flag of per_token, but of groups alone; give the recipe itself"
    ):
        harness.make_case("per_token", (16, 16), recipe="x")
