"""The layer of a mixture of experts: group quantizers and products of groups as the stages of one pipeline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evidence.mutants.catalogue import find
from evidence.products.error_model import relative_bounds
from evidence.products.products import exact_products
from harness.bench.baseline import baseline_id
from harness.contract.case import other_splits
from harness.contract.field import Field
from harness.contract.interval import Interval
from harness.contract.problem import Gemm, Grouped, GroupedGemm
from harness.device.emulator import EmulatorDevice
from harness.errors import ContractError, UsageError
from harness.expected import pipeline_oracle
from harness.expected.expected import expect, expect_split, fields_of, high_precision, make_inputs
from harness.expected.witness import objection
from harness.expected.witness.fields import wrong_slack
from harness.suite.launch_plan import plan, scratch_and_workspace
from harness.suite.stages import is_pipeline, stages
from harness.suite.suite import find_case, suite_of
from harness.verdict import Verdict
from harness.verify.diagnosis.trace import trace
from harness.verify.verify import verify

FORWARD = find_case("forward_grouped/default/0+128x16x32/normal/eager")
ROWS = find_case("forward_grouped/recipe=row_scaled,rht=false/16+0+48x32x80/row_scales/eager")
PART = find_case("forward_grouped/recipe=per_token/128+0+0of256x32x32/normal/eager")
BACKWARD = find_case("backward_grouped/default/0+128x16x32/normal/eager")
PART_BACK = find_case("backward_grouped/recipe=per_token/128+0+0of256x32x32/normal/eager")
SWIZZLED = find_case("forward_grouped/scale_layout=swizzled/128+0of256x16x32/normal/eager")
WGRAD = find_case(
    "gemm_grouped/shape_representation=varying_last_dim,epilogue=row_scaled,layout=nt/16x0+128of4096x32/wide_sum/eager"
)
ALL = [FORWARD, ROWS, PART, BACKWARD, PART_BACK]


def called(case) -> str:
    return f"{case.recipe}/{case.variant}"


def test_stages_are_groups_of_the_extents_of_the_layer():
    x, w, y = stages(find_case("forward_grouped/default/128+0+256of1024x32x80/normal/eager"))
    assert x.case.problem == Grouped(1024, 32, ((128, 32), (0, 32), (256, 32)), 1024 * 32)
    assert w.case.problem == Grouped(240, 32, ((80, 32),) * 3)
    assert y.case.problem == GroupedGemm(1024, 32, 80, ((128, 32), (0, 32), (256, 32)), 1024 * 32)
    *_, dy, dx, dw = stages(find_case("backward_grouped/default/128+0+256of1024x32x80/normal/eager"))
    assert dy.case.problem == Grouped(1024, 80, ((128, 80), (0, 80), (256, 80)), 1024 * 80)
    assert dx.case.problem == GroupedGemm(1024, 80, 32, ((128, 80), (0, 80), (256, 80)), 1024 * 80)
    assert dw.case.problem == GroupedGemm(80, 1024, 32, ((80, 128), (80, 0), (80, 256)), 80 * 1024, by_k=True)
    assert is_pipeline(FORWARD) and FORWARD.is_group


@pytest.mark.parametrize("case", ALL, ids=called)
def test_every_stage_has_extents_of_its_own_and_both_oracles_agree(case):
    expected = expect(case)
    assert not expected.disagreement, expected.disagreement
    assert expected.oracles == ("numpy", "torch")
    run = [stage for stage in stages(case) if not stage.given]
    for stage in run:
        group = stage.case.problem.group
        for name in ("first_dims", "last_dims", "tensor_offsets"):
            assert expected.inputs[f"{stage.name}.{name}"].tolist() == getattr(group, name).tolist()
    assert {name.partition(".")[0] for name in expected.fields} == {stage.name for stage in run}


def test_each_product_is_that_of_its_own_group():
    """y_g is near x_g w_g^T of the tensors before quantization, and far from that of any other group's weight."""
    drawn, expected = high_precision(ROWS), expect(ROWS)
    output = expected.values["y.output"]
    middle = (output.low.astype(np.float64) + output.high) / 2 if isinstance(output, Interval) else output
    middle = np.asarray(middle, np.float64)
    x, w = drawn["x"].astype(np.float64), drawn["w"].astype(np.float64).reshape(3, 80, 32)
    start = 0
    for g, (rows, cols) in enumerate(ROWS.problem.tensors):
        own = x[start * cols : (start + rows) * cols].reshape(rows, cols)
        got = middle[start : start + rows]
        start += rows
        if rows:
            off = [np.linalg.norm(got - own @ other.T) / np.linalg.norm(own @ other.T) for other in w]
            assert off[g] < 0.30 < min(off[:g] + off[g + 1 :])


