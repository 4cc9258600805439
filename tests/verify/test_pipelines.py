"""Pipelines from their stages to launches, bytes and times: forward and backward of a layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evidence.mutants.catalogue import find
from harness.bench.baseline import against_library, baseline_first, baseline_id, baseline_of, tflops
from harness.device.emulator import EmulatorDevice
from harness.errors import UsageError
from harness.expected.expected import expect, high_precision, make_inputs, oracle_of
from harness.inputs.draw import make
from harness.suite.instantiations import instantiations
from harness.suite.launch_plan import bind, plan, scratch_and_workspace
from harness.suite.physics import bytes_moved
from harness.suite.stages import is_pipeline, stages, terms
from harness.suite.suite import find_case, suite_of
from harness.verdict import Verdict
from harness.verify.diagnosis.mismatch import story_of
from harness.verify.diagnosis.trace import trace
from harness.verify.verify import verify

FORWARD = find_case("forward/default/128x256x384/normal/eager")
BACKWARD = find_case("backward/default/128x256x384/normal/eager")
FUSED = find_case("backward/epilogue=per_token_fused/128x256x384/normal/eager")
GROUPED = find_case("backward_grouped/default/0+128x16x32/normal/eager")
TINY = find_case("backward/default/32x16x48/normal/eager")


def launched(case, fits=lambda step: False) -> list[str]:
    return [f"{step.stage.name} {step.signature.name}" for step in plan(case, fits=fits)]


# Stages


def test_every_other_case_is_one_stage_without_a_name():
    case = find_case("gemm/default/16x16x16/normal/eager")
    (stage,) = stages(case)
    assert (stage.name, stage.case, stage.key("a_data"), is_pipeline(case)) == ("", case, "a_data", False)
    assert stage.select({"a_data": 1}) == {"a_data": 1}


def test_the_production_recipe_is_what_transformer_engine_trains_with():
    x, w, y = stages(FORWARD)
    assert (x.case.variant, w.case.variant, y.case.variant) == ("rht=true", "block=block_16x16", "default")
    x, w, dy, dx, dw = stages(BACKWARD)
    assert dy.case.variant == "rht=true,rounding=sr"
    assert (dx.case.variant, dx.case.shape) == ("layout=nn", "128x384x256")
    assert (dw.case.variant, dw.case.shape) == ("layout=nt", "384x128x256")
    assert x.case.flags.sign_mask == dy.case.flags.sign_mask == 0xD7E8
    assert terms(BACKWARD) == 2 * terms(FORWARD) == 2 * 128 * 256 * 384


@pytest.mark.parametrize("case", [BACKWARD, FUSED, GROUPED], ids=lambda case: f"{case.recipe} {case.variant}")
def test_gradients_are_quantized_once_and_read_by_both_products(case):
    _, _, _, dx, dw = stages(case)
    assert (dx.reads["a_data"], dx.reads["b_data"]) == ("dy.rowwise_data", "w.columnwise_data")
    assert (dw.reads["a_data"], dw.reads["b_data"]) == ("dy.columnwise_data", "x.columnwise_data")
    assert [name for name in launched(case) if name.startswith("dy")] == launched(case)[:2]


def test_stages_have_seeds_of_their_own_and_modes_share_them():
    seeds = {stage.name: stage.case.seed for stage in stages(BACKWARD)}
    assert len({*seeds.values(), BACKWARD.seed}) == len(seeds) + 1
    assert {stage.name: stage.case.seed for stage in stages(replace(BACKWARD, mode="graph"))} == seeds
    assert all(seeds[stage.name] != stage.case.seed for stage in stages(FUSED))
    drawn = high_precision(BACKWARD)
    assert {name: x.shape for name, x in drawn.items()} == {"x": (128, 256), "w": (384, 256), "dy": (128, 384)}
    for name, x in drawn.items():
        assert x.tobytes() == make("normal", *x.shape, "bf16", seeds[name]).tobytes()


# Oracles


def test_every_array_between_the_stages_is_demanded_byte_for_byte():
    expected = expect(FORWARD)
    parts = [f"{side}_{part}" for side in ("rowwise", "columnwise") for part in ("data", "scale_inv", "amax")]
    assert set(expected.fields) == {*(f"{stage}.{part}" for stage in "xw" for part in parts), "y.output"}
    assert not expected.disagreement and expected.oracles == ("numpy", "torch")
    assert set(expected.inputs) == {"x", "w"}


def test_what_is_given_is_read_and_not_written():
    expected = expect(BACKWARD)
    given = {f"{stage}.columnwise_{part}" for stage in "xw" for part in ("data", "scale_inv", "amax")}
    assert set(expected.inputs) == {"dy", "x", "w"} - {"x", "w"} | given
    assert not given & set(expected.fields)
    x, w, *_ = stages(BACKWARD)
    for stage in (x, w):
        drawn = {"input": high_precision(BACKWARD)[stage.name]}
        for name, array in oracle_of("per_tensor").numpy_oracle(stage.case, drawn).items():
            assert array.tobytes() == expected.inputs[stage.key(name)].tobytes()


def test_a_stage_has_the_bytes_of_its_recipe_with_its_seed():
    expected = expect(TINY)
    dy = next(stage for stage in stages(TINY) if stage.name == "dy")
    alone = oracle_of("per_tensor").numpy_oracle(dy.case, {"input": expected.inputs["dy"]})
    assert all(array.tobytes() == expected.values[dy.key(name)].tobytes() for name, array in alone.items())
    other = oracle_of("per_tensor").numpy_oracle(replace(dy.case, seed_of="dy"), {"input": expected.inputs["dy"]})
    assert other["rowwise_data"].tobytes() != alone["rowwise_data"].tobytes()


# Launches


def test_launches_of_a_step_are_those_of_its_stages_in_order():
    assert launched(FORWARD) == [
        "x per_tensor_amax_rht", "x per_tensor_encode_tile",
        "w per_tensor_amax", "w per_tensor_encode_square",
        "y gemm",
    ]  # fmt: skip
    assert launched(FUSED) == ["dy per_token_amax_rht", "dy per_token_encode", "dx gemm", "dw gemm"]
    assert launched(FUSED, fits=lambda step: True) == ["dy per_token_resident", "dx gemm", "dw gemm"]
    post_scaled = replace(FUSED, flags=FUSED.flags.replace(epilogue="per_token"))
    assert len(plan(post_scaled)) == len(plan(FUSED)) + 2
    swizzled = find_case("backward/swizzle=true/128x256x384/normal/eager")
    assert launched(swizzled) == [*launched(BACKWARD)[:2], "dr swizzle", "dc swizzle", *launched(BACKWARD)[2:]]
    both = find_case("backward/columns=per_token/128x256x384/normal/eager")
    assert launched(both)[-4:] == ["dyt per_token_amax_rht", "dyt per_token_encode", "dx gemm", "dw gemm"]
    library = replace(BACKWARD, flags=BACKWARD.flags.replace(route="library"))
    assert launched(library)[2:4] == ["dx gemm_decode", "dx cublas_scaled_gemm"]


def test_a_launch_is_bound_to_the_arrays_numbers_and_memory_of_its_stage():
    expected = expect(BACKWARD)
    amax, encode, dx, dw = plan(BACKWARD)
    scratch, _ = scratch_and_workspace(plan(FORWARD))
    assert scratch == {"x.amax_state": 16, "w.amax_state": 16}
    arrays = {**dict.fromkeys([*expected.inputs, *expected.fields]), "dy.amax_state": None}
    arrays = {name: name for name in arrays}
    assert dict(bound(amax, arrays))["amax_state"] == "dy.amax_state"
    assert (bound(encode, arrays)["input"], bound(encode, arrays)["seed"]) == ("dy", encode.case.seed)
    for step, operands, output, extents in (
        (dx, ("dy.rowwise_data", "w.columnwise_data"), "dx.output", (128, 384, 256)),
        (dw, ("dy.columnwise_data", "x.columnwise_data"), "dw.output", (384, 128, 256)),
    ):
        found = bound(step, arrays)
        assert (found["a_data"], found["b_data"], found["output"]) == (*operands, output)
        assert tuple(found[name] for name in "MKN") == extents
        assert found["c"] is None


def bound(step, arrays) -> dict:
    names = [parameter.name for parameter in step.signature.call]
    return dict(zip(names, (value for _, value in bind(step, arrays)), strict=True))


def test_a_pipeline_moves_what_its_stages_move():
    expected, (m, k, n) = expect(BACKWARD), (128, 256, 384)
    scales = {stage: expected.inputs[f"{stage}.columnwise_scale_inv"].nbytes for stage in "xw"}
    dy = {side: m * n // 2 + expected.fields[f"dy.{side}_scale_inv"].nbytes for side in ("rowwise", "columnwise")}
    quantizing = 2 * 2 * m * n + sum(dy.values())
    dx = dy["rowwise"] + n * k // 2 + scales["w"] + 2 * m * k
    dw = dy["columnwise"] + m * k // 2 + scales["x"] + 2 * n * k
    moved = bytes_moved(plan(BACKWARD), expected.inputs, expected.fields)
    assert 0 <= moved - quantizing - dx - dw <= 100  # the amaxes


def test_the_instantiations_of_a_pipeline_are_those_of_its_stages():
    compiled = {job.signature.name for job in instantiations(("smoke",), ("sm_90a",))}
    assert {step.signature.name for step in (*plan(BACKWARD), *plan(FUSED))} <= compiled


# Against the production recipe


def test_a_pipeline_is_held_against_itself_with_the_production_recipe_by_the_same_route():
    case = find_case("backward/epilogue=per_token,route=library/128x128x128/outliers_cols/graph")
    assert baseline_id(case) == "backward/route=library/128x128x128/outliers_cols/graph"
    assert baseline_of(case).id == baseline_id(baseline_of(case)) == baseline_id(case)
    assert not against_library(case) and against_library(find_case("gemm/default/16x16x16/normal/eager"))
    assert tflops(case, microseconds=2.0) == pytest.approx(2 * 2 * 128**3 / 2e-6 / 1e12)


def test_the_baselines_of_a_shape_are_each_timed_before_what_is_held_against_them():
    ordered = sorted(suite_of("forward").cases("bench"), key=baseline_first)
    problems = [baseline_id(case).rpartition("/")[0] for case in ordered]
    assert len(set(problems)) == 8
    assert sum(one != other for one, other in zip(problems, problems[1:], strict=False)) == 7
    for problem in set(problems):
        group = [case for case in ordered if baseline_id(case).startswith(f"{problem}/")]
        assert [case.id == baseline_id(case) for case in group] == [True, True, *[False] * 6]


# Diagnosis


def story(case, edit) -> tuple[str, tuple[str, ...]]:
    expected = expect(case)
    written = {
        name: (value if isinstance(value, np.ndarray) else value.low).copy() for name, value in expected.values.items()
    }
    edit(written)
    found = story_of(case, "sm_90a", expected, [written])
    return str(found), found.trace


def test_a_broken_stage_is_named_and_those_after_it_are_not_blamed():
    def wrong(written):
        written["dy.columnwise_scale_inv"][5, 1] += 1
        written["dw.output"][:] = 0

    told, options = story(TINY, wrong)
    assert "field     dy.columnwise_scale_inv uint8" in told and "also      dw.output" in told
    assert "stage     dy, per_tensor/rht=true,rounding=sr/32x48" in told
    assert "first     [5, 1], from input [16, 5]" in told
    assert "cause     not known (1-ulp scale)" in told
    assert options == ("--field", "dy.columnwise_scale_inv", "--at", "16,5")


def test_a_wrong_product_has_the_operands_it_was_given():
    def wrong(written):
        written["dw.output"][7, 3] = 1e4

    told, options = story(TINY, wrong)
    assert "stage     dw, gemm/layout=nt/48x32x16" in told
    assert "first     [7, 3], row 7 of A by row 3 of B" in told
    assert options == ("--field", "dw.output", "--at", "7,3")


@pytest.mark.parametrize(
    ("field", "at", "sentence"),
    [
        ("dy.columnwise_data", (16, 5), "stage dy, per_tensor/rht=true,rounding=sr/32x48: dy.columnwise_data: block 1"),
        ("dx.output", (31, 15), "stage dx, gemm/layout=nn/32x48x16: dx.output: row 31 of A by row 15 of B, summed in"),
    ],
)
def test_a_trace_shows_the_stage_that_writes_the_field(field, at, sentence):
    text = trace(TINY, field, at, None, make_inputs(TINY))
    assert sentence in text
    assert "all agree on this block" in text


def test_a_trace_of_what_is_not_there_is_refused():
    with pytest.raises(UsageError, match=r"has no output 'x.columnwise_data'; it has dy.rowwise_data"):
        trace(TINY, "x.columnwise_data")
    with pytest.raises(UsageError, match=r"element 32,0 is outside the 32x16 output of stage dx of backward/"):
        trace(TINY, "dx.output", (32, 0))


def test_a_wrong_kernel_of_one_stage_makes_the_pipeline_red(tmp_path):
    """Stochastic rounding is in dy alone: what is wrong with it is found there, on the emulator."""
    kernels = find("sr writes zeros").copied_to(tmp_path)
    case = find_case("backward/default/80x16x80/normal/eager")  # up to 64 rows are wgmma's, which is not emulated
    result = verify(case, EmulatorDevice(kernels=kernels))
    assert result.verdict is Verdict.MISMATCH
    assert "bytes differ in dy.rowwise_data, dy.columnwise_data" in result.reason
    assert "stage     dy, per_tensor/rht=true,rounding=sr/80x80" in result.story
