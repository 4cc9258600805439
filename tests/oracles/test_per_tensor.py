"""per_tensor as a whole: shapes and owners, the chain of steps on one block at a time, specials, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from quantized import assert_refused, assert_same, codes

from harness.oracles import layout, nvfp4, per_tensor

SHAPES = [(48, 80), (304, 272), (16, 16)]
F32 = np.float32


def run(case, x):
    return per_tensor.numpy_oracle(case, per_tensor.inputs(case, x))


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"dtype": "fp16"},
        {"dtype": "fp32"},
        {"block": "block_16x16", "outputs": "columnwise"},
        {"rht": True, "rounding": "sr", "scale_layout": "swizzled"},
        {"outputs": "rowwise", "stage": "amax"},
        {"stage": "encode"},
        {"fast_math": True, "rounding": "sr"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_are_what_the_fields_say(make_case, tensor, shape, flags):
    case = make_case("per_tensor", *shape, **flags)
    fields = per_tensor.outputs(case)
    given = run(case, tensor(*shape, case.flags.dtype))
    assert list(given) == list(fields)
    for name, field in fields.items():
        assert given[name].shape == field.shape
        assert given[name].dtype == field.dtype
        assert given[name].flags.c_contiguous
        if field.valid:
            order = case.flags.scale_layout
            inside = layout.gather(given[name], field.valid, order)
            assert np.count_nonzero(given[name]) == np.count_nonzero(inside) > 0


def test_fields_in_order_with_their_blocks(make_case):
    fields = per_tensor.outputs(make_case("per_tensor", 48, 80, block="block_16x16", scale_layout="swizzled"))
    assert list(fields) == [f"{d}_{kind}" for d in ("rowwise", "columnwise") for kind in ("data", "scale_inv", "amax")]
    data, scale_inv = fields["columnwise_data"], fields["columnwise_scale_inv"]
    assert (data.shape, data.block, data.transposed, data.valid) == ((80, 24), (1, 2), True, None)
    assert (scale_inv.shape, scale_inv.valid, scale_inv.block) == ((128, 4), (80, 3), (16, 16))
    assert scale_inv.swizzled and scale_inv.transposed
    assert fields["rowwise_amax"].block == (48, 80)
    assert fields["columnwise_amax"].block == (80, 48)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_every_block_by_the_steps(make_case, tensor, dtype):
    """One block at a time, with the scalar chain written out."""
    x = tensor(48, 80, dtype)
    given = run(make_case("per_tensor", 48, 80, dtype=dtype), x)
    wide = x.astype(F32)
    s_enc = F32(2688) / np.abs(wide).max()
    s_dec = F32(1) / s_enc
    for r in range(48):
        for b in range(5):
            block = wide[r, 16 * b : 16 * b + 16]
            scale_inv = nvfp4.e4m3(np.abs(block).max() * (s_enc * F32(1 / 6)))
            m = F32(1) / (nvfp4.decode_e4m3(scale_inv) * s_dec)
            assert given["rowwise_scale_inv"][r, b] == scale_inv
            np.testing.assert_array_equal(codes(given)[r, 16 * b : 16 * b + 16], nvfp4.e2m1(block * m))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("flags", [{}, {"block": "block_16x16"}, {"fast_math": True}], ids=str)
def test_columnwise_is_rowwise_of_the_transpose(make_case, tensor, shape, flags):
    x = tensor(*shape)
    there = run(make_case("per_tensor", *shape, outputs="columnwise", **flags), x)
    back = run(make_case("per_tensor", *shape[::-1], outputs="rowwise", **flags), x.T)
    assert_same({name.replace("columnwise", "rowwise"): a for name, a in there.items()}, back)


@pytest.mark.parametrize("flags", [{}, {"rht": True, "rounding": "sr"}, {"block": "block_16x16"}], ids=str)
def test_one_direction_is_that_part_of_both(make_case, tensor, flags):
    """Random bits belong to elements: asking for less, or in two stages, changes no byte."""
    x = tensor(304, 272)
    case = make_case("per_tensor", 304, 272, **flags)
    both = run(case, x)
    for outputs in ("rowwise", "columnwise"):
        tensors = per_tensor.numpy_oracle(_SameSeed.of(case, outputs=outputs), {"input": x})
        assert_same(tensors, {n: a for n, a in both.items() if n.startswith(outputs)})
    amaxes = per_tensor.numpy_oracle(_SameSeed.of(case, stage="amax"), {"input": x})
    encoded = per_tensor.numpy_oracle(_SameSeed.of(case, stage="encode"), {"input": x, **amaxes})
    assert_same(amaxes | encoded, both)


class _SameSeed:
    """A case with other flags and the seed of the first, to compare bytes across flags."""

    @staticmethod
    def of(case, **flags):
        return replace(case, flags=case.flags.replace(**flags), seed_of=case.seed_of or case.data_id)


@pytest.mark.parametrize(
    "flags",
    [{}, {"block": "block_16x16"}, {"rht": True, "rounding": "sr"}, {"rounding": "sr", "scale_layout": "swizzled"}],
    ids=str,
)
def test_slabs_do_not_show(make_case, tensor, monkeypatch, flags):
    case, x = make_case("per_tensor", 304, 272, **flags), tensor(304, 272)
    whole = run(case, x)
    monkeypatch.setattr(layout, "SLAB_ELEMENTS", 1)
    assert_same(run(case, x), whole)


def test_encode_takes_the_amax_it_is_given(make_case, tensor):
    x = tensor(48, 80)
    case = make_case("per_tensor", 48, 80, stage="encode", outputs="columnwise")
    assert list(per_tensor.inputs(case, x)) == ["input", "columnwise_amax"]
    doubled = {"input": x, "columnwise_amax": nvfp4.amax(x.astype(F32)) * 2}
    given = per_tensor.numpy_oracle(case, doubled)
    reference = run(case, x)
    assert (given["columnwise_scale_inv"] != reference["columnwise_scale_inv"]).any()


def test_tile_byte_stands_in_its_sixteen_lines(make_case, tensor):
    x = tensor(48, 80)
    given = run(make_case("per_tensor", 48, 80, block="block_16x16"), x)
    rowwise = given["rowwise_scale_inv"][:48, :5].reshape(3, 16, 5)
    columnwise = given["columnwise_scale_inv"][:80, :3].reshape(5, 16, 3)
    assert (rowwise == rowwise[:, :1]).all()
    np.testing.assert_array_equal(columnwise[:, 0], rowwise[:, 0].T)
    assert len(np.unique(rowwise)) > 3


def test_rht_rotates_only_the_columnwise_output(make_case, tensor):
    x = tensor(48, 80)
    plain = run(make_case("per_tensor", 48, 80), x)
    given = run(make_case("per_tensor", 48, 80, rht=True), x)
    for name in ("data", "scale_inv", "amax"):
        np.testing.assert_array_equal(given[f"rowwise_{name}"], plain[f"rowwise_{name}"])
    rotated = nvfp4.rht(np.ascontiguousarray(x.astype(F32).T), 0xD7E8)
    np.testing.assert_array_equal(given["columnwise_amax"], [np.abs(rotated).max()])
    assert given["columnwise_amax"] != given["rowwise_amax"]
    direct = make_case("per_tensor", 80, 48, outputs="rowwise")
    expected = run(direct, rotated.astype(x.dtype))
    np.testing.assert_array_equal(given["columnwise_data"], expected["rowwise_data"])
    np.testing.assert_array_equal(given["columnwise_scale_inv"], expected["rowwise_scale_inv"])


def test_rht_listens_to_the_sign_mask(make_case, tensor):
    x = tensor(48, 80)
    one, other = (run(make_case("per_tensor", 48, 80, rht=True, sign_mask=m), x) for m in (0xD7E8, 0xACE1))
    assert (one["columnwise_data"] != other["columnwise_data"]).any()


def test_rht_without_a_columnwise_output_changes_nothing(make_case, tensor):
    x = tensor(48, 80)
    assert_same(
        run(make_case("per_tensor", 48, 80, outputs="rowwise", rht=True), x),
        run(make_case("per_tensor", 48, 80, outputs="rowwise"), x),
    )


def test_sr_lands_on_a_neighbour_and_directions_draw_apart(make_case):
    rng = np.random.default_rng(7)
    square = rng.standard_normal((64, 64))
    x = (square + square.T).astype(nvfp4.DTYPES["bf16"])
    nearest = run(make_case("per_tensor", 64, 64), x)
    given = run(make_case("per_tensor", 64, 64, rounding="sr"), x)
    np.testing.assert_array_equal(given["rowwise_scale_inv"], nearest["rowwise_scale_inv"])
    magnitude, reference = codes(given).astype(int) & 7, codes(nearest).astype(int) & 7
    assert np.abs(magnitude - reference).max() == 1
    assert (codes(given) >> 3 == codes(nearest) >> 3).all()
    assert (given["rowwise_data"] != given["columnwise_data"]).any()
    np.testing.assert_array_equal(nearest["rowwise_data"], nearest["columnwise_data"])


def test_sr_keeps_the_mean(make_case):
    """Decoded values average to the scaled input within five standard errors; half a step would be 40 of them."""
    x = np.full((256, 256), 0.3125, nvfp4.DTYPES["bf16"])
    x[:, ::16] = 1
    case = make_case("per_tensor", 256, 256, rounding="sr")
    q = nvfp4.decode_e2m1(codes(run(case, x)))[x != 1]
    assert set(np.unique(q)) == {1.5, 2}
    assert abs(q.mean() - 6 * 0.3125) < 5 * q.std() / np.sqrt(q.size)


def test_seed_moves_the_random_bits(make_case, tensor):
    x = tensor(48, 80)
    one = run(make_case("per_tensor", 48, 80, rounding="sr"), x)
    other = run(make_case("per_tensor", 48, 80, input="ties", rounding="sr"), x)
    assert (one["rowwise_data"] != other["rowwise_data"]).any()


def test_random_bits_of_one_element(make_case, tensor):
    """Element (r, c) of the columnwise output is drawn from block (r * length + c) / 16 of direction 1."""
    x = tensor(304, 272)
    case = make_case("per_tensor", 304, 272, rounding="sr")
    given = run(case, x)
    line, b = 201, 7
    m = nvfp4.multiplier_reciprocal(
        given["columnwise_scale_inv"][line, b],
        nvfp4.global_decode_scale(nvfp4.global_encode_scale(given["columnwise_amax"])),
    )
    random = nvfp4.random_bytes(line * (304 // 16) + b, 1, 1, case.offset, case.seed)[0]
    v = x[16 * b : 16 * b + 16, line].astype(F32)
    np.testing.assert_array_equal(
        codes(given, "columnwise")[line, 16 * b : 16 * b + 16], nvfp4.e2m1_stochastic(v * m, random)
    )


def test_fast_math_moves_codes_and_no_scale(make_case, tensor):
    x = tensor(304, 272)
    plain, fast = (run(make_case("per_tensor", 304, 272, fast_math=f), x) for f in (False, True))
    np.testing.assert_array_equal(fast["rowwise_scale_inv"], plain["rowwise_scale_inv"])
    assert (fast["rowwise_data"] != plain["rowwise_data"]).any()


class TestSpecials:
    @pytest.mark.parametrize("rounding", ["rne", "sr"])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_nan_is_code_7_and_otherwise_absent(self, make_case, tensor, rounding, sign):
        x = tensor(16, 32)
        x[3, 5] = 0
        case = make_case("per_tensor", 16, 32, rounding=rounding)
        absent = run(case, x)
        x[3, 5] = np.copysign(np.nan, sign)
        given = run(case, x)
        for direction, at in (("rowwise", (3, 5)), ("columnwise", (5, 3))):
            expected = codes(absent, direction)
            expected[at] = 7
            np.testing.assert_array_equal(codes(given, direction), expected)
            np.testing.assert_array_equal(given[f"{direction}_scale_inv"], absent[f"{direction}_scale_inv"])
            np.testing.assert_array_equal(given[f"{direction}_amax"], absent[f"{direction}_amax"])

    def test_inf(self, make_case):
        x = np.full((16, 32), 1000, nvfp4.DTYPES["bf16"])
        x[0, 0] = -np.inf
        given = run(make_case("per_tensor", 16, 32, outputs="rowwise"), x)
        assert given["rowwise_amax"] == np.inf
        assert given["rowwise_scale_inv"][0, 0] == 0x7E
        assert codes(given)[0, 0] == 0xF
        np.testing.assert_array_equal(codes(given)[0, 1:16], np.full(15, nvfp4.e2m1(np.full(1, 1000 / 448, F32))))
        assert nvfp4.decode_e4m3(given["rowwise_scale_inv"][0, 1]) == 160  # 1000/6 under S_enc = 1

    def test_zeros_keep_their_sign(self, make_case):
        x = np.zeros((16, 16), nvfp4.DTYPES["bf16"])
        x[:, 1::2] = -0.0
        for rounding in ("rne", "sr"):
            given = run(make_case("per_tensor", 16, 16, rounding=rounding), x)
            assert (given["rowwise_data"] == 0x80).all()
            assert not given["rowwise_scale_inv"].any()
            assert not given["rowwise_amax"].view(np.uint32).any()

    def test_underflowed_block_saturates_its_codes(self, make_case):
        x = np.ones((16, 32), nvfp4.DTYPES["bf16"])
        x[0, 16:] = [2.0**-30, -(2.0**-30), 0, -0.0] * 4
        given = run(make_case("per_tensor", 16, 32, outputs="rowwise"), x)
        assert given["rowwise_scale_inv"][0, 1] == 0
        assert codes(given)[0, 16:20].tolist() == [7, 0xF, 0, 8]

    @pytest.mark.parametrize("dtype", ["bf16", "fp32"])
    def test_tiny_amax(self, make_case, dtype):
        """S_enc stops at FLT_MAX: the block scale is amax * FLT_MAX/6, not 448."""
        x = np.full((16, 16), 2.0**-130, nvfp4.DTYPES[dtype])
        given = run(make_case("per_tensor", 16, 16, dtype=dtype, outputs="rowwise"), x)
        expected = nvfp4.e4m3(F32(2.0**-130) * (nvfp4.FLT_MAX * F32(1 / 6)))
        assert (given["rowwise_scale_inv"][:16, 0] == expected).all()
        assert 0 < expected < 0x7E
        assert given["rowwise_amax"].view(np.uint32) == 1 << 19


class TestRefusals:
    @pytest.mark.parametrize(
        ("shape", "flags", "word"),
        [
            ((48, 80), {"rht": True, "dtype": "fp16"}, "rht"),
            ((48, 80), {"rht": True, "block": "block_16x16"}, "rht"),
            ((48, 80), {"fast_math": True, "dtype": "fp32"}, "fast_math"),
            ((48, 80), {"fast_math": True, "rht": True}, "fast_math"),
            ((48, 80), {"fast_math": True, "block": "block_16x16"}, "fast_math"),
            ((40, 80), {}, "40x80"),
            ((48, 72), {}, "48x72"),
            ((16, 0), {}, "16x0"),
        ],
    )
    def test_a_sentence_names_what_is_wrong(self, make_case, shape, flags, word):
        assert_refused(per_tensor, make_case("per_tensor", *shape, **flags), word)
