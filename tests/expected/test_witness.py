"""Inputs, given amaxes and expected values are looked at by a path of their own: a mistake that both oracles and the
kernel would share is a sentence before any kernel runs. What lies behind a group in its allocation is held to NUMERICS
8.5, whatever the oracle says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.contract.case import Case
from harness.expected import expected
from harness.expected.expected import fields_of, make_inputs
from harness.expected.witness import fields, magnitudes, objection, operands
from harness.expected.witness.fields import wrong_slack
from harness.expected.witness.magnitudes import e2m1, e4m3, to_bf16
from harness.inputs import drawn_once
from harness.suite.suite import find_case, load_suites, suite_of

PLAIN = "per_tensor/default/48x80/normal/eager"


@pytest.fixture(autouse=True)
def nothing_kept():
    """No answer of a spoiled oracle or draw outlives its test."""
    caches = expected._expect, expected._inputs, expected._high_precision
    for cache in caches:
        cache.cache_clear()
    expected._drawn_again.clear()
    yield
    for cache in caches:
        cache.cache_clear()


def found(case_id: str) -> str:
    return expected.expect(find_case(case_id)).disagreement


def draw_with(monkeypatch, draw) -> None:
    """Have `draw` make the tensors of groups and of all other cases."""
    monkeypatch.setattr(expected, "make", draw)
    monkeypatch.setattr(drawn_once, "make", draw)


def spoiled(monkeypatch, change) -> None:
    """Have `make` draw what `change` makes of its tensor."""
    make = expected.make
    draw_with(monkeypatch, lambda *of: np.ascontiguousarray(change(make(*of))))


def objection_to(case: Case, **arrays: np.ndarray) -> str:
    """What is said of the case's inputs with some of them replaced."""
    inputs = expected.make_inputs(case) | arrays
    return objection.to_inputs(case, expected.high_precision(case), None, inputs)


def test_a_distribution_that_draws_something_else(monkeypatch):
    assert found(PLAIN) == ""
    for change in (np.zeros_like, np.abs, lambda x: x[:, ::-1] * 0 + x[:1]):
        expected._high_precision.cache_clear()
        expected._inputs.cache_clear()
        expected._expect.cache_clear()
        with monkeypatch.context() as patch:
            spoiled(patch, change)
            assert "the input normal as bf16, 48x80, is not what it promises" in found(PLAIN)


def test_a_seed_that_does_not_matter(monkeypatch):
    make = expected.make
    draw_with(monkeypatch, lambda name, rows, cols, dtype, seed: make(name, rows, cols, dtype, 1))
    assert found(PLAIN) == "x is the same for another seed; the input normal depends on the seed"


def test_tensors_of_a_group_that_are_the_same(monkeypatch):
    make = expected.make
    case_id = "grouped/default/128+0+128x128/normal/eager"
    assert found(case_id) == ""
    draw_with(monkeypatch, lambda name, rows, cols, dtype, seed: make(name, rows, cols, dtype, seed | 7))
    expected._high_precision.cache_clear()
    expected._inputs.cache_clear()
    expected._expect.cache_clear()
    assert found(case_id).startswith("x of group 0 and x of group 2 are the same")


@pytest.mark.parametrize(
    "case_id",
    [
        "per_tensor/rht=true,stage=encode/48x80/normal/eager",
        "per_tensor/stage=encode/48x80/specials_nan/eager",
        "per_token/rht=true,stage=encode/128x256/row_scales/eager",
        "per_token/weight_2d=true,stage=encode/128x256/normal/eager",
        "row_scaled/outputs=both,stage=encode/48x80/row_scales/eager",
        "four_over_six/stage=encode/48x80/normal/eager",
        "grouped/stage=encode/128+0+256x128/normal/eager",
        "grouped/recipe=per_token,rht=true,stage=encode/128+0+256x128/normal/eager",
        "grouped/stage=encode,activation=dgelu/128+128x128/normal/eager",
        "grouped/stage=encode,activation=dsrelu/128+128x128/normal/eager",
        "grouped/stage=encode,amax=shared/128+0+256x128/normal/eager",
        "grouped/outputs=columnwise,stage=encode,amax=rowwise/128+0+256x128/normal/eager",
    ],
)
def test_a_given_amax_that_is_not_the_amax(case_id):
    case = find_case(case_id)
    inputs = expected.make_inputs(case)
    assert magnitudes.wrong_amax(case, inputs) == ""
    for name in (name for name in inputs if name.endswith("_amax")):
        of_each = case.is_group and case.flags.amax != "shared"
        for wrong in (np.roll(inputs[name], 1) if of_each else inputs[name] * 2, inputs[name] * np.float32(0.98)):
            assert f"the given {name}" in magnitudes.wrong_amax(case, inputs | {name: wrong})


