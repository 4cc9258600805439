"""per_token: a line is a tensor of its own, the rotation stays long and unrounded, weight_2d is per_tensor's 16x16."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from quantized import assert_refused, assert_same, codes

from harness.errors import ContractError
from harness.inputs import draw
from harness.oracles import layout, nvfp4, per_tensor, per_token, torch_source
from harness.verify.torch_calls import to_torch

SHAPES = [(128, 128), (256, 384)]
F32 = np.float32
BF16 = nvfp4.DTYPES["bf16"]
HAND = {"outputs": "rowwise"}


def run(case, x):
    return per_token.numpy_oracle(case, per_token.inputs(case, x))


def with_flags(case, **flags):
    """The case with other flags and the seed of the first, to compare bytes across flags."""
    return replace(case, flags=case.flags.replace(**flags), seed_of=case.seed_of or case.data_id)


def sparse(*values, row=0, rows=128, cols=128):
    """Zeros but for the first elements of the first blocks of one row: (block, element, value)."""
    x = np.zeros((rows, cols), BF16)
    for block, element, value in values:
        x[row, 16 * block + element] = value
    return x


FLAGS = [
    {},
    {"outputs": "columnwise", "rht": True},
    {"outputs": "rowwise", "scale_layout": "swizzled"},
    {"weight_2d": True, "scale_layout": "swizzled"},
    {"weight_2d": True, "stage": "encode"},
    {"stage": "amax", "rht": True},
    {"stage": "encode", "rht": True, "rounding": "sr"},
]


@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_are_what_the_fields_say(make_case, tensor, shape, flags):
    case = make_case("per_token", *shape, **flags)
    fields = per_token.outputs(case)
    given = run(case, tensor(*shape))
    assert list(given) == list(fields)
    for name, field in fields.items():
        assert (given[name].shape, given[name].dtype) == (field.shape, field.dtype)
        assert given[name].flags.c_contiguous


def test_fields_in_order_with_their_granules(make_case):
    fields = per_token.outputs(make_case("per_token", 256, 384))
    assert list(fields) == [f"{d}_{kind}" for d in ("rowwise", "columnwise") for kind in ("data", "scale_inv", "amax")]
    rowwise, columnwise = fields["rowwise_amax"], fields["columnwise_amax"]
    assert (rowwise.shape, rowwise.block, rowwise.transposed) == ((256,), (1, 384), False)
    assert (columnwise.shape, columnwise.block, columnwise.transposed) == ((384,), (1, 256), True)


@pytest.mark.parametrize("weight_2d", [False, True])
def test_only_the_rowwise_scales_are_swizzled(make_case, weight_2d):
    fields = per_token.outputs(make_case("per_token", 256, 384, scale_layout="swizzled", weight_2d=weight_2d))
    assert {name for name, field in fields.items() if field.swizzled} == {"rowwise_scale_inv"}
    block = (16, 16) if weight_2d else (1, 16)
    assert {fields[f"{direction}_scale_inv"].block for direction in ("rowwise", "columnwise")} == {block}


class TestSteps:
    def test_a_block_by_hand(self, make_case):
        """amax 8.625: S_enc = RN(2688/8.625) = 311.6522; a block amax of 3.328125 gives 172.86, whose e4m3 is 176."""
        given = run(
            make_case("per_token", 128, 128, **HAND), sparse((0, 0, 8.625), (1, 0, 3.328125), (1, 1, 1.9765625))
        )
        assert given["rowwise_amax"].view(np.uint32)[:2].tolist() == [0x410A0000, 0]
        assert given["rowwise_scale_inv"][0].tolist() == [0x7E, 0x73, 0, 0, 0, 0, 0, 0]
        # 1.9765625 * 311.6522 / 176 = 3.4999998: below the midpoint of 3 and 4, where the reciprocal form reaches it.
        assert codes(given)[0, [0, 16, 17]].tolist() == [7, 7, 5]

    def test_the_multiplier_is_the_direct_form(self, make_case):
        """The other witness of NUMERICS 2; reciprocally it encodes as 6."""
        x = sparse((0, 0, 1.125), (1, 0, 0.5703125), (1, 1, 0.328125))
        assert codes(run(make_case("per_token", 128, 128, **HAND), x))[0, 17] == 5
        plain = make_case("per_tensor", 128, 128, **HAND)
        assert codes(per_tensor.numpy_oracle(plain, {"input": x}))[0, 17] == 6

    @pytest.mark.parametrize(("amax", "block_amax"), [(8.125, 3.046875), (6.5, 2.4375)])
    def test_the_scale_is_the_multiply_form(self, make_case, amax, block_amax):
        given = run(make_case("per_token", 128, 128, **HAND), sparse((0, 0, amax), (1, 0, block_amax)))
        assert nvfp4.decode_e4m3(given["rowwise_scale_inv"][0, 1]) == 176

    @pytest.mark.parametrize("rht", [False, True])
    @pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
    def test_every_block_by_the_steps(self, make_case, tensor, direction, rht):
        """One block at a time, with the scalar chain written out."""
        x = tensor(256, 128)
        given = run(make_case("per_token", 256, 128, rht=rht), x)
        lines = x.astype(F32) if direction == "rowwise" else x.astype(F32).T
        h = F32(1)
        if rht and direction == "columnwise":
            h, lines = F32(0.25), nvfp4.hadamard(np.ascontiguousarray(lines), 0xACE1)
        for i, line in enumerate(lines):
            amax = h * np.abs(line).max()
            s_enc = F32(2688) / amax
            assert given[f"{direction}_amax"][i] == amax
            for b, block in enumerate(line.reshape(-1, 16)):
                scale_inv = nvfp4.e4m3((h * np.abs(block).max()) * (s_enc * F32(1 / 6)))
                m = s_enc / nvfp4.decode_e4m3(scale_inv)
                assert given[f"{direction}_scale_inv"][i, b] == scale_inv
                expected = nvfp4.e2m1(block * (m * h))
                np.testing.assert_array_equal(codes(given, direction)[i, 16 * b : 16 * b + 16], expected)

    def test_a_line_knows_nothing_of_the_others(self, make_case, tensor):
        x = tensor(256, 384)
        given = run(make_case("per_token", 256, 384, rht=True), x)
        other = np.ascontiguousarray(np.roll(x, 16, axis=0)[:, ::-1])
        rolled = run(make_case("per_token", 256, 384, rht=True), other)
        np.testing.assert_array_equal(rolled["rowwise_amax"], np.roll(given["rowwise_amax"], 16))
        np.testing.assert_array_equal(rolled["columnwise_amax"], given["columnwise_amax"][::-1])
        expected = np.roll(codes(given, "columnwise"), 16, axis=1)[::-1]
        np.testing.assert_array_equal(codes(rolled, "columnwise"), expected)

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_columnwise_is_rowwise_of_the_transpose(self, make_case, tensor, shape):
        x = tensor(*shape)
        there = run(make_case("per_token", *shape, outputs="columnwise"), x)
        back = run(make_case("per_token", *shape[::-1], outputs="rowwise"), np.ascontiguousarray(x.T))
        assert_same({name.replace("columnwise", "rowwise"): a for name, a in there.items()}, back)

    @pytest.mark.parametrize(
        "flags",
        [{}, {"rht": True}, {"rounding": "sr"}, {"rht": True, "rounding": "sr"}, {"weight_2d": True, "rounding": "sr"}],
        ids=str,
    )
    def test_one_direction_and_one_stage_are_that_part_of_the_whole(self, make_case, tensor, flags):
        x = tensor(256, 384)
        case = make_case("per_token", 256, 384, **flags)
        both = run(case, x)
        for outputs in ("rowwise", "columnwise"):
            part = run(with_flags(case, outputs=outputs), x)
            assert_same(part, {name: a for name, a in both.items() if name.startswith(outputs)})
        amaxes = run(with_flags(case, stage="amax"), x)
        encode = with_flags(case, stage="encode")
        assert_same(per_token.inputs(encode, x), {"input": x, **amaxes})
        assert_same(amaxes | per_token.numpy_oracle(encode, {"input": x, **amaxes}), both)

    @pytest.mark.parametrize("flags", [{"rht": True, "rounding": "sr"}, {"weight_2d": True}], ids=str)
    def test_slabs_do_not_show(self, make_case, tensor, monkeypatch, flags):
        case, x = make_case("per_token", 256, 384, **flags), tensor(256, 384)
        whole = run(case, x)
        monkeypatch.setattr(layout, "SLAB_ELEMENTS", 1)
        monkeypatch.setattr(torch_source, "SLAB_ELEMENTS", 1)
        assert_same(run(case, x), whole)
        there = per_token.torch_oracle(case, {"input": to_torch(x)})
        assert_same({name: array.numpy() for name, array in there.items()}, whole)

    def test_encode_takes_the_amaxes_it_is_given(self, make_case, tensor):
        x = tensor(256, 384)
        case = make_case("per_token", 256, 384, stage="encode", outputs="rowwise")
        tensors = per_token.inputs(case, x)
        reference = per_token.numpy_oracle(case, tensors)
        tensors["rowwise_amax"][5] *= 2
        differs = per_token.numpy_oracle(case, tensors)["rowwise_scale_inv"] != reference["rowwise_scale_inv"]
        assert set(np.nonzero(differs)[0]) == {5}


class TestFloor:
    """S_enc never exceeds the S_enc of 1e-12, and the stored amax stays raw."""

    def test_a_line_below_the_floor(self, make_case):
        x = sparse((0, 0, 2.0**-41), (1, 0, 2.0**-48))
        given = run(make_case("per_token", 128, 128, **HAND), x)
        assert given["rowwise_amax"][0] == F32(2.0**-41) < F32(1e-12)
        s_enc = F32(2688) / F32(1e-12)
        expected = nvfp4.e4m3(F32([2.0**-41, 2.0**-48]) * (s_enc * F32(1 / 6)))
        assert given["rowwise_scale_inv"][0, :2].tolist() == expected.tolist()
        assert 0 < expected[1] < expected[0] < 0x7E

    def test_the_floor_itself_and_its_neighbours(self, make_case):
        """bf16 around 1e-12: below it S_enc stands still, above it falls, so that the amax always becomes 448."""
        below, above = F32(1.0018e-12).astype(BF16) * BF16.type(0.99), F32(1.1e-12).astype(BF16)
        x = np.zeros((128, 128), BF16)
        x[0, 0], x[1, 0] = below, above
        given = run(make_case("per_token", 128, 128, **HAND), x)
        assert given["rowwise_amax"][0] < F32(1e-12) < given["rowwise_amax"][1]
        assert given["rowwise_scale_inv"][1, 0] == 0x7E

    def test_of_a_rotated_column(self, make_case):
        """The floor meets the quarter of the rotation: r = 2^-39 alone would stand above it."""
        x = np.zeros((128, 128), BF16)
        x[0, 3] = 2.0**-39
        given = run(make_case("per_token", 128, 128, rht=True, outputs="columnwise"), x)
        assert given["columnwise_amax"][3] == 2.0**-41
        expected = nvfp4.e4m3(F32([2.0**-41]) * (F32(2688) / F32(1e-12) * F32(1 / 6)))[0]
        assert given["columnwise_scale_inv"][3, 0] == expected < 0x7E

    def test_a_zero_line_stores_a_zero(self, make_case, tensor):
        x = tensor(128, 128)
        x[7] = 0
        x[7, ::3] = -0.0
        given = run(make_case("per_token", 128, 128), x)
        assert not given["rowwise_amax"][7].view(np.uint32)
        assert not given["rowwise_scale_inv"][7].any()
        np.testing.assert_array_equal(codes(given)[7], np.where(np.arange(128) % 3 == 0, 8, 0))


class TestRotation:
    @pytest.fixture
    def rotated(self, make_case, tensor):
        x = tensor(256, 128)
        return x, run(make_case("per_token", 256, 128, rht=True), x)

    def test_the_rowwise_output_is_never_rotated(self, make_case, rotated):
        x, given = rotated
        plain = run(make_case("per_token", 256, 128), x)
        for name in ("rowwise_data", "rowwise_scale_inv", "rowwise_amax"):
            np.testing.assert_array_equal(given[name], plain[name])
        for name in ("columnwise_data", "columnwise_scale_inv", "columnwise_amax"):
            assert (given[name] != plain[name]).any()

    def test_it_is_not_rounded_to_bf16(self, rotated):
        x, given = rotated
        r = nvfp4.hadamard(np.ascontiguousarray(x.astype(F32).T), 0xACE1)
        np.testing.assert_array_equal(given["columnwise_amax"], F32(0.25) * np.abs(r).max(axis=1))
        assert (given["columnwise_amax"] != given["columnwise_amax"].astype(BF16).astype(F32)).any()

    def test_a_column_by_hand(self, make_case):
        """Sixteen ones under the mask 0xACE1, whose bits 0, 5, 6, 7, 10, 11, 13 and 15 flip: half of them."""
        x = np.zeros((128, 128), BF16)
        x[:16, 9] = 1
        given = run(make_case("per_token", 128, 128, rht=True, outputs="columnwise"), x)
        signs = [-1 if i in (0, 5, 6, 7, 10, 11, 13, 15) else 1 for i in range(16)]
        r = [sum(s * (-1) ** (i & j).bit_count() for j, s in enumerate(signs)) for i in range(16)]
        amax = max(map(abs, r)) / 4
        assert given["columnwise_amax"][9] == amax
        assert given["columnwise_scale_inv"][9, 0] == 0x7E
        scaled = [abs(value) / 4 / amax * 6 for value in r]
        expected = [nvfp4.e2m1(F32([v]))[0] | (8 if value < 0 else 0) for v, value in zip(scaled, r, strict=True)]
        assert codes(given, "columnwise")[9, :16].tolist() == expected
        assert np.count_nonzero(given["columnwise_amax"]) == 1

    def test_it_listens_to_the_sign_mask(self, make_case, rotated):
        x, given = rotated
        other = run(make_case("per_token", 256, 128, rht=True, sign_mask=0xFFFF), x)
        assert (other["columnwise_amax"] != given["columnwise_amax"]).any()
        np.testing.assert_array_equal(other["rowwise_data"], given["rowwise_data"])

    def test_the_least_values_keep_their_amax_and_lose_their_codes(self, make_case):
        """A column of the least bf16, and of three times it."""
        x = np.zeros((128, 128), np.uint16)
        x[:16, 0] = [1, 3] * 8
        x = x.view(BF16)
        given = run(make_case("per_token", 128, 128, rht=True, outputs="columnwise"), x)
        r = nvfp4.hadamard(np.ascontiguousarray(x.astype(F32).T), 0xACE1)[0]
        np.testing.assert_array_equal(given["columnwise_amax"][0], F32(0.25) * np.abs(r).max())
        assert not given["columnwise_scale_inv"][0, 0]
        assert set(codes(given, "columnwise")[0, :16].tolist()) <= {0, 8}

    def test_an_overflowing_rotation(self, make_case):
        """Sums beyond FLT_MAX are inf and their differences NaN; the column ends as one with an inf does."""
        x = np.zeros((128, 128), BF16)
        x[:16, 0] = 3e38
        given = run(make_case("per_token", 128, 128, rht=True, outputs="columnwise"), x)
        assert given["columnwise_amax"][0] == np.inf
        assert given["columnwise_scale_inv"][0, 0] == 0x7E
        assert set(codes(given, "columnwise")[0, :16].tolist()) <= {7, 15}


class TestWeight2d:
    @pytest.mark.parametrize("rounding", ["rne", "sr"])
    @pytest.mark.parametrize("name", ["normal", "tiny_amax", "specials_inf", "zeros", "outlier_spike", "subnormal"])
    def test_is_per_tensor_16x16_under_its_amax(self, make_case, name, rounding):
        x = draw.make(name, 256, 384, "bf16", 3)
        case = make_case("per_token", 256, 384, weight_2d=True, rounding=rounding)
        reference = make_case("per_tensor", 256, 384, block="block_16x16", rounding=rounding)
        reference = replace(reference, seed_of=case.data_id)
        expected = per_tensor.numpy_oracle(reference, {"input": x})
        for direction, lines in (("rowwise", 256), ("columnwise", 384)):
            expected[f"{direction}_amax"] = np.full(lines, expected[f"{direction}_amax"][0])
        assert_same(run(case, x), expected)

    def test_it_has_no_floor_and_the_reciprocal_multiplier(self, make_case):
        x = np.full((128, 128), 2.0**-100, BF16)
        given = run(make_case("per_token", 128, 128, weight_2d=True), x)
        assert (given["rowwise_scale_inv"] == 0x7E).all()
        x = sparse((0, 0, 1.125), (1, 0, 0.5703125), (1, 1, 0.328125))
        assert codes(run(make_case("per_token", 128, 128, weight_2d=True), x))[0, 17] == 6

    def test_amaxes_that_differ_are_refused(self, make_case, tensor):
        case = make_case("per_token", 128, 128, weight_2d=True, stage="encode")
        tensors = per_token.inputs(case, tensor(128, 128))
        tensors["columnwise_amax"][77] *= 2
        for oracle in (per_token.numpy_oracle, per_token.torch_oracle):
            given = tensors if oracle is per_token.numpy_oracle else {n: to_torch(a) for n, a in tensors.items()}
            with pytest.raises(ContractError, match=r"every entry of columnwise_amax .* entry 77 differs"):
                oracle(case, given)


@pytest.mark.parametrize(
    "flags", [{}, {"rht": True, "rounding": "sr"}, {"weight_2d": True}, {"outputs": "rowwise"}], ids=str
)
def test_swizzled_permutes_the_rowwise_scales_and_changes_nothing_else(make_case, tensor, flags):
    x = tensor(256, 384)
    case = make_case("per_token", 256, 384, **flags)
    compact, swizzled = run(case, x), run(with_flags(case, scale_layout="swizzled"), x)
    scales, tiles = compact.pop("rowwise_scale_inv"), swizzled.pop("rowwise_scale_inv").ravel()
    assert_same(swizzled, compact)
    assert (tiles != scales.ravel()).any()
    count = scales.shape[1] // 4
    for r, c in itertools.product(*map(range, scales.shape)):
        at = ((r // 128) * count + c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4
        assert tiles[at] == scales[r, c]


class TestSpecials:
    def test_infinities_and_nans_stay_in_their_line(self, make_case, tensor):
        x = tensor(128, 128)
        case = make_case("per_token", 128, 128, **HAND)
        reference = run(case, x)
        x[3, 20], x[9, 40], x[30] = -np.inf, np.nan, np.nan
        given = run(case, x)
        assert given["rowwise_amax"][3] == np.inf
        assert given["rowwise_scale_inv"][3, 1] == 0x7E
        assert codes(given)[3, 20] == 0xF
        assert codes(given)[9, 40] == 7
        assert given["rowwise_amax"][30] == 0
        assert (codes(given)[30] == 7).all()
        others = ~np.isin(np.arange(128), [3, 9, 30])
        for name in reference:
            np.testing.assert_array_equal(given[name][others], reference[name][others])

    def test_an_underflowed_block_is_zeros_with_signs(self, make_case):
        x = sparse((0, 0, 1))
        x[0, 16:32] = [2.0**-30, -(2.0**-30), 0, -0.0] * 4
        given = run(make_case("per_token", 128, 128, **HAND), x)
        assert given["rowwise_scale_inv"][0, 1] == 0
        assert codes(given)[0, 16:20].tolist() == [0, 8, 0, 8]


class TestRefusals:
    @pytest.mark.parametrize(
        ("shape", "flags", "word"),
        [
            ((128, 128), {"dtype": "fp16"}, "dtype must be bf16, not fp16"),
            ((128, 128), {"dtype": "fp32"}, "dtype must be bf16, not fp32"),
            ((128, 128), {"weight_2d": True, "rht": True}, "rht must be false, not true"),
            ((72, 128), {}, "multiples of 16, not 72x128"),
            ((128, 136), {}, "multiples of 16, not 128x136; rows may be 0"),
            ((128, 0), {}, "128x0"),
        ],
    )
    def test_a_sentence_names_what_is_wrong(self, make_case, shape, flags, word):
        assert_refused(per_token, make_case("per_token", *shape, **flags), word)

    @pytest.mark.parametrize("shape", [(1,), (384,), (256, 1)], ids=str)
    def test_an_amax_of_another_granularity(self, make_case, tensor, shape):
        case = make_case("per_token", 256, 384, stage="encode")
        tensors = {**per_token.inputs(case, tensor(256, 384)), "rowwise_amax": np.ones(shape, F32)}
        for oracle in (per_token.numpy_oracle, per_token.torch_oracle):
            with pytest.raises(ContractError, match=r"rowwise_amax must have the shape \(256,\), one amax per row"):
                oracle(case, tensors)
