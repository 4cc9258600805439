"""grouped: every tensor is the dense recipe on it alone, wherever the empty ones stand; sr by offset + g; refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from quantized import agree, assert_arrays_refused, assert_refused, assert_same

from harness.contract.case import Flags, other_splits
from harness.contract.problem import Dense, Grouped
from harness.errors import ContractError
from harness.expected.expected import high_precision
from harness.inputs import draw
from harness.oracles import four_over_six, grouped, local_1x64, nvfp4, per_tensor, per_token, row_scaled

F32 = np.float32
BF16 = nvfp4.DTYPES["bf16"]
MODULES = {"per_tensor": per_tensor, "per_token": per_token}
# without rht, sr or anything fused
SPLIT = {"row_scaled": row_scaled, "local_1x64": local_1x64, "four_over_six": four_over_six}
SHAPES = {
    "same_both_dims": ["3*128x256", "1*256x128"],
    "varying_first_dim": ["128+0+256x128", "0+128x256", "256+128+0x128", "0+0x128", "384x128"],
    "varying_last_dim": ["128x256+0+128", "256x0+128", "128x128+0"],
    "varying_both_dims": ["128+256x256+128", "0+128+128x128+256+0", "0+0x128+0"],
}
SHAPED = [(kind, shape) for kind, shapes in SHAPES.items() for shape in shapes]
FLAGS = [
    {},
    {"outputs": "rowwise", "scale_layout": "swizzled"},
    {"outputs": "columnwise", "rht": True, "rounding": "sr"},
    {"stage": "amax", "rht": True},
    {"rht": True, "sign_mask": 0x5A5A},
    {"stage": "encode", "rounding": "sr", "scale_layout": "swizzled"},
]
GIVEN = {"stage": "encode", "amax": "shared"}


def inputs_of(case):
    return grouped.inputs(case, **high_precision(case))


SPLIT_FLAGS = [{"dtype": "fp16"}, {"outputs": "rowwise", "scale_layout": "swizzled"}, {"outputs": "columnwise"}]
STAGES = [{"stage": "amax", "dtype": "fp32"}, {"stage": "encode"}]
FLAGS_OF_SPLIT = {
    "row_scaled": SPLIT_FLAGS + STAGES,
    "local_1x64": SPLIT_FLAGS,
    "four_over_six": [
        *STAGES,
        {"error": "mse", "e4m3_max": 448},
        {"outputs": "columnwise", "error_math": "fp16"},
        {"block": "block_16x16"},
        {"outputs": "rowwise", "row_scaled": True},
        {"outputs": "rowwise", "row_scaled": True, "stage": "encode", "e4m3_max": 448},
    ],
}
SPLITS = {
    "row_scaled": [
        ("varying_first_dim", "16+0+48x80"),
        ("varying_last_dim", "32x0+16+144"),
        ("same_both_dims", "2*16x48"),
    ],
    "local_1x64": [
        ("varying_first_dim", "64+0+192x64"),
        ("varying_last_dim", "64x0+64+192"),
        ("same_both_dims", "2*64x64"),
    ],
    "four_over_six": [("varying_first_dim", "16+0+48x80"), ("varying_last_dim", "32x0+16+144")],
}


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("recipe", "kind", "shape", "flags"),
    [
        *((recipe, *shaped, flags) for shaped in SHAPED for flags in FLAGS for recipe in MODULES),
        *(("per_tensor", *shaped, {"fast_math": True}) for shaped in SHAPED),
        *(("per_tensor", *shaped, {"block": "block_16x16", "scale_layout": "swizzled"}) for shaped in SHAPED),
        *(
            (recipe, *shaped, flags)
            for recipe, shapes in SPLITS.items()
            for shaped in (*shapes, ("varying_both_dims", "0+128+128x128+256+0"))
            for flags in FLAGS_OF_SPLIT[recipe]
        ),
    ],
    ids=str,
)
def test_every_tensor_is_the_dense_recipe_alone(make_group, kind, shape, flags, recipe):
    """The dense case is made here by hand: the flags of the group, its seed, and an offset of g."""
    module = (MODULES | SPLIT)[recipe]
    case = make_group(shape, shape_representation=kind, recipe=recipe, **flags)
    given, fields = agree(case, inputs_of(case)), grouped.outputs(case)
    x, start = high_precision(case)["x"], 0
    ends = dict.fromkeys(given, 0)
    for g, (rows, cols) in enumerate(case.problem.tensors):
        alone = x[start : start + rows * cols].reshape(rows, cols)
        start += rows * cols
        if not alone.size:
            by_line = recipe in ("row_scaled", "per_token") or "row_scaled" in flags
            expected = {name: np.zeros(_entries_of_nothing(name, recipe, by_line, rows, cols), F32) for name in given}
        else:
            of_one = {"fast_math": flags.get("fast_math", False), "weight_2d": False}
            own = {"per_token": 0xACE1}.get(recipe, 0xD7E8)
            of_one |= {"sign_mask": flags.get("sign_mask", own), "multiplier": "direct"}
            of_one |= {"e4m3_max": flags.get("e4m3_max", 256)} if recipe == "four_over_six" else {}
            dense = replace(case, recipe=recipe, flags=Flags({**case.flags, **of_one}), problem=Dense(rows, cols))
            dense = replace(dense, philox_offset=g, seed_of=case.data_id)
            expected = module.numpy_oracle(dense, module.inputs(dense, alone))
        for name, array in expected.items():
            part = given[name][ends[name] : ends[name] + array.size]
            np.testing.assert_array_equal(part, array.ravel(), err_msg=f"{name} of tensor {g}")
            np.testing.assert_array_equal(fields[name].part(given[name], g).ravel(), part)
            ends[name] += array.size
    assert ends == {name: array.size for name, array in given.items()}


def _entries_of_nothing(name, recipe, by_line, rows, cols):
    if not name.endswith("amax") or recipe == "local_1x64":
        return 0
    return 1 if not by_line else rows if name.startswith("rowwise") else cols


@pytest.mark.parametrize("recipe", MODULES)
def test_an_empty_tensor_moves_only_the_offsets_of_those_behind_it(make_group, recipe):
    flags = {"recipe": recipe, "shape_representation": "varying_first_dim"}
    two, three = make_group("128+256x128", **flags), make_group("128+0+256x128", **flags)
    x = high_precision(two)
    assert_same(*(data_of(agree(case, grouped.inputs(case, **x))) for case in (three, two)))
    sr = [replace(case, flags=case.flags.replace(rounding="sr"), seed_of="one seed") for case in (two, three)]
    two, three = (grouped.numpy_oracle(case, grouped.inputs(case, **x)) for case in sr)
    assert (two["rowwise_data"] != three["rowwise_data"]).any()
    np.testing.assert_array_equal(two["rowwise_data"][: 64 * 128], three["rowwise_data"][: 64 * 128])


def data_of(fields):
    return {name: array for name, array in fields.items() if not name.endswith("amax")}


def test_sr_draws_every_tensor_from_its_own_offset(make_group):
    """Three equal tensors get different bytes, each equal to a dense tensor with the group's seed and offset g."""
    case = make_group("3*128x128", shape_representation="same_both_dims", rounding="sr")
    x = np.tile(draw.make("normal", 128, 128, "bf16", 1).ravel(), 3)
    parts = agree(case, grouped.inputs(case, x))["rowwise_data"].reshape(3, -1)
    assert all((parts[a] != parts[b]).any() for a, b in itertools.combinations(range(3), 2))
    later = replace(case, philox_offset=1, seed_of=case.data_id)
    later = agree(later, grouped.inputs(later, x))["rowwise_data"].reshape(3, -1)
    np.testing.assert_array_equal(later[:2], parts[1:])
    assert case.part(2).seed == case.seed


