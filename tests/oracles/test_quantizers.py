"""What all quantizers share, by both oracles: steps, granules, directions, stages, slabs, specials, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from quantized import BOTH, SIDES, assert_arrays_refused, assert_refused, assert_same, by, codes, run, with_flags

from harness.errors import ContractError
from harness.expected.expected import oracle_of
from harness.oracles import layout, nvfp4, torch_source

F32 = np.float32
BF16 = nvfp4.DTYPES["bf16"]
BLOCKS = [(48, 80), (304, 272), (16, 16)]
SHAPES = {
    "per_tensor": BLOCKS,
    "row_scaled": BLOCKS,
    "local_1x64": [(64, 64), (192, 320), (128, 64)],
    "four_over_six": BLOCKS,
    "per_token": [(128, 128), (256, 384)],
}
LARGE = {"local_1x64": (192, 320), "per_token": (256, 384)}  # else (304, 272): more than one slab of either library
SR, TILES, ROW_SCALED = {"rounding": "sr"}, {"block": "block_16x16"}, {"row_scaled": True, "outputs": "rowwise"}


def of_recipes(**flags):
    """(recipe, flags) of every set of flags of every recipe."""
    return pytest.mark.parametrize(
        ("recipe", "flags"), [(recipe, one) for recipe, sets in flags.items() for one in sets], ids=str
    )


@pytest.mark.parametrize(
    ("recipe", "shape", "flags", "granules"),
    [
        ("per_tensor", (48, 80), TILES, [((1,), (48, 80)), ((1,), (80, 48))]),
        ("row_scaled", (48, 80), {}, [((48,), (1, 80)), ((80,), (1, 48))]),
        ("local_1x64", (192, 320), {}, [((192, 5), (1, 64)), ((320, 3), (1, 64))]),
        ("four_over_six", (48, 80), {}, [((1,), (48, 80)), ((1,), (80, 48))]),
        ("per_token", (256, 384), {}, [((256,), (1, 384)), ((384,), (1, 256))]),
    ],
)
def test_fields_in_order_with_their_granules(make_case, recipe, shape, flags, granules):
    fields = oracle_of(recipe).outputs(make_case(recipe, *shape, outputs="both", **flags))
    assert list(fields) == [f"{side}_{kind}" for side in SIDES for kind in ("data", "scale_inv", "amax")]
    for side, granule in zip(SIDES, granules, strict=True):
        amax = fields[f"{side}_amax"]
        assert (amax.shape, amax.block) == granule
        assert {fields[f"{side}_{kind}"].transposed for kind in ("data", "scale_inv", "amax")} == {side != "rowwise"}


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.sweep
@BOTH
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@of_recipes(
    per_tensor=[{}], row_scaled=[{}], local_1x64=[{}, {"multiplier": "reciprocal"}], per_token=[{}, {"rht": True}]
)
def test_every_block_by_the_steps(make_case, tensor, ask, recipe, flags, dtype):
    """One block at a time, with the scalar chain written out."""
    if recipe == "per_token" and dtype != "bf16":
        return
    x = tensor(64, 128, dtype)
    given = run(ask, make_case(recipe, 64, 128, **{"dtype": dtype, "outputs": "both", **flags}), x)
    direct = recipe == "per_token" or (recipe == "local_1x64" and not flags)
    for side in SIDES:
        lines, h = np.ascontiguousarray(x.astype(F32) if side == "rowwise" else x.astype(F32).T), F32(1)
        if flags.get("rht") and side == "columnwise":
            h, lines = F32(0.25), nvfp4.hadamard(lines, 0xACE1)
        magnitudes = h * np.abs(lines)
        if recipe == "per_tensor":
            amaxes = magnitudes.max(keepdims=True).ravel()
            granules = np.full(len(lines), amaxes)[:, None]
        elif recipe == "local_1x64":
            amaxes = magnitudes.reshape(len(lines), -1, 64).max(axis=2)
            granules = amaxes.repeat(4, axis=1)
        else:
            amaxes = magnitudes.max(axis=1)
            granules = amaxes[:, None]
        np.testing.assert_array_equal(given[f"{side}_amax"], amaxes)
        granules = np.broadcast_to(granules, (len(lines), lines.shape[1] // 16))
        for r, b in np.ndindex(granules.shape):
            block = slice(16 * b, 16 * b + 16)
            s_enc = F32(2688) / granules[r, b]
            scale_inv = nvfp4.e4m3(magnitudes[r, block].max() * (s_enc * F32(1 / 6)))
            scale = nvfp4.decode_e4m3(scale_inv)
            m = s_enc / scale if direct else F32(1) / (scale * (F32(1) / s_enc))
            assert given[f"{side}_scale_inv"][r, b] == scale_inv
            np.testing.assert_array_equal(codes(given, side)[r, block], nvfp4.e2m1(lines[r, block] * (m * h)))


@BOTH
@pytest.mark.parametrize(("amax", "block_amax", "x"), [(8.625, 3.328125, 1.9765625), (1.125, 0.5703125, 0.328125)])
@pytest.mark.parametrize(
    ("recipe", "flags", "code"),
    [
        ("per_tensor", {}, 6),
        ("row_scaled", {}, 6),
        ("local_1x64", {}, 5),
        ("local_1x64", {"multiplier": "reciprocal"}, 6),
        ("per_token", {}, 5),
        ("per_token", {"weight_2d": True}, 6),
    ],
    ids=str,
)
def test_the_witnesses_of_the_multiplier(make_case, ask, recipe, flags, code, amax, block_amax, x):
    """Witnesses of NUMERICS 2: under the same scale they encode as 5 directly, as 6 by the reciprocal."""
    values = np.zeros((128, 128), BF16)
    values[0, [0, 16, 17]] = amax, block_amax, x
    given = run(ask, make_case(recipe, 128, 128, outputs="rowwise", **flags), values)
    assert codes(given)[0, 17] == code


@BOTH
@pytest.mark.parametrize(("amax", "block_amax"), [(8.125, 3.046875), (6.5, 2.4375)])
@pytest.mark.parametrize(("recipe", "scale"), [*((recipe, 176) for recipe in SHAPES if recipe != "four_over_six")])
def test_the_scale_is_the_multiply_form(make_case, ask, recipe, scale, amax, block_amax):
    """The divide form, which four_over_six takes, gives 160."""
    x = np.zeros((128, 128), BF16)
    x[0, [0, 16]] = amax, block_amax
    given = run(ask, make_case(recipe, 128, 128, outputs="rowwise"), x)
    assert nvfp4.decode_e4m3(given["rowwise_scale_inv"][0, 1]) == scale


@pytest.mark.sweep
@BOTH
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@of_recipes(row_scaled=[{}], four_over_six=[{}, {"error": "mse", "e4m3_max": 448, "error_math": "fp16"}])
def test_a_row_is_a_tensor_of_its_own(make_case, tensor, ask, recipe, flags, dtype):
    """A row's amax is in S_enc and in the error of four_over_six alike."""
    x = tensor(48, 80, dtype)
    by_row, whole = ({}, "per_tensor") if recipe == "row_scaled" else (ROW_SCALED, recipe)
    given = run(ask, make_case(recipe, 48, 80, dtype=dtype, **by_row, **flags), x)
    case = make_case(whole, 16, 80, dtype=dtype, outputs="rowwise", **flags)
    for r in range(48):
        alone = run(ask, case, np.tile(x[r], (16, 1)))
        np.testing.assert_array_equal(given["rowwise_data"][r], alone["rowwise_data"][0])
        np.testing.assert_array_equal(given["rowwise_scale_inv"][r], alone["rowwise_scale_inv"][0])
        assert given["rowwise_amax"][r] == alone["rowwise_amax"]
    assert np.unique(given["rowwise_amax"]).size > 10


