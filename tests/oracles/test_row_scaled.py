"""row_scaled: every row is a tensor of its own, columnwise is the transpose, zero rows, specials, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from quantized import assert_refused, assert_same, codes

from harness.errors import ContractError
from harness.oracles import layout, nvfp4, per_tensor, row_scaled
from harness.verify.torch_calls import to_torch

SHAPES = [(48, 80), (304, 272), (16, 16)]
F32 = np.float32


def run(case, x):
    return row_scaled.numpy_oracle(case, row_scaled.inputs(case, x))


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"dtype": "fp32", "outputs": "both"},
        {"dtype": "fp16", "outputs": "columnwise", "scale_layout": "swizzled"},
        {"outputs": "both", "stage": "amax"},
        {"outputs": "both", "stage": "encode"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_are_what_the_fields_say(make_case, tensor, shape, flags):
    case = make_case("row_scaled", *shape, **flags)
    fields = row_scaled.outputs(case)
    given = run(case, tensor(*shape, case.flags.dtype))
    assert list(given) == list(fields)
    for name, field in fields.items():
        assert (given[name].shape, given[name].dtype) == (field.shape, field.dtype)
        assert given[name].flags.c_contiguous


def test_fields_in_order_with_their_granules(make_case):
    fields = row_scaled.outputs(make_case("row_scaled", 48, 80, outputs="both"))
    assert list(fields) == [f"{d}_{kind}" for d in ("rowwise", "columnwise") for kind in ("data", "scale_inv", "amax")]
    rowwise, columnwise = fields["rowwise_amax"], fields["columnwise_amax"]
    assert (rowwise.shape, rowwise.block, rowwise.transposed) == ((48,), (1, 80), False)
    assert (columnwise.shape, columnwise.block, columnwise.transposed) == ((80,), (1, 48), True)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_every_block_by_the_steps(make_case, tensor, dtype):
    """One block at a time, with the scalar chain written out."""
    x = tensor(48, 80, dtype)
    given = run(make_case("row_scaled", 48, 80, dtype=dtype), x)
    for r, row in enumerate(x.astype(F32)):
        s_enc = F32(2688) / np.abs(row).max()
        s_dec = F32(1) / s_enc
        assert given["rowwise_amax"][r] == np.abs(row).max()
        for b, block in enumerate(row.reshape(-1, 16)):
            scale_inv = nvfp4.e4m3(np.abs(block).max() * (s_enc * F32(1 / 6)))
            m = F32(1) / (nvfp4.decode_e4m3(scale_inv) * s_dec)
            assert given["rowwise_scale_inv"][r, b] == scale_inv
            np.testing.assert_array_equal(codes(given)[r, 16 * b : 16 * b + 16], nvfp4.e2m1(block * m))


def test_the_multiplier_is_the_reciprocal_form(make_case):
    """A witness of NUMERICS 2: row amax, block amax and a value that encodes as 6, and directly as 5."""
    x = np.zeros((16, 32), nvfp4.DTYPES["bf16"])
    x[0, [0, 16, 17]] = 8.625, 3.328125, 1.9765625
    assert codes(run(make_case("row_scaled", 16, 32), x))[0, 17] == 6


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_a_row_is_a_tensor_of_its_own(make_case, tensor, dtype):
    x = tensor(48, 80, dtype)
    given = run(make_case("row_scaled", 48, 80, dtype=dtype), x)
    case = make_case("per_tensor", 16, 80, dtype=dtype, outputs="rowwise")
    for r in range(48):
        alone = per_tensor.numpy_oracle(case, {"input": np.tile(x[r], (16, 1))})
        np.testing.assert_array_equal(given["rowwise_data"][r], alone["rowwise_data"][0])
        np.testing.assert_array_equal(given["rowwise_scale_inv"][r], alone["rowwise_scale_inv"][0])
        assert given["rowwise_amax"][r] == alone["rowwise_amax"]
    assert np.unique(given["rowwise_amax"]).size > 10


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_columnwise_is_rowwise_of_the_transpose(make_case, tensor, shape):
    x = tensor(*shape)
    there = run(make_case("row_scaled", *shape, outputs="columnwise"), x)
    back = run(make_case("row_scaled", *shape[::-1]), x.T)
    assert_same({name.replace("columnwise", "rowwise"): a for name, a in there.items()}, back)


def test_one_direction_and_one_stage_are_that_part_of_the_whole(make_case, tensor):
    x = tensor(304, 272)
    case = make_case("row_scaled", 304, 272, outputs="both")
    both = run(case, x)
    for outputs in ("rowwise", "columnwise"):
        part = run(replace(case, flags=case.flags.replace(outputs=outputs)), x)
        assert_same(part, {name: a for name, a in both.items() if name.startswith(outputs)})
    amaxes = run(replace(case, flags=case.flags.replace(stage="amax")), x)
    encode = replace(case, flags=case.flags.replace(stage="encode"))
    assert_same(amaxes | row_scaled.numpy_oracle(encode, {"input": x, **amaxes}), both)


def test_slabs_do_not_show(make_case, tensor, monkeypatch):
    case, x = make_case("row_scaled", 304, 272, outputs="both", scale_layout="swizzled"), tensor(304, 272)
    whole = run(case, x)
    monkeypatch.setattr(layout, "SLAB_ELEMENTS", 1)
    assert_same(run(case, x), whole)


def test_encode_takes_the_amaxes_it_is_given(make_case, tensor):
    x = tensor(48, 80)
    case = make_case("row_scaled", 48, 80, stage="encode")
    tensors = row_scaled.inputs(case, x)
    assert list(tensors) == ["input", "rowwise_amax"]
    reference = row_scaled.numpy_oracle(case, tensors)
    tensors["rowwise_amax"][5] *= 2
    differs = row_scaled.numpy_oracle(case, tensors)["rowwise_scale_inv"] != reference["rowwise_scale_inv"]
    assert set(np.nonzero(differs)[0]) == {5}


@pytest.mark.parametrize("shape", [(1,), (80,), (48, 1), (128,)], ids=str)
def test_an_amax_of_another_granularity_is_refused(make_case, tensor, shape):
    case = make_case("row_scaled", 48, 80, stage="encode")
    tensors = {"input": tensor(48, 80), "rowwise_amax": np.ones(shape, F32)}
    as_torch = {name: to_torch(array) for name, array in tensors.items()}
    for oracle, given in ((row_scaled.numpy_oracle, tensors), (row_scaled.torch_oracle, as_torch)):
        with pytest.raises(ContractError, match=r"rowwise_amax must have the shape \(48,\), one amax per row"):
            oracle(case, given)


class TestSpecials:
    def test_a_zero_row_is_zeros_and_disturbs_nobody(self, make_case, tensor):
        x = tensor(48, 80)
        case = make_case("row_scaled", 48, 80)
        reference = run(case, x)
        x[7] = 0
        x[7, ::3] = -0.0
        given = run(case, x)
        assert not given["rowwise_amax"][7].view(np.uint32)
        assert not given["rowwise_scale_inv"][7].any()
        np.testing.assert_array_equal(codes(given)[7], np.where(np.arange(80) % 3 == 0, 8, 0))
        others = np.arange(48) != 7
        np.testing.assert_array_equal(given["rowwise_data"][others], reference["rowwise_data"][others])
        np.testing.assert_array_equal(
            given["rowwise_scale_inv"][:48][others], reference["rowwise_scale_inv"][:48][others]
        )

    def test_infinities_and_nans_stay_in_their_row(self, make_case, tensor):
        x = tensor(48, 80)
        case = make_case("row_scaled", 48, 80)
        reference = run(case, x)
        x[3, 20], x[9, 40], x[30] = -np.inf, np.nan, np.nan
        given = run(case, x)
        differs = given["rowwise_amax"] != reference["rowwise_amax"]
        assert set(np.nonzero(differs)[0]) <= {3, 9, 30}
        assert given["rowwise_amax"][3] == np.inf
        assert given["rowwise_scale_inv"][3, 1] == 0x7E
        assert codes(given)[3, 20] == 0xF
        assert codes(given)[9, 40] == 7
        assert given["rowwise_amax"][30] == 0
        assert (codes(given)[30] == 7).all()
        others = ~np.isin(np.arange(48), [3, 9, 30])
        np.testing.assert_array_equal(given["rowwise_data"][others], reference["rowwise_data"][others])

    def test_an_underflowed_block_saturates_its_codes(self, make_case):
        x = np.ones((16, 32), nvfp4.DTYPES["bf16"])
        x[0, 16:] = [2.0**-30, -(2.0**-30), 0, -0.0] * 4
        given = run(make_case("row_scaled", 16, 32), x)
        assert given["rowwise_scale_inv"][0, 1] == 0
        assert codes(given)[0, 16:20].tolist() == [7, 0xF, 0, 8]

    def test_a_tiny_row_stops_at_flt_max(self, make_case):
        x = np.ones((16, 16), F32)
        x[4] = 2.0**-130
        given = run(make_case("row_scaled", 16, 16, dtype="fp32"), x)
        expected = nvfp4.e4m3(F32(2.0**-130) * (nvfp4.FLT_MAX * F32(1 / 6)))
        assert given["rowwise_scale_inv"][4, 0] == expected
        assert 0 < expected < 0x7E
        assert given["rowwise_scale_inv"][5, 0] == 0x7E


@pytest.mark.parametrize(
    ("shape", "flags", "word"),
    [
        ((48, 80), {"block": "block_16x16"}, "block_16x16"),
        ((48, 80), {"rht": True}, "rht must be false"),
        ((48, 80), {"rounding": "sr"}, "rounding must be rne"),
        ((40, 80), {}, "40x80"),
        ((48, 0), {}, "48x0"),
    ],
)
def test_a_refusal_says_what_is_wrong(make_case, shape, flags, word):
    assert_refused(row_scaled, make_case("row_scaled", *shape, **flags), word)
