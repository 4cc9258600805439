"""The recipes that a layer is made of, by the flags of its pipelines: which stage has which, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.errors import SuiteError, UsageError
from harness.expected.expected import expect, high_precision, oracle_of
from harness.suite.stages import stages
from harness.suite.suite import find_case, suite_of


def test_each_tensor_takes_four_over_six_and_256_in_its_scope_and_a_product_is_told():
    """y of 10.3 has an E for each operand, and what the stages show is what it gets."""
    for scope in ("none", "weights", "activations", "all"):
        for use_256 in ("none", scope):
            flags = f"rht=false,four_over_six={scope},e4m3_use_256={use_256}"
            x, w, y = stages(find_case(f"forward/{flags}/128x256x384/normal/eager"))
            taken = scope in ("activations", "all"), scope in ("weights", "all")
            assert tuple(stage.case.recipe == "four_over_six" for stage in (x, w)) == taken
            bounds = tuple(256 if of and use_256 != "none" else 448 for of in taken)
            assert (y.case.flags.a_e4m3_max, y.case.flags.b_e4m3_max) == bounds
            assert tuple(stage.case.flags.get("e4m3_max", 448) for stage in (x, w)) == bounds
    mixed = stages(find_case("forward/rht=false,four_over_six=all,e4m3_use_256=weights/128x256x384/normal/eager"))[-1]
    assert (mixed.case.flags.a_e4m3_max, mixed.case.flags.b_e4m3_max) == (448, 256)


def test_a_row_scaled_product_takes_a_weight_of_squares():
    x, w, y = stages(find_case("forward/epilogue=row_scaled,rht=false/128x256x384/normal/eager"))
    assert (x.case.recipe, w.case.variant) == ("row_scaled", "block=block_16x16")
    assert y.case.variant == "epilogue=row_scaled,b_granularity=tensor"
    _, _, _, dx, dw = stages(find_case("backward/epilogue=row_scaled,rht=false,rounding=rne/32x16x48/normal/eager"))
    assert (dx.case.flags.b_granularity, dw.case.flags.b_granularity) == ("tensor", "row")


def test_a_layer_of_windows_has_them_in_every_operand():
    for case_id in ("forward/epilogue=windows,rht=false", "backward/epilogue=windows,rht=false,rounding=rne"):
        made = stages(find_case(f"{case_id},weight_2d=false/64x128x192/normal/eager"))
        assert {stage.case.recipe for stage in made if not stage.multiplies} == {"local_1x64"}
        assert {stage.case.flags.epilogue for stage in made if stage.multiplies} == {"windows"}
    with pytest.raises(SuiteError, match="M = 48 is not a positive multiple of 64|rows = 48 is not"):
        find_case("forward/epilogue=windows,rht=false,weight_2d=false/48x128x192/normal/eager")


def test_each_direction_may_have_a_recipe_of_its_own():
    case = find_case("backward/epilogue=row_scaled,rounding=rne,columns=per_token/32x16x48/normal/eager")
    x, w, dy, dyt, dx, dw = stages(case)
    assert [stage.case.recipe for stage in (x, w, dy, dyt)] == ["per_token", "per_tensor", "row_scaled", "per_token"]
    assert (dyt.reads, dyt.case.variant) == ({"input": "dy"}, "outputs=columnwise,rht=true")
    assert (dx.case.flags.epilogue, dw.case.flags.epilogue) == ("row_scaled", "per_token_fused")
    assert (dw.reads["a_data"], dw.reads["b_data"]) == ("dyt.columnwise_data", "x.columnwise_data")
    assert set(high_precision(case)) == {"x", "w", "dy"}


PLAIN = ("tensor", 448, "compact")


@pytest.mark.parametrize(
    ("flags", "x_is", "w_is"),
    [
        ("", PLAIN, PLAIN),
        ("epilogue=row_scaled,scale_layout=swizzled,", ("row", 448, "swizzled"), ("tensor", 448, "swizzled")),
        ("epilogue=per_token,", ("row", 448, "compact"), ("row", 448, "compact")),
        ("epilogue=row_scaled,four_over_six=activations,e4m3_use_256=activations,", ("row", 256, "compact"), PLAIN),
        ("four_over_six=weights,e4m3_use_256=weights,", PLAIN, ("tensor", 256, "compact")),
    ],
)  # fmt: skip
def test_a_backward_that_decodes_has_the_rows_that_forward_saved(flags, x_is, w_is):
    case = find_case(f"backward/{flags}rht=false,rounding=rne,backward=dequantized/48x80x32/normal/eager")
    x, w, x_decoded, w_decoded = stages(case)
    for stage, right in ((x_decoded, x_is), (w_decoded, w_is)):
        told = stage.case.flags
        assert (told.granularity, told.e4m3_max, told.scale_layout, told.outputs) == (*right, "rowwise")
    expected = expect(case)
    assert set(expected.fields) == {"x_decoded.output", "w_decoded.output"} and not expected.disagreement
    for stage, decoded in ((x, x_decoded), (w, w_decoded)):
        drawn = high_precision(case)[stage.name].astype(np.float32)
        found = expected.values[decoded.key("output")].astype(np.float32)
        assert 0.02 < np.linalg.norm(found - drawn) / np.linalg.norm(drawn) < 0.15
        saved = oracle_of(stage.case.recipe).numpy_oracle(stage.case, {"input": high_precision(case)[stage.name]})
        assert {stage.key(name) for name in saved} == {
            name for name in expected.inputs if name.startswith(stage.key(""))
        }


def test_swizzled_by_a_stage_or_by_the_quantizer_a_product_has_the_same_bytes():
    """The swizzled scales between the stages are equal too."""
    apart, plain = (find_case(f"forward/{flags}/48x80x32/normal/eager") for flags in ("swizzle=true", "default"))
    fused = find_case("forward/scale_layout=swizzled/48x80x32/normal/eager")
    apart, plain, fused = (expect(replace(case, seed_of=plain.seed_name)).values for case in (apart, plain, fused))
    for name, by in (("x", "xs"), ("w", "ws")):
        assert apart[f"{by}.swizzled_scale_inv"].tobytes() == fused[f"{name}.rowwise_scale_inv"].tobytes()
        assert apart[f"{name}.rowwise_scale_inv"].tobytes() == plain[f"{name}.rowwise_scale_inv"].tobytes()
    for one in (apart, fused):
        for end in ("low", "high"):
            assert getattr(one["y.output"], end).tobytes() == getattr(plain["y.output"], end).tobytes()


def test_upstreams_defaults_of_per_token_are_timed_beside_production():
    for recipe, flags in (("forward", "rht=false,"), ("backward", "rht=false,rounding=rne,")):
        name = f"{recipe}/epilogue=per_token_fused,route=library,{flags}weight_2d=false,scale_layout=swizzled"
        timed = {case.id for case in suite_of(recipe).cases("bench")}
        assert {f"{name}/4096x4096x4096/normal/graph", f"{recipe}/route=library/4096x4096x4096/normal/graph"} <= timed


@pytest.mark.parametrize(
    ("case_id", "reason"),
    [
        ("forward/epilogue=row_scaled", "the rotation is defined for one amax per tensor, and per token"),
        ("backward/epilogue=row_scaled,rht=false", "stochastic rounding is defined for one amax per tensor"),
        ("forward/four_over_six=all", "a rotated block is not the one that the error is measured against"),
        ("forward/epilogue=per_token,four_over_six=weights", "a per_token product takes what per_token quantizes"),
        ("backward/epilogue=row_scaled,rht=false,rounding=rne,four_over_six=all", "dw reads the columns of x"),
        ("backward/four_over_six=all,columns=per_token", "they have the recipe of `columns`"),
        ("forward/four_over_six=weights,e4m3_use_256=all", "a scale up to 256 is four_over_six's"),
        ("backward/e4m3_use_256=weights", "a scale up to 256 is four_over_six's"),
        ("forward/scale_layout=swizzled,swizzle=true", "scales are swizzled once"),
        ("backward/backward=dequantized", "rows are decoded, and no row is rotated"),
        ("backward/rht=false,backward=dequantized", "gradients are not quantized where the saved operands are decoded"),
        ("backward/route=library,rht=false,rounding=rne,backward=dequantized", "its products are of bf16 tensors"),
        ("forward/epilogue=windows,weight_2d=false", "takes the outliers that the rotation would spread"),
        ("forward/epilogue=windows,rht=false", "the sixteen rows of a tile have windows of their own"),
        ("backward/epilogue=windows,rht=false,weight_2d=false", "stochastic rounding is not defined for windows"),
        ("forward/epilogue=windows,route=library,rht=false", "amaxes of windows belong inside the sum"),
        ("forward/columns=per_tensor", "it is the recipe of the rows"),
    ],
)
def test_what_no_recipe_defines_is_refused_with_its_reason(case_id, reason):
    with pytest.raises(UsageError, match=reason):
        find_case(f"{case_id}/128x128x128/normal/eager")