@BOTH
@of_recipes(
    per_tensor=[{}, TILES, {"fast_math": True}],
    row_scaled=[{}],
    local_1x64=[{}],
    four_over_six=[{}, {**TILES, "error": "mse"}],
    per_token=[{}],
)
def test_columnwise_is_rowwise_of_the_transpose(make_case, tensor, ask, recipe, flags):
    for shape in SHAPES[recipe]:
        x = tensor(*shape)
        there = run(ask, make_case(recipe, *shape, outputs="columnwise", **flags), x)
        back = run(ask, make_case(recipe, *shape[::-1], outputs="rowwise", **flags), np.ascontiguousarray(x.T))
        assert_same({name.replace("columnwise", "rowwise"): array for name, array in there.items()}, back)


@BOTH
@of_recipes(
    per_tensor=[{}, {"rht": True, **SR}, TILES],
    row_scaled=[{}],
    local_1x64=[{}],
    four_over_six=[{}, TILES, ROW_SCALED],
    per_token=[{}, {"rht": True}, SR, {"rht": True, **SR}, {"weight_2d": True, **SR}],
)
def test_one_direction_and_one_stage_are_that_part_of_the_whole(make_case, tensor, ask, recipe, flags):
    """Random bits belong to elements: asking for less, or in two stages, changes no byte."""
    shape = LARGE.get(recipe, (304, 272))
    case, x = make_case(recipe, *shape, **{"outputs": "both", **flags}), tensor(*shape)
    whole = run(ask, case, x)
    for side in SIDES if case.flags.outputs == "both" else ():
        part = run(ask, with_flags(case, outputs=side), x)
        assert_same(part, {name: array for name, array in whole.items() if name.startswith(side)})
    if recipe != "local_1x64":  # which has one stage
        amaxes, encode = run(ask, with_flags(case, stage="amax"), x), with_flags(case, stage="encode")
        assert_same(amaxes, {name: array for name, array in whole.items() if name.endswith("amax")})
        assert_same(oracle_of(recipe).inputs(encode, x), {"input": x, **amaxes})
        assert_same(amaxes | by(ask, encode, {"input": x, **amaxes}), whole)