def test_the_amax_of_another_sign_mask():
    case = find_case("per_tensor/outputs=columnwise,rht=true,stage=encode,sign_mask=1/48x80/normal/eager")
    other = find_case("per_tensor/outputs=columnwise,rht=true,stage=encode/48x80/normal/eager")
    x = expected.make_inputs(case)["input"]
    amax = expected.oracle_of("per_tensor").inputs(other, x)["columnwise_amax"]
    assert "columnwise_amax" in magnitudes.wrong_amax(case, {"input": x, "columnwise_amax": amax})


OPERANDS = [
    ("dequantize/default/48x80/normal/eager", ""),
    ("dequantize/scale_layout=swizzled,granularity=row/48x80/normal/eager", ""),
    ("dequantize/granularity=window/192x320/normal/eager", ""),
    ("dequantize/block=block_16x16,e4m3_max=256/48x80/normal/eager", ""),
    ("dequantize/dtype=fp16,granularity=row,outputs=columnwise/48x80/normal/eager", ""),
    ("gemm_ordered/layout=nt/32x48x16/normal/eager", "b_"),
    ("gemm/epilogue=row_scaled,a_e4m3_max=256,a_scale_layout=swizzled/80x48x16/normal/eager", "a_"),
    ("gemm_grouped/default/128+0+128x128x128/normal/eager", "a_"),
    ("backward/epilogue=per_token_fused/128x128x128/normal/eager", "x.columnwise_"),
    ("backward/default/128x128x128/normal/eager", "w.columnwise_"),
]


@pytest.mark.parametrize(("case_id", "prefix"), OPERANDS)
def test_an_operand_that_is_not_what_was_drawn(case_id, prefix):
    case = find_case(case_id)
    inputs, drawn = expected.make_inputs(case), expected.high_precision(case)
    assert operands.objection(case, drawn, inputs) == ""
    data, scale_inv, amax = (f"{prefix}{part}" for part in ("data", "scale_inv", "amax"))
    for name, wrong in (
        (data, inputs[data] ^ 0x88),
        (data, np.roll(inputs[data], 1, axis=0)),
        (data, np.zeros_like(inputs[data])),
        (scale_inv, np.where(inputs[scale_inv] > 8, inputs[scale_inv] - 8, 0).astype(np.uint8)),
        (scale_inv, np.roll(inputs[scale_inv], 3, axis=1)),
        (amax, inputs[amax] * 2),
    ):
        assert "is not the tensor that was drawn" in operands.objection(case, drawn, inputs | {name: wrong}), name


@pytest.mark.parametrize("outputs", ["rowwise", "columnwise"])
@pytest.mark.parametrize("of_block", ["", "block=block_16x16,", "block=block_16x16,e4m3_max=256,", "granularity=row,"])
def test_an_operand_without_elements_is_what_was_drawn(outputs, of_block):
    case = find_case(f"dequantize/{of_block}outputs={outputs}/0x64/normal/eager")
    assert operands.objection(case, expected.high_precision(case), expected.make_inputs(case)) == ""


@pytest.mark.parametrize(
    ("flags", "name"),
    [("direction=columnwise", "scale_inv"), ("direction=columnwise,to=compact", "swizzled_scale_inv")],
)
def test_scales_that_are_to_be_moved(flags, name):
    case = find_case(f"swizzle/{flags}/48x80/normal/eager")
    scales = expected.make_inputs(case)[name]
    assert objection_to(case) == ""
    turned = np.where(scales, 0x87 - scales, 0).astype(np.uint8)
    assert "does not fit its largest magnitude" in objection_to(case, **{name: turned})
    padding = scales.copy()
    padding[-1, -1] = 1
    assert "a scale byte of the padding is not 0" in objection_to(case, **{name: padding})


@pytest.mark.parametrize("input_name", ["exact_sum", "wide_sum"])
def test_operands_that_are_drawn_as_bytes(input_name):
    case = find_case(f"gemm_ordered/default/32x48x16/{input_name}/eager")
    inputs = expected.make_inputs(case)
    assert objection.wrong_bytes(case, inputs) == ""
    for wrong in (
        {"a_scale_inv": np.full_like(inputs["a_scale_inv"], 0x7F)},
        {"b_data": np.zeros_like(inputs["b_data"])},
        {"a_amax": -inputs["a_amax"]},
    ):
        assert "is not what it promises" in objection.wrong_bytes(case, inputs | wrong).replace("are not", "is not")


