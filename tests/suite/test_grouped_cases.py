"""Grouped cases from the suite to the verdict, and one sentence for every way to get a shape wrong."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from grouped_toy import Toy

from harness.bench.baseline import baseline_first, baseline_of
from harness.contract.case import Case, Flags, other_splits
from harness.contract.field import Field
from harness.contract.problem import Dense, Grouped
from harness.device.emulator import EmulatorDevice
from harness.errors import ContractError, SuiteError, UsageError
from harness.expected.expected import expect, high_precision
from harness.inputs.draw import make
from harness.jit.compile import compile_kernel
from harness.jit.geometry import LaunchGeometry
from harness.runner.selection import FIXED_COST, cost
from harness.suite.launch_plan import Step, bind, numbers, plan, scratch_and_workspace
from harness.suite.physics import bytes_moved
from harness.suite.suite import find_case, suite_of
from harness.verdict import Verdict
from harness.verify.verify import verify

PERSISTENT = LaunchGeometry(tile_rows=64, tile_cols=128, threads=64, blocks_per_sm=2, schedule=1)
TILED = LaunchGeometry(tile_rows=128, tile_cols=128, threads=64, blocks_per_sm=0, schedule=0)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    return Toy(tmp_path, monkeypatch)


# Cases


def test_a_group_is_a_case_with_tensors_and_the_extents_of_their_union(toy: Toy):
    case = toy.case()
    assert case.problem.tensors == ((128, 512), (0, 512), (256, 512))
    assert (case.rows, case.cols, case.elements, case.shape) == (384, 512, 384 * 512, "128+0+256x512")
    assert case.id == "toy_group/default/128+0+256x512/normal/eager"
    both = toy.case("128+256x512+128", shape_representation="varying_both_dims")
    assert (both.rows, both.cols) == (1, 128 * 512 + 256 * 128)


def test_every_case_is_found_again_by_its_id(toy: Toy):
    cases = [case for name in toy.suite.sets for case in toy.suite.cases(name)]
    assert len(cases) == 8
    assert [toy.suite.find(case.id) for case in cases] == cases
    assert toy.case("128x3*64", shape_representation="same_both_dims").id.split("/")[2] == "3*128x64"


def test_a_tensor_alone_is_a_dense_case_with_the_seed_of_the_group(toy: Toy):
    case = toy.case(rounding="sr", stage="full", outputs="both")
    dense = case.part(2)
    assert (dense.recipe, dense.problem) == ("per_tensor", Dense(256, 512))
    assert (dense.seed, dense.offset) == (case.seed, (case.offset + 2) % (1 << 32))
    assert (dense.flags.rounding, dense.flags.outputs) == ("sr", "both")
    assert (dense.flags.dtype, dense.flags.sign_mask) == ("bf16", 0xD7E8)  # flags that the group lacks
    assert "shape_representation" not in dense.flags
    assert dense.id == "per_tensor/rounding=sr/256x512/normal/eager"
    assert dense != replace(dense, seed_of="") != replace(dense, philox_offset=0)


def test_a_dense_case_has_its_own_seed_and_offset():
    dense, other = (Case("per_tensor", Flags({}), Dense(16, cols)) for cols in (32, 64))
    assert (dense.philox_offset, dense.elements, dense.shape) == (0, 512, "16x32")
    assert len({0, dense.offset, other.offset}) == 3 and dense.seed != other.seed
    assert replace(dense, philox_offset=(1 << 32) - dense.offset).offset == 0


# Suites

TAIL = "    - axes: {{{axes}, others: default}}\n      shapes: [{shape}]\n      inputs: [normal]\n"


@pytest.mark.parametrize(
    ("axes", "shape", "sentence"),
    [
        ("shape_representation: varying_last_dim", "128+256x512", "'128+256x512' does not fit varying_last_dim of "
         "per_tensor: tensor 1 has rows = 256 where tensor 0 has 128"),
        ("shape_representation: [varying_first_dim, same_both_dims]", "128+256x512", "does not fit same_both_dims"),
        ("recipe: [per_tensor, local_1x64]", "2*128x48", "does not fit varying_first_dim of local_1x64: tensor 0 has "
         "cols = 48; cols is a positive multiple of 64, the nearest is 64"),
        ("stage: full", "100+128x512", "tensor 0 has rows = 100; a varying extent is 0 or a multiple of 16"),
        ("stage: full", "65*128x64", "tensor 64 is one too many"),
        ("stage: full", "128by64", "'128by64' is not a grouped shape"),
        ("stage: full", "[128, 64]", "shapes has [128, 64] where a shape like 128+0+256x512 belongs"),
    ],
)  # fmt: skip
def test_a_shape_that_does_not_fit_is_one_sentence_with_its_line(toy: Toy, axes: str, shape: str, sentence: str):
    toy.path.write_text(toy.path.read_text() + TAIL.format(axes=axes, shape=shape))
    line = len(toy.path.read_text().splitlines()) - 1
    with pytest.raises(SuiteError, match=rf"toy_group.yaml:{line}: .*{re.escape(sentence)}"):
        _ = toy.suite


def test_a_representation_that_there_is_not_is_told(toy: Toy):
    toy.edit("[varying_first_dim", "[varying_frist_dim")
    with pytest.raises(SuiteError, match="there is no shape representation 'varying_frist_dim'; choose same_both_dims"):
        _ = toy.suite


def test_a_shape_need_not_fit_what_is_refused(toy: Toy):
    toy.edit(
        "shape_representation: varying_both_dims}\n    because", "shape_representation: same_both_dims}\n    because"
    )
    axes = "recipe: local_1x64, shape_representation: [varying_last_dim, same_both_dims]"
    toy.path.write_text(toy.path.read_text() + TAIL.format(axes=axes, shape="192x128+256"))
    assert len(toy.suite.cases("bench")) == 2
    toy.edit("shape_representation: same_both_dims}\n    because", "rounding: sr}\n    because")
    with pytest.raises(SuiteError, match="does not fit same_both_dims of local_1x64: tensor 1 has cols = 256"):
        _ = toy.suite


def test_a_block_of_nothing_but_refusals_says_why(toy: Toy):
    axes = "recipe: local_1x64, shape_representation: varying_both_dims"
    toy.path.write_text(toy.path.read_text() + TAIL.format(axes=axes, shape="128x128"))
    with pytest.raises(SuiteError, match="is excluded, so it holds no case: a reason of the test's own"):
        toy.suite.cases("bench")


def test_splits_vary_by_what_divides_them_alone(toy: Toy):
    toy.path.write_text(toy.path.read_text() + TAIL.format(axes="recipe: local_1x64", shape="64+0+192x64"))
    assert "64+0+192x64" in {case.shape for case in toy.suite.cases("bench")}
    toy.edit("shapes: [64+0+192x64]", "shapes: [64+0+96x64]")
    with pytest.raises(SuiteError, match="tensor 2 has rows = 96; a varying extent is 0 or a multiple of 64"):
        _ = toy.suite


def test_a_grouped_suite_says_what_its_tensors_are(toy: Toy):
    toy.edit("  recipe: [per_tensor, local_1x64]\n", "  other: [per_tensor, local_1x64]\n")
    toy.edit("{recipe: local_1x64", "{other: local_1x64")
    with pytest.raises(SuiteError, match="flag shape_representation needs the flag recipe"):
        _ = toy.suite


def test_a_representation_nobody_knows(toy: Toy):
    toy.edit("varying_last_dim,", "varying_last,")
    with pytest.raises(SuiteError, match=r"yaml:4: there is no shape representation 'varying_last'; choose same_both"):
        _ = toy.suite


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ("128+128by512", "'128+128by512' is not a grouped shape"),
        ("128+100x512", "tensor 1 has rows = 100; a varying extent is 0 or a multiple of 16, the nearest is 96"),
        ("128x512+512+256", "tensor 2 has cols = 256 where tensor 0 has 512"),
    ],
)
def test_an_id_whose_shape_is_wrong(toy: Toy, shape: str, sentence: str):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        toy.case(shape)


def test_a_file_must_hold_every_tensor(toy: Toy):
    name = "file:suites/data/minilm_sample.safetensors#ffn_up.weight"
    assert toy.case("256+0x128", name).input == name
    with pytest.raises(SuiteError, match="the tensor is 256x128, smaller than the 384x128"):
        toy.case("128+384x128", name)


# Inputs and expectations


def test_every_tensor_is_drawn_on_its_own(toy: Toy):
    case = toy.case("128+0+256x128+512+256", "outlier_spike", shape_representation="varying_both_dims")
    flat = high_precision(case)["x"]
    parts = [
        make("outlier_spike", *extents, "bf16", case.seed + g) for g, extents in ((0, (128, 128)), (2, (256, 256)))
    ]
    assert flat.shape == (case.elements,)
    assert flat.tobytes() == b"".join(part.tobytes() for part in parts)


def test_an_activation_has_an_input_of_its_own(toy: Toy):
    case = toy.case("2*128x64")
    case = replace(case, flags=type(case.flags)({**case.flags, "activation": "dgelu"}))
    made = high_precision(case)
    assert list(made) == ["x", "act_input"]
    assert made["x"].shape == made["act_input"].shape
    assert not np.isin(made["act_input"].reshape(2, -1)[:, :9], made["x"].reshape(2, -1)[:, :9]).all()


def test_both_oracles_agree_on_a_group_with_empty_tensors(toy: Toy):
    expected = expect(toy.case("0+128+0x512", stage="full", outputs="both"))
    assert expected.disagreement == ""
    assert expected.oracles == ("numpy", "torch")
    assert expected.values["rowwise_amax"].tolist()[::2] == [0, 0]
    assert expected.inputs["first_dims"].tolist() == [0, 128, 0]


def test_a_grouped_field_is_its_tensors_back_to_back():
    parts = (Field((2, 3), "uint8"), Field((0, 3), "uint8"), Field((1, 4), "uint8"))
    field = Field.joined(parts)
    assert (field.shape, field.nbytes) == ((10,), 10)
    assert field.part(np.arange(10), 0).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert field.part(np.arange(10), 1).shape == (0, 3)
    assert field.part(np.arange(10), 2).tolist() == [[6, 7, 8, 9]]
    assert Field.joined([Field((4,), "float32")] * 2, (2, 4)).part(np.arange(8).reshape(2, 4), 1).tolist() == [
        4,
        5,
        6,
        7,
    ]
    with pytest.raises(ContractError, match="a field of 11 entries have 10; they must fill it"):
        Field((11,), "uint8", parts=parts)
    with pytest.raises(ContractError, match="tensor 1 of a uint8 field has float32 entries"):
        Field((3,), "uint8", parts=(Field((2,), "uint8"), Field((1,), "float32")))


def test_a_group_whose_fields_have_no_parts_is_refused(toy: Toy, monkeypatch: pytest.MonkeyPatch):
    oracle = sys.modules["harness.oracles.toy_group"]
    monkeypatch.setattr(oracle, "outputs", lambda case: {"rowwise_amax": Field((3,), "float32")})
    with pytest.raises(ContractError, match="field rowwise_amax has 0 parts; must be one for each of the 3 tensors"):
        expect(toy.case(input_name="ties"))


# Launches


def test_a_persistent_grid_counts_the_tiles_of_every_tensor(toy: Toy):
    assert PERSISTENT.grid(toy.case("128+0+256x512").problem, 132) == (2 * 4 + 0 + 4 * 4, 1, 1)
    assert PERSISTENT.grid(toy.case("128+0+256x512").problem, 4) == (8, 1, 1)
    assert PERSISTENT.grid(toy.case("2*16x16", shape_representation="same_both_dims").problem, 132) == (2 * 2, 1, 1)


def test_a_group_without_elements_has_a_grid(toy: Toy):
    assert PERSISTENT.grid(toy.case("0+0x512").problem, 132) == (1, 1, 1)
    assert TILED.grid(toy.case("0+0x512").problem, 132) == (1, 1, 1)


ALLOCATED = [
    "grouped/default/0+128+0of384x80/normal/eager",
    "grouped/dtype=fp32,outputs=rowwise,schedule=persistent/0+128+0of384x80/normal/eager",
    "grouped/rht=true,activation=dgelu,dbias=true/0+128+0of384x80/normal/eager",
    "grouped/recipe=per_token/0+128+0of384x128/normal/eager",
    "grouped/recipe=per_token/0+64+0of384by64x128/normal/eager",
    "grouped/recipe=per_token,activation=drelu,dbias=true/0+128+0of384x128/normal/eager",
    "grouped/recipe=per_token,activation=drelu,dbias=true/0+128+0of384x80/normal/eager",
    "grouped/recipe=per_token,shape_representation=varying_both_dims,resident=false/0+128x256+128of65536/normal/eager",
]


@pytest.mark.slow
@pytest.mark.parametrize("case_id", ALLOCATED)
def test_no_launch_depends_on_a_split_and_reading_one_on_the_host_fails(case_id: str):
    """The plan, its memory, its numbers and its grids are made without the extents of a tensor."""
    case = find_case(case_id)
    made = []
    for split in (case, *other_splits(case)):
        steps = plan(split, fits=lambda step: step.case.flags.resident)
        for step in steps:
            problem = step.case.problem
            assert len(problem.tensors) == len(case.problem.tensors)
            for read in (tuple, str, lambda tensors: tensors[0]):
                with pytest.raises(ContractError, match="the host reads the extents of [23] tensors"):
                    read(problem if read is str else problem.tensors)
        kernels = [compile_kernel(step.signature, step.flags, "compute_90a") for step in steps]
        grids = [kernel.launch.grids(step.case.problem, 4) for kernel, step in zip(kernels, steps, strict=True)]
        made.append((grids, scratch_and_workspace(steps), [numbers(step.case) for step in steps]))
    assert all(each == made[0] for each in made)


@pytest.mark.parametrize(("shape", "edges"), [("128+0of256x128", False), ("256of256by64x128", True), ("64x128", True)])
def test_kernels_mind_edges_where_some_split_has_them(shape: str, edges: bool):
    case = find_case(f"grouped/recipe=per_token/{shape}/normal/eager")
    for split in (case, *other_splits(case)):
        assert {step.flags.edges for step in plan(split)} == {edges}


def test_a_grid_of_an_allocation_has_a_block_for_every_tile_that_a_split_can_have(toy: Toy):
    for shape, blocks in (("0+128+0of512x80", 4), ("0+64+0of512by64x80", 5)):
        case = find_case(f"grouped/default/{shape}/normal/eager")
        assert TILED.grid(case.problem, 132) == (blocks, 1, 1)
        for split in (case, *other_splits(case)):
            filled = replace(split.problem, capacity=None)
            assert TILED.grid(split.problem, 132) == (blocks, 1, 1) >= TILED.grid(filled, 132)


def test_a_persistent_grid_of_a_group_is_tried_on_a_small_device_too(toy: Toy):
    many = toy.case("128+0+256x512").problem
    assert PERSISTENT.grids(many, 132) == ((24, 1, 1), (8, 1, 1))  # three tiles each
    assert PERSISTENT.grids(many, 2) == ((4, 1, 1),)  # which have six
    assert PERSISTENT.grids(toy.case("0+0x512").problem, 132) == ((1, 1, 1),)


def test_in_some_case_of_smoke_a_block_finds_a_second_tile():
    """Rows without columns have amaxes, and no block of the grid; the barrier between two tiles is for such a split."""
    case = find_case(
        "grouped/recipe=row_scaled,shape_representation=varying_last_dim,outputs=rowwise"
        "/128x0+16+0+64/outliers_rows/eager"
    )
    assert case in suite_of("grouped").cases("smoke")
    (step,) = plan(case)
    launch = compile_kernel(step.signature, step.flags, "compute_90a").launch
    blocks, _, _ = launch.grid(step.case.problem, 132)
    items = sum(-(-rows // 128) * 128 // launch.tile_rows for rows, _ in case.problem.tensors)
    assert items == 2 * blocks


def test_numbers_and_arrays_of_a_group_are_bound_by_name(toy: Toy):
    case = toy.case()
    (step,) = plan(case, toy.kernels)
    arrays = {"input": "x", "tensor_offsets": "o", "first_dims": "f", "last_dims": "l", "rowwise_amax": "a"}
    bound = dict(zip([parameter.name for parameter in step.signature.call], bind(step, arrays), strict=True))
    assert bound["tensor_offsets"] == ("i64", "o")
    assert [bound[name] for name in ("num_tensors", "rows", "cols")] == [("int", 3), ("i64", 384), ("i64", 512)]
    assert numbers(baseline_of(case))["num_tensors"] == 3


def test_bytes_moved_are_those_of_every_array(toy: Toy):
    case = toy.case()
    expected = expect(case)
    steps: tuple[Step, ...] = plan(case, toy.kernels)
    assert bytes_moved(steps, expected.inputs, expected.fields) == 2 * case.elements + 8 * (4 + 3 + 3) + 4 * 3


def test_the_baseline_of_a_group_is_that_group_by_the_production_recipe(toy: Toy):
    for shape, kind in (("8*128x64", "varying_first_dim"), ("256x128+384", "varying_last_dim")):
        case = toy.case(shape, shape_representation=kind)
        baseline = baseline_of(case)
        assert (baseline.recipe, baseline.shape) == ("grouped", shape)
        assert (baseline.flags.shape_representation, baseline.flags.outputs) == (kind, case.flags.outputs)
        assert baseline_first(baseline) < baseline_first(case)
    finer = replace(toy.case(), problem=Grouped(128, 128, ((56, 128), (72, 128))))  # per_tensor takes no 8 rows
    assert (baseline_of(finer).recipe, baseline_of(finer).problem) == ("per_tensor", Dense(128, 128))
    assert cost(toy.case()) == 384 * 512 + FIXED_COST


# Verdicts


@pytest.mark.parametrize("shape", ["128+0+256x512", "0+0x512", "256x512", "0+128+0+0+128+0+128x64"])
def test_a_right_kernel_passes(toy: Toy, shape: str):
    result = verify(toy.case(shape), EmulatorDevice(kernels=toy.kernels))
    assert result.verdict is Verdict.PASS, result.story
    assert result.oracles == ("numpy", "torch")


def test_a_kernel_that_stops_at_an_empty_tensor_is_caught(toy: Toy):
    toy.edit_kernel("unsigned bits = 0;", "unsigned bits = 0; if (size == 0) return;")
    result = verify(toy.case(), EmulatorDevice(kernels=toy.kernels, multiprocessors=1))
    assert result.verdict is Verdict.UNWRITTEN
    assert "rowwise_amax" in result.reason


def test_a_wrong_tensor_is_named(toy: Toy):
    toy.edit_kernel("i < size;", "i < size - (tensor == 2 ? 128 * 512 : 0);")
    case = next(
        case
        for case in (toy.case("128+0+256x512", name) for name in ("outlier_spike", "normal", "heavy_tail", "huge"))
        if np.argmax(np.abs(high_precision(case)["x"][128 * 512 :].astype(np.float32))) >= 128 * 512
    )
    result = verify(case, EmulatorDevice(kernels=toy.kernels))
    assert result.verdict is Verdict.MISMATCH
    assert "tensor    2 of 3, 256x512; the first is 0" in result.story
    assert result.trace == ("--tensor", "2", "--field", "rowwise_amax", "--at", "0,0")