@BOTH
@of_recipes(
    per_tensor=[{}, TILES, {"rht": True, **SR}, {**SR, "scale_layout": "swizzled"}],
    row_scaled=[{"outputs": "both", "scale_layout": "swizzled"}],
    local_1x64=[{"scale_layout": "swizzled"}],
    four_over_six=[{}, TILES, ROW_SCALED],
    per_token=[{"rht": True, **SR}, {"weight_2d": True}],
)
def test_slabs_do_not_show(make_case, tensor, monkeypatch, ask, recipe, flags):
    shape = LARGE.get(recipe, (304, 272))
    case, x = make_case(recipe, *shape, **flags), tensor(*shape)
    whole = run(ask, case, x)
    monkeypatch.setattr(layout, "SLAB_ELEMENTS", 1)
    for elements in (1, 128 * 256):
        monkeypatch.setattr(torch_source, "SLAB_ELEMENTS", elements)
        assert_same(run(ask, case, x), whole)


@BOTH
@pytest.mark.parametrize(
    ("recipe", "flags", "entry"),
    [
        ("per_tensor", {}, None),
        ("four_over_six", {}, None),
        ("row_scaled", {}, 5),
        ("four_over_six", ROW_SCALED, 5),
        ("per_token", {}, 5),
    ],
    ids=str,
)
def test_encode_takes_the_amaxes_it_is_given(make_case, tensor, ask, recipe, flags, entry):
    case = make_case(recipe, 48, 80, **{"outputs": "rowwise", **flags, "stage": "encode"})
    tensors = oracle_of(recipe).inputs(case, tensor(48, 80))
    assert list(tensors) == ["input", "rowwise_amax"]
    reference = by(ask, case, tensors)["rowwise_scale_inv"].copy()
    tensors["rowwise_amax"][entry or 0] *= 2
    differs = by(ask, case, tensors)["rowwise_scale_inv"] != reference
    assert differs.any() and (entry is None or set(np.nonzero(differs)[0]) == {entry})


# --- specials ---------------------------------------------------------------------------------------------------------


@BOTH
@of_recipes(per_tensor=[{}, SR], row_scaled=[{}], local_1x64=[{}], four_over_six=[{}], per_token=[{}, SR])
def test_zeros_keep_their_sign(make_case, ask, recipe, flags):
    x = np.zeros((128, 128), BF16)
    x[:, 1::2] = -0.0
    given = run(ask, make_case(recipe, 128, 128, outputs="both", **flags), x)
    assert (given["rowwise_data"] == 0x80).all()
    assert (given["columnwise_data"][::2] == 0).all() and (given["columnwise_data"][1::2] == 0x88).all()
    for side in SIDES:
        assert not given[f"{side}_scale_inv"].any() and not given[f"{side}_amax"].view(np.uint32).any()