@pytest.mark.parametrize("recipe", MODULES)
def test_fields_are_flat_with_dense_parts(make_group, recipe):
    case = make_group("128+0+256x384", recipe=recipe, scale_layout="swizzled", dbias=True)
    fields = grouped.outputs(case)
    for name, field in fields.items():
        assert len(field.parts) == 3
        assert field.shape == ((3, 384) if name == "dbias" else (field.size,))
    swizzled = {name for name, field in fields.items() if field.parts[2].swizzled}
    both = {"rowwise_scale_inv", "columnwise_scale_inv"}
    assert swizzled == (both if recipe == "per_tensor" else {"rowwise_scale_inv"})
    amaxes = {name: [part.shape for part in fields[name].parts] for name in ("rowwise_amax", "columnwise_amax")}
    if recipe == "per_tensor":
        assert amaxes == dict.fromkeys(amaxes, [(1,)] * 3)
    else:
        assert amaxes == {"rowwise_amax": [(128,), (0,), (256,)], "columnwise_amax": [(384,)] * 3}


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", nvfp4.DTYPES)
@pytest.mark.parametrize("name", [name for name, _ in draw.names()])
def test_the_oracles_agree_on_every_distribution(make_group, name, dtype):
    activations = ["none", "dgelu", "dsilu", "drelu", "dqgelu", "dsrelu"]
    for number, activation in enumerate(activations):
        flags = {"dtype": dtype, "activation": activation, "dbias": True}
        flags |= {"rounding": ("rne", "sr")[number % 2], "rht": dtype == "bf16" and number % 3 == 0}
        cases = [make_group("128+0+256x128", name, **flags)]
        if dtype == "bf16":
            cases.append(make_group("2*128x128", name, **flags | {"recipe": "per_token"}))
        for case in cases:
            agree(case, inputs_of(case))


