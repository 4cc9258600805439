"""The full sets of products meet every legal kind of operand, in threes that a pairwise block may leave out."""

from __future__ import annotations

import itertools

import pytest

from harness.suite.suite import suite_of

REPRESENTATION = "shape_representation"
SCALES = ("epilogue", "layout", "a_e4m3_max", "b_e4m3_max", "b_granularity")


@pytest.mark.parametrize("recipe", ["gemm", "gemm_ordered", "gemm_grouped"])
@pytest.mark.parametrize("axes", [SCALES, ("epilogue", "layout", "a_dtype"), ("epilogue", "layout", "b_dtype")])
def test_each_legal_kind_of_operand_is_read_in_each_layout(recipe, axes):
    suite = suite_of(recipe)
    seen = {tuple(case.flags[axis] for axis in axes) for case in suite.cases("full")}
    legal = set()
    for values in itertools.product(*(suite.file.axes[axis] for axis in axes)):
        flags = {**suite.defaults, **dict(zip(axes, values, strict=True))}
        if REPRESENTATION in flags:
            flags[REPRESENTATION] = "varying_last_dim" if flags["layout"] == "nt" else "varying_first_dim"
        if suite.refusal(flags) is None:
            legal.add(values)
    assert len(legal) > 8 and legal <= seen