@BOTH
@pytest.mark.parametrize(
    ("recipe", "flags", "expected"),
    [
        ("per_tensor", {}, [7, 0xF, 0, 8]),
        ("row_scaled", {}, [7, 0xF, 0, 8]),
        ("local_1x64", {"multiplier": "reciprocal"}, [7, 0xF, 0, 8]),
        ("local_1x64", {}, [0, 8, 0, 8]),
        ("per_token", {}, [0, 8, 0, 8]),
    ],
    ids=str,
)
def test_an_underflowed_block_saturates_under_the_reciprocal(make_case, ask, recipe, flags, expected):
    """2.6 gives FLT_MAX where 2.7 gives 0."""
    x = np.ones((128, 128), BF16)
    x[0, 16:32] = [2.0**-30, -(2.0**-30), 0, -0.0] * 4
    given = run(ask, make_case(recipe, 128, 128, outputs="rowwise", **flags), x)
    assert given["rowwise_scale_inv"][0, 1] == 0
    assert codes(given)[0, 16:20].tolist() == expected


@BOTH
@pytest.mark.parametrize("recipe", ["row_scaled", "per_token"])
def test_zeros_infinities_and_nans_stay_in_their_row(make_case, tensor, ask, recipe):
    x = tensor(48, 80)
    case = make_case(recipe, 48, 80, outputs="rowwise")
    reference = run(ask, case, x)
    x[3, 20], x[9, 40], x[30] = -np.inf, np.nan, np.nan
    x[7] = 0
    x[7, ::3] = -0.0
    given = run(ask, case, x)
    amax, scale_inv, code = given["rowwise_amax"], given["rowwise_scale_inv"], codes(given)
    assert amax[[3, 30]].tolist() == [np.inf, 0] and not amax[7].view(np.uint32)
    assert amax[9] == np.abs(np.delete(x[9].astype(F32), 40)).max()
    assert scale_inv[3, 1] == 0x7E and not scale_inv[7].any()
    assert (code[3, 20], code[9, 40]) == (0xF, 7) and (code[30] == 7).all()
    np.testing.assert_array_equal(code[7], np.where(np.arange(80) % 3 == 0, 8, 0))
    others = np.delete(np.arange(48), [3, 7, 9, 30])
    for name, array in reference.items():
        np.testing.assert_array_equal(given[name][others], array[others])