def test_many_tensors(make_group):
    shape = "+".join(str(128 * (g % 3)) for g in range(64)) + "x128"
    for recipe in MODULES:
        case = make_group(shape, recipe=recipe, rounding="sr")
        agree(case, inputs_of(case))


def test_a_tensor_alone_has_its_own_lines_amaxes(make_group):
    case = make_group("128+0+256x384", recipe="per_token", stage="encode")
    lines = {"rowwise_amax": np.arange(384, dtype=F32), "columnwise_amax": np.arange(3 * 384, dtype=F32)}
    own = grouped.inputs_of(case, {"input": np.zeros(case.elements, BF16)} | lines, 2)
    assert own["input"].shape == (256, 384)
    assert own["rowwise_amax"].tolist() == list(range(128, 384))
    assert own["columnwise_amax"].tolist() == list(range(2 * 384, 3 * 384))
    whole = {name: np.arange(3, dtype=F32) for name in lines} | {"input": np.zeros(case.elements, BF16)}
    case = make_group("128+0+256x384", stage="encode")
    assert grouped.inputs_of(case, whole, 2)["rowwise_amax"].tolist() == [2]


def test_encode_takes_the_amaxes_it_is_given(make_group):
    case = make_group("128+0+256x128", stage="encode", outputs="rowwise")
    tensors = grouped.inputs(case, **high_precision(case))
    assert [name for name in tensors if name.endswith("amax")] == ["rowwise_amax"]
    assert tensors["rowwise_amax"].tolist()[1] == 0
    reference = grouped.numpy_oracle(case, tensors)["rowwise_scale_inv"]
    tensors["rowwise_amax"] = tensors["rowwise_amax"] * F32([1, 1, 2])
    differs = grouped.numpy_oracle(case, tensors)["rowwise_scale_inv"] != reference
    field = grouped.outputs(case)["rowwise_scale_inv"]
    assert not field.part(differs, 0).any() and field.part(differs, 2).any()


@pytest.mark.parametrize("outputs", ["both", "rowwise", "columnwise"])
def test_one_amax_is_every_tensors(make_group, outputs):
    case, each = (
        make_group("128+0+256x128", stage="encode", outputs=outputs, amax=amax) for amax in ("shared", "each")
    )
    tensors, own = (grouped.inputs(asked, **high_precision(case)) for asked in (case, each))
    names = [name for name in tensors if name.endswith("amax")]
    largest = np.abs(tensors["input"].astype(F32)).max()
    assert all(tensors[name].tolist() == [largest] for name in names)
    assert any((found != agree(each, own)[name]).any() for name, found in agree(case, tensors).items())
    for factor in (1, 3):  # whatever is given
        given = tensors | {name: np.array([largest * factor], F32) for name in names}
        repeated = own | {name: np.full(3, largest * factor, F32) for name in names}
        assert_same(agree(case, given), agree(each, repeated))