EPILOGUES = {"per_tensor": "per_tensor", "per_token": "per_token_fused", "row_scaled": "row_scaled"}
LAYERS = [
    ("weight_2d=true", "64+0+192x48x32"),
    ("recipe=row_scaled,rht=false,weight_2d=true", "16+0+48x32x80"),
    ("rht=false,four_over_six=all,e4m3_use_256=weights,weight_2d=true", "0+64+16x48x32"),
    ("recipe=per_token", "64+0+128x48x32"),
    ("columns=per_token", "64+0+16x48x32"),
    ("recipe=row_scaled,weight_2d=true,columns=per_tensor", "0+16x48x32"),
]


@pytest.mark.parametrize(
    ("recipe", "variant", "shape"),
    [
        *((recipe, *each) for recipe in ("forward", "backward") for each in LAYERS),
        ("forward", "recipe=row_scaled,rht=false,four_over_six=all,bias=true", "64+0+16x48x32"),
        ("forward", "bias=true", "0+64x48x32"),
        ("backward", "dbias=true,accumulate=true", "64+0+16x48x32"),
        ("backward", "recipe=per_token,columns=per_tensor,accumulate=true", "64+0+16x48x32"),
        ("backward", "recipe=row_scaled,rht=false,accumulate=true", "0+16x48x32"),
    ],
)
def test_each_expert_is_a_dense_layer_alone_and_loses_no_more_than_that_may(recipe, variant, shape):
    """With gradients rounded to nearest, because random bits are counted by the group."""
    variant += ",rounding=rne" * (recipe == "backward")
    case = find_case(f"{recipe}_grouped/{variant}/{shape}/normal/eager")
    flags = {name: value for name, value in case.flags.items() if name in suite_of(recipe).defaults}
    flags |= {"epilogue": EPILOGUES[case.flags.recipe], "route": "mma", "weight_2d": case.flags.weight_2d}
    defaults = suite_of(recipe).defaults
    dense = replace(case, recipe=recipe, flags=defaults.replace(**flags), defaults=defaults, dense_defaults={})
    drawn, whole, fields = high_precision(case), pipeline_oracle.numpy_oracle(case, make_inputs(case)), fields_of(case)
    own = {stage.name: stage.case.problem.group.tensors for stage in stages(case)}
    for g, (rows, k) in enumerate(case.problem.tensors):
        if not rows:
            continue
        alone = replace(dense, problem=Gemm(rows, k, case.problem.n))
        given = {name: _own(array, own.get(name), g, len(case.problem.tensors)) for name, array in drawn.items()}
        expected = pipeline_oracle.numpy_oracle(alone, pipeline_oracle.inputs(alone, **given))
        assert whole.keys() - expected.keys() == ({"dy.dbias"} if case.flags.get("dbias") else set())
        for name, value in expected.items():
            for mine, right in zip(_ends(whole[name]), _ends(value), strict=True):
                assert fields[name].part(mine, g).tobytes() == right.tobytes(), (g, name)
        if not (case.flags.get("bias") or case.flags.get("accumulate")):  # 10.8 is of the product alone
            must_lose_little(alone, {stage.name: given[stage.name] for stage in stages(alone) if stage.draws}, expected)


def must_lose_little(case, drawn, expected):
    """Each product of a dense layer lies within the bound of NUMERICS 10.8, which its tensors alone decide."""
    exact = exact_products(case, drawn)
    for name, limit in relative_bounds(case, drawn).items():
        for end in _ends(expected[f"{name}.output"]):
            assert np.linalg.norm(end.astype(np.float64) - exact[name]) < limit * np.linalg.norm(exact[name]), name


