"""per_token by both oracles: the floor, a rotation that stays long and unrounded, and weight_2d."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from quantized import BOTH, SIDES, agree, assert_arrays_refused, assert_same, by, codes, run, with_flags

from harness.inputs import draw
from harness.oracles import layout, nvfp4, per_token

F32 = np.float32
BF16 = nvfp4.DTYPES["bf16"]


def sparse(*values):
    """Zeros but for elements of blocks of the first row: (block, element, value)."""
    x = np.zeros((128, 128), BF16)
    for block, element, value in values:
        x[0, 16 * block + element] = value
    return x


@pytest.mark.parametrize("weight_2d", [False, True])
def test_only_the_rowwise_scales_are_swizzled(make_case, weight_2d):
    fields = per_token.outputs(make_case("per_token", 256, 384, scale_layout="swizzled", weight_2d=weight_2d))
    assert {name for name, field in fields.items() if field.swizzled} == {"rowwise_scale_inv"}
    block = (16, 16) if weight_2d else (1, 16)
    assert {fields[f"{side}_scale_inv"].block for side in SIDES} == {block}


@BOTH
def test_a_block_by_hand(make_case, ask):
    """amax 8.625: S_enc = RN(2688/8.625) = 311.6522; a block amax of 3.328125 gives 172.86, whose e4m3 is 176."""
    x = sparse((0, 0, 8.625), (1, 0, 3.328125), (1, 1, 1.9765625))
    given = run(ask, make_case("per_token", 128, 128, outputs="rowwise"), x)
    assert given["rowwise_amax"].view(np.uint32)[:2].tolist() == [0x410A0000, 0]
    assert given["rowwise_scale_inv"][0].tolist() == [0x7E, 0x73, 0, 0, 0, 0, 0, 0]
    # 1.9765625 * 311.6522 / 176 = 3.4999998: below the midpoint of 3 and 4, where the reciprocal form reaches it.
    assert codes(given)[0, [0, 16, 17]].tolist() == [7, 7, 5]


@BOTH
def test_a_line_knows_nothing_of_the_others(make_case, tensor, ask):
    case, x = make_case("per_token", 256, 384, rht=True), tensor(256, 384)
    given = run(ask, case, x)
    rolled = run(ask, case, np.ascontiguousarray(np.roll(x, 16, axis=0)[:, ::-1]))
    np.testing.assert_array_equal(rolled["rowwise_amax"], np.roll(given["rowwise_amax"], 16))
    np.testing.assert_array_equal(rolled["columnwise_amax"], given["columnwise_amax"][::-1])
    expected = np.roll(codes(given, "columnwise"), 16, axis=1)[::-1]
    np.testing.assert_array_equal(codes(rolled, "columnwise"), expected)


class TestFloor:
    """S_enc never exceeds the S_enc of 1e-12, and the stored amax stays raw."""

    @BOTH
    def test_a_line_below_the_floor(self, make_case, ask):
        x = sparse((0, 0, 2.0**-41), (1, 0, 2.0**-48))
        given = run(ask, make_case("per_token", 128, 128, outputs="rowwise"), x)
        assert given["rowwise_amax"][0] == F32(2.0**-41) < F32(1e-12)
        s_enc = F32(2688) / F32(1e-12)
        expected = nvfp4.e4m3(F32([2.0**-41, 2.0**-48]) * (s_enc * F32(1 / 6)))
        assert given["rowwise_scale_inv"][0, :2].tolist() == expected.tolist()
        assert 0 < expected[1] < expected[0] < 0x7E

    @BOTH
    def test_the_floor_itself_and_its_neighbours(self, make_case, ask):
        """bf16 around 1e-12: below it S_enc stands still, above it falls, so that the amax always becomes 448."""
        below, above = F32(1.0018e-12).astype(BF16) * BF16.type(0.99), F32(1.1e-12).astype(BF16)
        x = np.zeros((128, 128), BF16)
        x[0, 0], x[1, 0] = below, above
        given = run(ask, make_case("per_token", 128, 128, outputs="rowwise"), x)
        assert given["rowwise_amax"][0] < F32(1e-12) < given["rowwise_amax"][1]
        assert given["rowwise_scale_inv"][1, 0] == 0x7E

    @BOTH
    def test_of_a_rotated_column(self, make_case, ask):
        """The floor meets the quarter of the rotation: r = 2^-39 alone would stand above it."""
        x = np.zeros((128, 128), BF16)
        x[0, 3] = 2.0**-39
        given = run(ask, make_case("per_token", 128, 128, rht=True, outputs="columnwise"), x)
        assert given["columnwise_amax"][3] == 2.0**-41
        expected = nvfp4.e4m3(F32([2.0**-41]) * (F32(2688) / F32(1e-12) * F32(1 / 6)))[0]
        assert given["columnwise_scale_inv"][3, 0] == expected < 0x7E


class TestRotation:
    @pytest.fixture
    def rotated(self, make_case, tensor, ask):
        x = tensor(256, 128)
        return x, run(ask, make_case("per_token", 256, 128, rht=True), x)

    @BOTH
    def test_the_rowwise_output_is_never_rotated(self, make_case, rotated, ask):
        x, given = rotated
        plain = run(ask, make_case("per_token", 256, 128), x)
        for name in ("rowwise_data", "rowwise_scale_inv", "rowwise_amax"):
            np.testing.assert_array_equal(given[name], plain[name])
        for name in ("columnwise_data", "columnwise_scale_inv", "columnwise_amax"):
            assert (given[name] != plain[name]).any()

    @BOTH
    def test_it_is_not_rounded_to_bf16(self, rotated, ask):
        x, given = rotated
        r = nvfp4.hadamard(np.ascontiguousarray(x.astype(F32).T), 0xACE1)
        np.testing.assert_array_equal(given["columnwise_amax"], F32(0.25) * np.abs(r).max(axis=1))
        assert (given["columnwise_amax"] != given["columnwise_amax"].astype(BF16).astype(F32)).any()

    @BOTH
    def test_a_column_by_hand(self, make_case, ask):
        """Sixteen ones under the mask 0xACE1, whose bits 0, 5, 6, 7, 10, 11, 13 and 15 flip: half of them."""
        x = np.zeros((128, 128), BF16)
        x[:16, 9] = 1
        given = run(ask, make_case("per_token", 128, 128, rht=True, outputs="columnwise"), x)
        signs = [-1 if i in (0, 5, 6, 7, 10, 11, 13, 15) else 1 for i in range(16)]
        r = [sum(s * (-1) ** (i & j).bit_count() for j, s in enumerate(signs)) for i in range(16)]
        amax = max(map(abs, r)) / 4
        assert given["columnwise_amax"][9] == amax
        assert given["columnwise_scale_inv"][9, 0] == 0x7E
        scaled = [abs(value) / 4 / amax * 6 for value in r]
        expected = [nvfp4.e2m1(F32([v]))[0] | (8 if value < 0 else 0) for v, value in zip(scaled, r, strict=True)]
        assert codes(given, "columnwise")[9, :16].tolist() == expected
        assert np.count_nonzero(given["columnwise_amax"]) == 1

    @BOTH
    def test_it_listens_to_the_sign_mask(self, make_case, rotated, ask):
        x, given = rotated
        other = run(ask, make_case("per_token", 256, 128, rht=True, sign_mask=0xFFFF), x)
        assert (other["columnwise_amax"] != given["columnwise_amax"]).any()
        np.testing.assert_array_equal(other["rowwise_data"], given["rowwise_data"])

    @BOTH
    def test_the_least_values_keep_their_amax_and_lose_their_codes(self, make_case, ask):
        """A column of the least bf16, and of three times it."""
        x = np.zeros((128, 128), np.uint16)
        x[:16, 0] = [1, 3] * 8
        x = x.view(BF16)
        given = run(ask, make_case("per_token", 128, 128, rht=True, outputs="columnwise"), x)
        r = nvfp4.hadamard(np.ascontiguousarray(x.astype(F32).T), 0xACE1)[0]
        np.testing.assert_array_equal(given["columnwise_amax"][0], F32(0.25) * np.abs(r).max())
        assert not given["columnwise_scale_inv"][0, 0]
        assert set(codes(given, "columnwise")[0, :16].tolist()) <= {0, 8}

    @BOTH
    def test_an_overflowing_rotation(self, make_case, ask):
        """Sums beyond FLT_MAX are inf and their differences NaN; the column ends as one with an inf does."""
        x = np.zeros((128, 128), BF16)
        x[:16, 0] = 3e38
        given = run(ask, make_case("per_token", 128, 128, rht=True, outputs="columnwise"), x)
        assert given["columnwise_amax"][0] == np.inf
        assert given["columnwise_scale_inv"][0, 0] == 0x7E
        assert set(codes(given, "columnwise")[0, :16].tolist()) <= {7, 15}


class TestWeight2d:
    @BOTH
    @pytest.mark.parametrize("rounding", ["rne", "sr"])
    @pytest.mark.parametrize("name", ["normal", "tiny_amax", "specials_inf", "zeros", "outlier_spike", "subnormal"])
    def test_is_per_tensor_16x16_under_its_amax(self, make_case, name, rounding, ask):
        x = draw.make(name, 256, 384, "bf16", 3)
        case = make_case("per_token", 256, 384, weight_2d=True, rounding=rounding)
        reference = make_case("per_tensor", 256, 384, block="block_16x16", rounding=rounding)
        reference = replace(reference, seed_of=case.data_id)
        expected = by(ask, reference, {"input": x})
        for direction, lines in (("rowwise", 256), ("columnwise", 384)):
            expected[f"{direction}_amax"] = np.full(lines, expected[f"{direction}_amax"][0])
        assert_same(run(ask, case, x), expected)

    @BOTH
    def test_it_has_no_floor_and_the_reciprocal_multiplier(self, make_case, ask):
        x = np.full((128, 128), 2.0**-100, BF16)
        given = run(ask, make_case("per_token", 128, 128, weight_2d=True), x)
        assert (given["rowwise_scale_inv"] == 0x7E).all()
        x = sparse((0, 0, 1.125), (1, 0, 0.5703125), (1, 1, 0.328125))
        assert codes(run(ask, make_case("per_token", 128, 128, weight_2d=True), x))[0, 17] == 6

    def test_amaxes_that_differ_are_refused(self, make_case, tensor):
        case = make_case("per_token", 128, 128, weight_2d=True, stage="encode")
        tensors = per_token.inputs(case, tensor(128, 128))
        tensors["columnwise_amax"][77] *= 2
        assert_arrays_refused(case, tensors, r"every entry of columnwise_amax .* entry 77 differs")


@BOTH
@pytest.mark.parametrize(
    "flags", [{}, {"rht": True, "rounding": "sr"}, {"weight_2d": True}, {"outputs": "rowwise"}], ids=str
)
def test_swizzled_permutes_the_rowwise_scales_and_changes_nothing_else(make_case, tensor, flags, ask):
    x = tensor(256, 384)
    case = make_case("per_token", 256, 384, **flags)
    compact, swizzled = run(ask, case, x), run(ask, with_flags(case, scale_layout="swizzled"), x)
    assert (swizzled["rowwise_scale_inv"] != compact["rowwise_scale_inv"]).any()
    assert_same(swizzled, compact | {"rowwise_scale_inv": layout.swizzle(compact["rowwise_scale_inv"])})


def all_flags():
    axes = {
        "outputs": ("both", "rowwise", "columnwise"),
        "rht": (False, True),
        "rounding": ("rne", "sr"),
        "scale_layout": ("compact", "swizzled"),
        "weight_2d": (False, True),
        "stage": ("full", "amax", "encode"),
        "sign_mask": (0xACE1, 0xFFFF),
    }
    for row in itertools.product(*axes.values()):
        flags = dict(zip(axes, row, strict=True))
        if not (flags["rht"] and flags["weight_2d"]):
            yield flags


@pytest.mark.slow
def test_the_oracles_agree_on_every_flag(make_case):
    for flags in all_flags():
        for name in ("normal", "specials_nan", "row_scales"):
            case = make_case("per_token", 128, 256, name, **flags)
            agree(case, per_token.inputs(case, draw.make(name, 128, 256, "bf16", 1)))


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name, _ in draw.names()])
def test_the_oracles_agree_on_every_distribution(make_case, name):
    for flags in ({}, {"rht": True}, {"rounding": "sr"}, {"rht": True, "rounding": "sr"}, {"weight_2d": True}):
        case = make_case("per_token", 256, 256, name, **flags)
        agree(case, per_token.inputs(case, draw.make(name, 256, 256, "bf16", 2)))