@pytest.mark.parametrize("outputs", ["both", "columnwise"])
def test_columns_by_the_amaxes_of_rows(make_group, outputs):
    case, each = (
        make_group("128+0+256x128", stage="encode", outputs=outputs, amax=amax) for amax in ("rowwise", "each")
    )
    tensors, own = (grouped.inputs(asked, **high_precision(case)) for asked in (case, each))
    assert [name for name in tensors if name.endswith("amax")] == ["rowwise_amax"]
    assert_same(agree(case, tensors), agree(each, own))
    amax = tensors["rowwise_amax"] * F32([2, 1, 3])
    given = {"rowwise_amax": amax, "columnwise_amax": amax}
    assert_same(agree(case, tensors | given | {"columnwise_amax": amax * 2}), agree(each, own | given))


class TestRefusals:
    @pytest.mark.parametrize(
        ("shape", "flags", "word"),
        [
            ("128+72x128", {}, r"tensor 1 has rows = 72; .* multiple of 16"),
            ("128x128+104", {"shape_representation": "varying_last_dim"}, "tensor 1 has cols = 104"),
            ("128+128x128+136", {"shape_representation": "varying_both_dims"}, "tensor 1 has cols = 136"),
            ("128+256x128", {"shape_representation": "same_both_dims"}, "tensor 1 has rows = 256"),
            ("65*128x128", {}, "tensor 64 is one too many"),
            ("2*128x72", {}, "tensor 0 has cols = 72"),
            ("128+24x80", {"recipe": "per_token"}, "tensor 1 has rows = 24; a varying extent is 0 or a multiple of 16"),
            (
                "64of256x80",
                {},
                "multiple of 128, the nearest is 128; a capacity that ends in by64 takes multiples of 64",
            ),
            ("64+32of256by64x80", {}, "tensor 1 has rows = 32; a varying extent is 0 or a multiple of 64"),
            ("2*128x0", {}, "tensor 0 has cols = 0"),
            ("128x128", {"recipe": "swizzle"}, "recipe must be per_tensor or .*four_over_six, not swizzle"),
            ("128x128", {"recipe": "four_over_six", "rht": True}, "rht must be false, not true: a rotated block"),
            ("128x128", {"recipe": "four_over_six", "rounding": "sr"}, "rounding must be rne, not sr: the error of"),
            ("128x128", {"recipe": "four_over_six", "scale_layout": "swizzled"}, "scale_layout must be compact, not"),
            ("128x128", {"recipe": "four_over_six", "dbias": True}, "dbias must be false, not true: four_over_six"),
            ("128x128", {"recipe": "four_over_six", "activation": "drelu"}, "activation must be none, not drelu"),
            ("128x128", {"recipe": "four_over_six", "fast_math": True}, "fast_math must be false, not true: only per_"),
            ("128x128", {"recipe": "four_over_six", "row_scaled": True}, "outputs must be rowwise, not both: row_"),
            ("128x128", {"recipe": "four_over_six", "e4m3_max": 200}, "e4m3_max must be .*, not 200"),
            (
                "16+24x16",
                {"recipe": "four_over_six"},
                "tensor 1 has rows = 24; a varying extent is 0 or a multiple of 16",
            ),
            ("128x128", {"error": "mse"}, "error must be mae, not mse: only four_over_six has it"),
            ("128x128", {"recipe": "row_scaled", "row_scaled": True}, "row_scaled must be false, not true: only four_"),
            ("128x128", {"e4m3_max": 448}, "e4m3_max must be own, not 448: only four_over_six has it"),
            ("16+24x16", {"recipe": "row_scaled"}, "tensor 1 has rows = 24; a varying extent is 0 or a multiple of 16"),
            ("64+32x64", {"recipe": "local_1x64"}, "tensor 1 has rows = 32; a varying extent is 0 or a multiple of 64"),
            ("128x128", {"recipe": "row_scaled", "rht": True}, "rht must be false, not true"),
            ("128x128", {"recipe": "local_1x64", "rounding": "sr"}, "rounding must be rne, not sr"),
            ("128x128", {"recipe": "row_scaled", "dbias": True}, "dbias must be false, not true: row_scaled"),
            ("128x128", {"recipe": "local_1x64", "activation": "drelu"}, "activation must be none, not drelu: local_"),
            ("128x128", {"recipe": "local_1x64", "stage": "amax"}, "stage must be full, not amax: one read"),
            (
                "128x128",
                {"recipe": "per_token", "fast_math": True},
                "fast_math must be false, not true: only per_tensor",
            ),
            ("128x128", {"recipe": "per_token", "dtype": "fp16"}, "dtype must be bf16, not fp16"),
            ("128x128", {"rht": True, "dtype": "fp32"}, "rht rotates bf16 inputs only, not fp32"),
            ("128x128", {"activation": "gelu"}, "activation must be none, dgelu, .* not gelu"),
            ("128x128", {"shape_representation": "varying_last_dim", "dbias": True}, "dbias must be false, not true"),
            ("128x128", {"shape_representation": "varying_both_dims", "dbias": True}, "dbias must be false"),
            ("128x128", {"stage": "encode", "dbias": True}, "dbias must be false, not true: the read that finds"),
            ("128x128", {"shape_representation": "varying_last_dim", "activation": "drelu"}, "activation must be none"),
            (
                "128x128",
                {"block": "block_16x16", "recipe": "per_token"},
                "block must be block_1x16 with recipe=per_token",
            ),
            ("128x128", {"block": "block_16x16", "recipe": "row_scaled"}, "block must be block_1x16 with recipe=row_"),
            ("128x128", {"block": "block_16x16", "dbias": True}, "dbias must be false, not true: 16x16 blocks are"),
            ("128x128", {"block": "block_16x16", "activation": "drelu"}, "activation must be none, not drelu: 16x16"),
            ("128x128", {"block": "block_16x16", "rht": True}, "rht"),
            ("128x128", {"block": "block_16x16", "rounding": "sr"}, "rounding must be rne, not sr: 16x16 blocks are"),
            ("128x128", {"block": "block_32x32"}, "block must be block_16x16, not block_32x32"),
            ("128x128", {"amax": "shared"}, "stage must be encode, not full: the other stages find the amax of each"),
            ("128x128", GIVEN | {"recipe": "per_token"}, "recipe must be per_tensor, not per_token: only an encode of"),
            ("128x128", GIVEN | {"rht": True}, "rht must be false, not true: only an encode of per_tensor as it is"),
            ("128x128", GIVEN | {"activation": "drelu"}, "activation must be none, not drelu: only an encode"),
            ("128x128", GIVEN | {"amax": "none"}, "amax must be each, shared or rowwise, not none"),
            ("128x128", GIVEN | {"amax": "rowwise", "outputs": "rowwise"}, "amax=rowwise is for a columnwise output"),
        ],
    )
    def test_a_sentence_names_what_is_wrong(self, make_group, shape, flags, word):
        case = make_group(shape, **flags)
        assert_refused(grouped, case, word, np.zeros(case.problem.group.elements, BF16))

    def test_a_group_of_no_tensor(self, make_group):
        case = replace(make_group("128x128"), problem=Grouped(128, 128, ()))
        with pytest.raises(ContractError, match="grouped: a group of 0 tensors"):
            grouped.outputs(case)

    @pytest.mark.parametrize(
        ("wrong", "word"),
        [
            ({"input": np.zeros((384, 128), BF16)}, r"input must have the shape \(49152,\)"),
            ({"act_input": None}, "act_input is missing"),
            ({"act_input": np.zeros(128, BF16)}, r"act_input must have the shape \(49152,\)"),
            ({"rowwise_amax": np.zeros(2, F32)}, r"rowwise_amax must have the shape \(3,\)"),
            ({"rowwise_amax": np.zeros(1, F32)}, r"rowwise_amax must have the shape \(3,\)"),
            ({"tensor_offsets": np.array([0, 16384, 16000, 49152])}, "tensor 1 ends at element 16000"),
            ({"first_dims": np.array([128, 128, 128])}, "tensor 1 ends at element 16384"),
            (
                {"first_dims": np.array([256, 0, 128]), "tensor_offsets": np.array([0, 32768, 32768, 49152])},
                "dims say tensor 0 is 256x128, and the case says 128x128",
            ),
        ],
        ids=str,
    )
    def test_arrays_that_are_not_what_the_case_says(self, make_group, wrong, word):
        case = make_group("128+0+256x128", stage="encode", outputs="rowwise", activation="drelu")
        tensors = {name: array for name, array in (inputs_of(case) | wrong).items() if array is not None}
        assert_arrays_refused(case, tensors, word)