def _own(array, tensors, g, count):
    """The expert's part of a drawn tensor, or of what a product adds, of which each expert has as much."""
    if tensors is None:
        return np.split(array, count)[g]
    start = sum(rows * cols for rows, cols in tensors[:g])
    return array.reshape(-1)[start:][: tensors[g][0] * tensors[g][1]].reshape(tensors[g])


def test_what_is_launched_depends_on_the_capacity_alone():
    other = find_case("forward_grouped/recipe=per_token/0+128+128of256x32x32/normal/eager")
    launched = [
        [(step.stage.name, step.signature.name, step.flags, step.case.seed, step.case.problem) for step in plan(case)]
        for case in (PART, other)
    ]
    assert launched[0] == launched[1]
    assert scratch_and_workspace(plan(PART)) == scratch_and_workspace(plan(other))
    for split in other_splits(PART_BACK):
        assert [step.case.problem for step in plan(split)] == [step.case.problem for step in plan(PART_BACK)]


def test_a_product_is_launched_with_the_layout_of_the_scales_that_it_reads():
    of_case = {stage.name: stage.case.flags for stage in stages(SWIZZLED)}
    of_plan = {step.stage.name: step.flags for step in plan(SWIZZLED)}
    for name in ("a_scale_layout", "b_scale_layout"):
        assert of_case["y"][name] == of_plan["y"][name] == "swizzled"
    rows = {step.stage.name: step.flags for step in plan(ROWS)}
    assert (rows["y"].epilogue, rows["y"].b_granularity) == ("row_scaled", "tensor")


@pytest.mark.parametrize("case", [PART, PART_BACK], ids=called)
def test_other_splits_are_expected_in_the_same_memory(case):
    whole = {name: array.shape for name, array in make_inputs(case).items()}
    allocated = {name: field.allocated for name, field in fields_of(case).items()}
    splits = other_splits(case)
    assert len(splits) >= 3
    for split in splits:
        expected = expect_split(split)
        assert not expected.disagreement, expected.disagreement
        assert {name: array.shape for name, array in expected.inputs.items()} == whole
        assert {name: field.allocated for name, field in expected.fields.items()} == allocated


@pytest.mark.slow
@pytest.mark.parametrize("case", [FORWARD, PART_BACK, WGRAD], ids=called)
def test_kernels_write_what_the_oracles_say(case):
    result = verify(case, EmulatorDevice())
    assert result.verdict is Verdict.PASS, result.story


@pytest.mark.parametrize(
    ("field", "tensor", "at"),
    [("x.rowwise_data", 0, (1, 2)), ("w.columnwise_scale_inv", 1, (1, 2)), ("y.output", 2, (3, 4))],
)
def test_one_tensor_of_a_stage_is_traced(field, tensor, at):
    text = trace(ROWS, field, at, tensor=tensor)
    assert f"stage {field[0]}, " in text and f"tensor {tensor} of 3" in text
    with pytest.raises(UsageError, match="has no elements"):
        trace(ROWS, "y.output", (0, 0), tensor=1)


@pytest.mark.slow
def test_a_wrong_kernel_is_told_by_stage_and_group(tmp_path):
    mutant = find("grouped: the B of the first group")
    result = verify(ROWS, EmulatorDevice(kernels=mutant.copied_to(tmp_path)))
    assert result.verdict is Verdict.MISMATCH
    for words in ("stage     y, gemm_grouped", "group     2 of 3, 48x32x80", "another tensor of the group"):
        assert words in result.story


def test_a_layer_of_experts_is_timed_against_itself_by_the_production_recipe():
    for recipe in ("forward_grouped", "backward_grouped"):
        for case in suite_of(recipe).cases("bench"):
            assert baseline_id(case) == f"{recipe}/default/{case.shape}/normal/{case.mode}"


# Each of the checks can fail


def objected(case, **changed):
    inputs = make_inputs(case) | changed
    return objection.to_inputs(case, high_precision(case), None, inputs) or wrong_slack(case, inputs, fields_of(case))


def test_right_inputs_meet_no_objection():
    for case in ALL:
        assert objected(case) == ""