@pytest.mark.parametrize("recipe", ["gemm", "gemm_ordered", "gemm_grouped"])
def test_no_operand_of_smoke_that_is_drawn_as_bytes_is_accused(recipe):
    """An operand without rows has an array of amaxes, which is empty."""
    drawn = {
        case.data_id: case
        for case in suite_of(recipe).cases("smoke")
        if case.work <= 1 << 16 and case.input in ("exact_sum", "wide_sum", "exhaustive")
    }
    assert drawn
    assert {
        name: found
        for name, case in drawn.items()
        if (found := objection.wrong_bytes(case, expected.make_inputs(case)))
    } == {}


def test_an_amax_that_the_flags_do_not_have_is_accused_and_so_is_a_missing_one():
    case = find_case("gemm_ordered/default/32x48x16/exact_sum/eager")
    inputs = expected.make_inputs(case)
    fewer = {name: array for name, array in inputs.items() if name != "a_amax"}
    assert "A has an amax where the flags say so, and nowhere else" in objection.wrong_bytes(case, fewer)
    case = find_case("gemm_ordered/scale_format=ue5m3,a_global_scale=false/32x48x16/exact_sum/eager")
    own = expected.make_inputs(case)
    assert "a_amax" not in own and objection.wrong_bytes(case, own) == ""
    assert "A has an amax" in objection.wrong_bytes(case, own | {"a_amax": inputs["a_amax"]})


@pytest.mark.parametrize("outputs", ["rowwise", "columnwise"])
def test_every_scale_byte_is_dequantized_in_smoke(outputs):
    cases = (case for suite in load_suites() if suite.recipe == "dequantize" for case in suite.cases("smoke"))
    exhaustive = (case for case in cases if case.input == "exhaustive" and case.flags.outputs == outputs)
    case = max(exhaustive, key=lambda case: (case.elements, case.flags.block == "block_1x16"))  # a byte for each block
    inputs = expected.make_inputs(case)
    assert np.unique(inputs["scale_inv"]).size == 256
    assert objection.wrong_bytes(case, inputs) == ""
    fewer = np.where(inputs["scale_inv"] == 0x7F, 0x7E, inputs["scale_inv"])
    assert "every scale byte occurs" in objection.wrong_bytes(case, inputs | {"scale_inv": fewer})


def test_an_input_that_is_not_the_one_drawn():
    case = find_case(PLAIN)
    assert (
        objection_to(case, input=expected.high_precision(case)["x"][::-1]) == "input is not the tensor that was drawn"
    )


def test_tensors_of_a_group_that_lie_elsewhere():
    case = find_case("grouped/default/128+0+128x128/normal/eager")
    offsets = expected.make_inputs(case)["tensor_offsets"]
    assert "is said to start" in objection_to(case, tensor_offsets=offsets + 16)
    case = find_case("gemm_grouped/shape_representation=varying_both_dims/16+32x16x32+48/normal/eager")
    wrong = objection_to(case, n_dims=np.array([48, 32]))
    assert wrong == "the N of each group is said to be [48, 32]; it must be [32, 48]"


def test_few_different_values_are_an_error_unless_the_suite_says_so():
    case = find_case(PLAIN)
    good = expected.expect(case)
    assert fields.too_alike(case, good.fields, good.values) == ""
    few = good.values | {"rowwise_data": np.full_like(good.values["rowwise_data"], 0x77)}
    assert "the expected rowwise_data has 1 different values among 3840" in fields.too_alike(case, good.fields, few)
    assert fields.too_alike(replace(case, input="zeros"), good.fields, few) == ""
    scales = good.values["rowwise_scale_inv"]
    few = good.values | {"rowwise_scale_inv": np.where(scales, 126, 0).astype(np.uint8)}
    assert "rowwise_scale_inv has 1 different" in fields.too_alike(case, good.fields, few)