# Allocations with a capacity

ALLOCATED = [
    ("128+0+256of1024x384", "128+0+256x384", {"shape_representation": "varying_first_dim"}),
    ("128+0+256x256+128+128of163840", "128+0+256x256+128+128", {"shape_representation": "varying_both_dims"}),
    ("3*0of128x128", "3*0x128", {"shape_representation": "varying_first_dim"}),
    ("64+0+192of512by64x192", "64+0+192x192", {"shape_representation": "varying_first_dim"}),
    ("64+0+128x192+64+64of65536by64", "64+0+128x192+64+64", {"shape_representation": "varying_both_dims"}),
]


@pytest.mark.sweep
@pytest.mark.parametrize("flags", [{}, {"stage": "encode"}, {"rht": True, "rounding": "sr"}], ids=str)
@pytest.mark.parametrize("recipe", MODULES)
@pytest.mark.parametrize(("allocated", "filled", "kind"), ALLOCATED)
def test_slack_changes_no_byte_of_a_tensor(make_group, allocated, filled, kind, recipe, flags):
    wide, tight = (make_group(shape, recipe=recipe, **kind, **flags) for shape in (allocated, filled))
    tight = replace(tight, seed_of=wide.seed_name)
    assert_same(*(agree(case, inputs_of(case)) for case in (wide, tight)))