def test_extents_of_another_split_are_named_with_their_stage():
    for name, said in (("y.first_dims", "of stage y is said"), ("w.last_dims", "of stage w is said")):
        dims = make_inputs(FORWARD)[name].copy()
        dims[1] -= 16
        assert said in objected(FORWARD, **{name: dims})
    inputs = make_inputs(FORWARD)
    del inputs["y.tensor_offsets"]
    assert "the extents of stage y are missing" in objection.to_inputs(FORWARD, high_precision(FORWARD), None, inputs)


def test_numbers_behind_the_tensors_are_named():
    x = make_inputs(PART)["x"].copy()
    x[-1] = 1
    assert "x has numbers behind its last tensor" in objected(PART, x=x)


def test_a_given_tensor_that_is_anothers_is_named():
    data = make_inputs(PART_BACK)["x.columnwise_data"].copy()
    data[:64] ^= 0x77
    assert "x.columnwise of tensor 0 is not the tensor that was drawn" in objected(
        PART_BACK, **{"x.columnwise_data": data}
    )


def test_a_field_without_its_slack_is_named():
    fields = fields_of(PART)
    fields["y.output"] = replace(fields["y.output"], slack=0)
    assert "stage y: output has" in wrong_slack(PART, make_inputs(PART), fields)


def test_a_wgrads_slack_holds_no_number_and_is_as_long_as_its_allocation():
    inputs = make_inputs(WGRAD)
    assert objected(WGRAD) == ""
    for name in ("a_data", "a_scale_inv", "b_data", "b_scale_inv"):
        wrong = inputs[name].copy()
        wrong[-1] = 0
        assert f"{name} has numbers behind its last group" in objected(WGRAD, **{name: wrong})
        assert f"{name} is given with" in objected(WGRAD, **{name: inputs[name][:-1]})
    fields = {"output": Field((16, 32), "uint16", parts=())}
    assert "the outputs of all groups have" in wrong_slack(WGRAD, inputs, fields)


def test_oracles_are_asked_about_what_a_quantizer_wrote_and_not_about_slack(monkeypatch):
    inputs = make_inputs(PART_BACK)
    right = pipeline_oracle.numpy_oracle(PART_BACK, inputs)
    monkeypatch.setattr(pipeline_oracle, "NAN_BYTE", 0)
    changed = pipeline_oracle.inputs(PART_BACK, **high_precision(PART_BACK))
    assert changed["x.columnwise_data"].tobytes() != inputs["x.columnwise_data"].tobytes()
    found = pipeline_oracle.numpy_oracle(PART_BACK, changed)
    for name, value in found.items():
        for one, other in zip(_ends(value), _ends(right[name]), strict=True):
            assert one.tobytes() == other.tobytes(), name


def _ends(value) -> tuple[np.ndarray, ...]:
    return (value.low, value.high) if isinstance(value, Interval) else (value,)


@pytest.mark.parametrize(
    ("case_id", "said"),
    [
        ("forward_grouped/recipe=row_scaled/16+32x32x32/normal/eager", "the rotation is defined for one amax"),
        ("forward_grouped/default/16+8x32x32/normal/eager", "tensor 1 has rows = 8; .* multiple of 16"),
        ("forward_grouped/default/64+0of128by64x32x32/normal/eager", "splits of a product's operands are by 128"),
        ("forward_grouped/default/128+0x24x32/normal/eager", "16"),
        ("forward_grouped/default/128+0of100x32x32/normal/eager", "capacity"),
        ("backward_grouped/recipe=row_scaled,rht=false/16+32x32x32/normal/eager", "stochastic rounding"),
        (
            "gemm_grouped/shape_representation=varying_last_dim,layout=nt/16x0+128of4000x32/normal/eager",
            "a capacity of 250 cols",
        ),
        (
            "gemm_grouped/shape_representation=varying_last_dim,layout=nt/16x0+48of4096x32/normal/eager",
            "multiple of 128",
        ),
        ("grouped/shape_representation=varying_last_dim/128x0+128of32768/normal/eager", "the tensors fill"),
    ],
)
def test_what_no_layer_takes_is_one_sentence(case_id, said):
    with pytest.raises((UsageError, ContractError), match=said):
        find_case(case_id)