def test_of_large_fields_and_operands_some_are_looked_at_all_over(monkeypatch):
    case = find_case("gemm/default/112x128x96/normal/eager")
    drawn, inputs = expected.high_precision(case), expected.make_inputs(case)
    monkeypatch.setattr(operands, "_MOST", 1 << 10)
    monkeypatch.setattr(operands, "_FEWEST_TILES", 4)
    assert len(operands._some_lines(112, 128)) < 112
    assert operands.objection(case, drawn, inputs) == ""
    shifted = inputs | {"a_data": np.roll(inputs["a_data"], 1, axis=0)}
    assert "operand A is not the tensor that was drawn" in operands.objection(case, drawn, shifted)
    lines = [int(line) for line in operands._some_lines(1 << 12, 1 << 10)]
    assert lines == sorted(set(lines)) and lines[:16] == list(range(16)) and lines[-1] > 3 << 10 and len(lines) < 128
    assert 1000 + 5 in operands._some_lines(1005 + 1, 1 << 12)  # behind the last whole tile

    group = find_case("grouped/default/128+0+128x128/normal/eager")
    whole = expected.expect(group)
    monkeypatch.setattr(fields, "_MOST", 1 << 8)
    monkeypatch.setattr(fields, "_FEWEST", 1 << 6)
    for name, entries, found, least in fields.counted(whole.fields, whole.values):
        assert entries == whole.fields[name].size * (2 if name.endswith("data") else 1) and found >= least, name
    few = whole.values | {"rowwise_data": np.full_like(whole.values["rowwise_data"], 0x77)}
    assert "the expected rowwise_data has 1 different values" in fields.too_alike(group, whole.fields, few)


def test_formats_are_worked_out_once_more():
    byte = np.arange(256, dtype=np.uint8)
    assert e2m1(byte[None, :8]).reshape(-1)[::2].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert e4m3(byte[[0, 1, 8, 0x38, 0x7E]]).tolist() == [0, 2.0**-9, 2.0**-6, 1, 448]
    assert np.isnan(e4m3(byte[[0x7F, 0xFF]])).all()
    assert to_bf16(np.float32([1 + 2.0**-8, 1 + 3 * 2.0**-8, -np.inf])).tolist() == [1, 1 + 2.0**-6, -np.inf]


def test_an_answer_has_the_shape_of_its_field(monkeypatch):
    """An answer with the right number of bytes in another shape would otherwise be compared as if it were right."""
    oracle = expected.oracle_of("per_tensor")
    outputs = oracle.outputs

    def turned(case):
        fields = outputs(case)
        return fields | {"rowwise_data": replace(fields["rowwise_data"], shape=fields["rowwise_data"].shape[::-1])}

    monkeypatch.setattr(oracle, "outputs", turned)
    assert found(PLAIN) == "rowwise_data is (40, 48) by the recipe's `outputs`, and (48, 40) by its oracle"


GROUP = "grouped/recipe=per_token,stage=encode/128+384of1024x128/normal/eager"
SHARED = "grouped/stage=encode,amax=shared/128+384of1024x128/normal/eager"
BOTH = "grouped/recipe=per_token,shape_representation=varying_both_dims/128+256x512+128of131072/normal/eager"
PRODUCT = "gemm_grouped/epilogue=row_scaled/0+128+0of256x64x48/normal/eager"


@pytest.mark.parametrize("case_id", [GROUP, BOTH, PRODUCT])
def test_a_field_is_as_long_as_its_allocation(case_id):
    case = find_case(case_id)
    inputs, fields = make_inputs(case), fields_of(case)
    assert not wrong_slack(case, inputs, fields)
    for name, field in fields.items():
        for off in (-1, 1):
            wrong = fields | {name: replace(field, slack=field.slack + off)}
            assert name in wrong_slack(case, inputs, wrong)


@pytest.mark.parametrize(
    ("case_id", "name"),
    [(GROUP, "rowwise_amax"), (SHARED, "columnwise_amax"), (PRODUCT, "a_amax"), (PRODUCT, "a_data")],
)
def test_what_is_given_is_as_long_as_its_allocation(case_id, name):
    case = find_case(case_id)
    inputs = make_inputs(case)
    assert name in wrong_slack(case, inputs | {name: inputs[name][:-1]}, fields_of(case))


@pytest.mark.parametrize(("name", "number"), [("a_data", 0x80), ("a_scale_inv", 0x7E), ("a_amax", 1.0)])
def test_no_number_lies_behind_the_groups_of_a_product(name, number):
    case = find_case(PRODUCT)
    inputs = make_inputs(case)
    array = np.array(inputs[name])
    array[-1] = number
    assert f"{name} has numbers" in wrong_slack(case, inputs | {name: array}, fields_of(case))