@pytest.mark.parametrize("recipe", MODULES)
@pytest.mark.parametrize(
    ("full", "kind"),
    [
        ("512+512of1024x256", "first"),
        ("256+512x256+128of131072", "both"),
        ("64+448of512by64x192", "first"),
        ("64+256x192+64of65536by64", "both"),
    ],
)
def test_an_output_is_as_large_as_if_its_tensors_filled_the_allocation(make_group, full, kind, recipe):
    case = make_group(full, recipe=recipe, shape_representation=f"varying_{kind}_dim{'s' * (kind == 'both')}")
    sizes = {name: field.allocated for name, field in grouped.outputs(case).items()}
    for split in other_splits(case):
        fields = grouped.outputs(split)
        assert {name: field.allocated for name, field in fields.items()} == sizes
        assert {name: field.nbytes for name, field in fields.items()} == {
            name: array.nbytes for name, array in grouped.numpy_oracle(split, inputs_of(split)).items()
        }


@pytest.mark.parametrize("count", [1, 2, 3])
def test_rowwise_scales_have_room_for_the_split_that_needs_most(make_group, count):
    needed, rows = set(), 256
    for splits in itertools.product(range(0, rows + 1, 64), repeat=count):
        if sum(splits) <= rows:
            case = make_group(f"{'+'.join(map(str, splits))}of{rows}by64x64", outputs="rowwise")
            field = grouped.outputs(case)["rowwise_scale_inv"]
            needed.add(field.nbytes)
    assert max(needed) == field.allocated


@pytest.mark.parametrize("recipe", MODULES)
def test_slack_of_what_is_read_has_no_number(make_group, recipe):
    case = make_group("128+0+256of1024x128", recipe=recipe, stage="encode", activation="dgelu")
    given = inputs_of(case)
    rows = 384
    for name, end in {"input": rows * 128, "act_input": rows * 128, "rowwise_amax": rows}.items():
        if recipe == "per_token" or name != "rowwise_amax":
            assert np.isfinite(given[name][:end].astype(F32)).all()
            slack = given[name][end:].astype(F32)
            assert slack.size == end // rows * (1024 - rows)
            assert np.isnan(slack).any() and np.isinf(slack).any() and not np.isfinite(slack).any()