@BOTH
@pytest.mark.parametrize(("recipe", "dtype"), [("per_tensor", "bf16"), ("per_tensor", "fp32"), ("row_scaled", "fp32")])
def test_a_tiny_amax_stops_at_flt_max(make_case, ask, recipe, dtype):
    """The block scale is amax * FLT_MAX/6, not 448."""
    x = np.full((16, 16), 2.0**-130, nvfp4.DTYPES[dtype])
    given = run(ask, make_case(recipe, 16, 16, dtype=dtype, outputs="rowwise"), x)
    expected = nvfp4.e4m3(F32(2.0**-130) * (nvfp4.FLT_MAX * F32(1 / 6)))
    assert (given["rowwise_scale_inv"][:16, 0] == expected).all()
    assert 0 < expected < 0x7E
    assert set(given["rowwise_amax"].view(np.uint32).tolist()) == {1 << 19}


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "shape", "flags", "word"),
    [
        ("per_tensor", (48, 80), {"rht": True, "dtype": "fp16"}, "rht"),
        ("per_tensor", (48, 80), {"rht": True, "block": "block_16x16"}, "rht"),
        ("per_tensor", (48, 80), {"fast_math": True, "dtype": "fp32"}, "fast_math"),
        ("per_tensor", (48, 80), {"fast_math": True, "block": "block_16x16"}, "fast_math"),
        ("per_tensor", (40, 80), {}, "40x80"),
        ("per_tensor", (48, 72), {}, "48x72"),
        ("per_tensor", (16, 0), {}, "16x0"),
        ("row_scaled", (48, 80), {"block": "block_16x16"}, "block_16x16"),
        ("row_scaled", (48, 80), {"rht": True}, "rht must be false"),
        ("row_scaled", (48, 80), {"rounding": "sr"}, "rounding must be rne"),
        ("row_scaled", (40, 80), {}, "40x80"),
        ("row_scaled", (48, 0), {}, "48x0"),
        ("local_1x64", (64, 64), {"block": "block_16x16"}, "block_16x16"),
        ("local_1x64", (64, 64), {"rht": True}, "rht must be false"),
        ("local_1x64", (64, 64), {"rounding": "sr"}, "rounding must be rne"),
        ("local_1x64", (64, 80), {}, "multiples of 64, not 64x80"),
        ("local_1x64", (48, 64), {}, "multiples of 64, not 48x64"),
        ("local_1x64", (64, 0), {}, "64x0"),
        ("four_over_six", (48, 80), {"scale_layout": "swizzled"}, "scale_layout must be compact"),
        ("four_over_six", (48, 80), {"rht": True}, "rht must be false"),
        ("four_over_six", (48, 80), {"rounding": "sr"}, "rounding must be rne"),
        ("four_over_six", (48, 80), {"row_scaled": True}, "outputs must be rowwise, not both"),
        ("four_over_six", (48, 80), {"row_scaled": True, "outputs": "columnwise"}, "outputs must be rowwise"),
        ("four_over_six", (48, 80), {**ROW_SCALED, "block": "block_16x16"}, "block must be block_1x16"),
        ("four_over_six", (48, 80), {"e4m3_max": 240}, "256, 288, 320 or 448, not 240"),
        ("four_over_six", (48, 80), {"error": "max"}, "mae or mse, not max"),
        ("four_over_six", (48, 80), {"error_math": "fp64"}, "exact or fp16, not fp64"),
        ("four_over_six", (40, 80), {}, "40x80"),
        ("four_over_six", (48, 0), {}, "48x0"),
        ("per_token", (128, 128), {"dtype": "fp16"}, "dtype must be bf16, not fp16"),
        ("per_token", (128, 128), {"dtype": "fp32"}, "dtype must be bf16, not fp32"),
        ("per_token", (128, 128), {"weight_2d": True, "rht": True}, "rht must be false, not true"),
        ("per_token", (72, 128), {}, "multiples of 16, not 72x128"),
        ("per_token", (128, 136), {}, "multiples of 16, not 128x136; rows may be 0"),
        ("per_token", (128, 0), {}, "128x0"),
    ],
)
def test_a_refusal_says_what_is_wrong(make_case, recipe, shape, flags, word):
    assert_refused(oracle_of(recipe), make_case(recipe, *shape, **flags), word)


@pytest.mark.parametrize(
    ("recipe", "flags", "granularity", "shapes"),
    [
        ("per_tensor", {}, r"\(1,\), one amax per tensor", [(48,), (3,)]),
        ("row_scaled", {}, r"\(48,\), one amax per row", [(1,), (80,), (48, 1), (128,)]),
        ("per_token", {}, r"\(48,\), one amax per row", [(1,), (80,), (48, 1)]),
        ("four_over_six", {}, r"\(1,\), one amax per tensor", [(48,)]),
        ("four_over_six", ROW_SCALED, r"\(48,\), one amax per row", [(1,)]),
    ],
    ids=str,
)
def test_an_amax_of_another_granularity_is_refused(make_case, tensor, recipe, flags, granularity, shapes):
    case = make_case(recipe, 48, 80, **{"outputs": "rowwise", **flags, "stage": "encode"})
    for shape in shapes:
        tensors = {"input": tensor(48, 80), "rowwise_amax": np.ones(shape, F32)}
        assert_arrays_refused(case, tensors, f"rowwise_amax must have the shape {granularity}")


@pytest.mark.parametrize("recipe", ["per_tensor", "row_scaled", "four_over_six"])
def test_an_amax_that_is_not_given_is_missed(make_case, recipe):
    case = make_case(recipe, 32, 32, stage="encode", outputs="rowwise")
    with pytest.raises(ContractError, match="stage=encode reads rowwise_amax, and it was not given"):
        oracle_of(recipe).torch_oracle(case, {"input": torch.ones(32, 32, dtype=torch.bfloat16)})
