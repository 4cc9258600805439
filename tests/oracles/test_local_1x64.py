"""local_1x64: every window by the steps, both multipliers, floors and specials within one window, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from quantized import assert_refused, assert_same, codes

from harness.oracles import layout, local_1x64, nvfp4

SHAPES = [(64, 64), (192, 320), (128, 64)]
F32 = np.float32


def run(case, x):
    return local_1x64.numpy_oracle(case, local_1x64.inputs(case, x))


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"dtype": "fp32", "outputs": "rowwise", "multiplier": "reciprocal"},
        {"dtype": "fp16", "outputs": "columnwise", "scale_layout": "swizzled"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_are_what_the_fields_say(make_case, tensor, shape, flags):
    case = make_case("local_1x64", *shape, **flags)
    fields = local_1x64.outputs(case)
    given = run(case, tensor(*shape, case.flags.dtype))
    assert list(given) == list(fields)
    for name, field in fields.items():
        assert (given[name].shape, given[name].dtype) == (field.shape, field.dtype)
        assert given[name].flags.c_contiguous


def test_fields_in_order_with_their_granules(make_case):
    fields = local_1x64.outputs(make_case("local_1x64", 192, 320))
    assert list(fields) == [f"{d}_{kind}" for d in ("rowwise", "columnwise") for kind in ("data", "scale_inv", "amax")]
    rowwise, columnwise = fields["rowwise_amax"], fields["columnwise_amax"]
    assert (rowwise.shape, rowwise.block, rowwise.transposed) == ((192, 5), (1, 64), False)
    assert (columnwise.shape, columnwise.block, columnwise.transposed) == ((320, 3), (1, 64), True)


@pytest.mark.parametrize("multiplier", ["direct", "reciprocal"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_every_block_by_the_steps(make_case, tensor, dtype, multiplier):
    """One window at a time, with the scalar chain written out."""
    x = tensor(64, 192, dtype)
    given = run(make_case("local_1x64", 64, 192, dtype=dtype, multiplier=multiplier), x)
    for r, row in enumerate(x.astype(F32)):
        for w, window in enumerate(row.reshape(-1, 64)):
            amax = np.abs(window).max()
            assert given["rowwise_amax"][r, w] == amax
            s_enc = F32(2688) / np.maximum(amax, F32(1e-12))
            for b, block in enumerate(window.reshape(4, 16), 4 * w):
                scale_inv = nvfp4.e4m3(np.abs(block).max() * (s_enc * F32(1 / 6)))
                scale = nvfp4.decode_e4m3(scale_inv)
                m = s_enc / scale if multiplier == "direct" else F32(1) / (scale * (F32(1) / s_enc))
                assert given["rowwise_scale_inv"][r, b] == scale_inv
                np.testing.assert_array_equal(codes(given)[r, 16 * b : 16 * b + 16], nvfp4.e2m1(block * m))


def test_the_multipliers_give_other_codes_under_the_same_scales(make_case):
    """A witness of NUMERICS 2: window amax, block amax and a value that encodes as 5 directly, 6 by the reciprocal."""
    x = np.zeros((64, 64), nvfp4.DTYPES["bf16"])
    x[0, [0, 16, 17]] = 8.625, 3.328125, 1.9765625
    direct, reciprocal = (
        run(make_case("local_1x64", 64, 64, outputs="rowwise", multiplier=m), x) for m in ("direct", "reciprocal")
    )
    np.testing.assert_array_equal(direct["rowwise_scale_inv"], reciprocal["rowwise_scale_inv"])
    assert (codes(direct)[0, 17], codes(reciprocal)[0, 17]) == (5, 6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_columnwise_is_rowwise_of_the_transpose(make_case, tensor, shape):
    x = tensor(*shape)
    there = run(make_case("local_1x64", *shape, outputs="columnwise"), x)
    back = run(make_case("local_1x64", *shape[::-1], outputs="rowwise"), x.T)
    assert_same({name.replace("columnwise", "rowwise"): a for name, a in there.items()}, back)


@pytest.mark.parametrize("outputs", ["rowwise", "columnwise"])
def test_one_direction_is_that_part_of_both(make_case, tensor, outputs):
    x = tensor(192, 320)
    case = make_case("local_1x64", 192, 320)
    part = run(replace(case, flags=case.flags.replace(outputs=outputs)), x)
    assert_same(part, {name: a for name, a in run(case, x).items() if name.startswith(outputs)})


def test_slabs_do_not_show(make_case, tensor, monkeypatch):
    case, x = make_case("local_1x64", 192, 320, scale_layout="swizzled"), tensor(192, 320)
    whole = run(case, x)
    monkeypatch.setattr(layout, "SLAB_ELEMENTS", 1)
    assert_same(run(case, x), whole)


class TestSpecials:
    """A change in one window changes no other window."""

    @pytest.fixture
    def reference(self, make_case, tensor):
        return run(make_case("local_1x64", 64, 192, outputs="rowwise"), tensor(64, 192))

    @pytest.fixture
    def changed(self, make_case, tensor, reference):
        """`changed(window)`: the bytes after row 5, columns 64 to 127 became `window`."""

        def run_with(window):
            x = tensor(64, 192)
            x[5, 64:128] = window
            given = run(make_case("local_1x64", 64, 192, outputs="rowwise"), x)
            outside = np.ones((64, 192), bool)
            outside[5, 64:128] = False
            np.testing.assert_array_equal(codes(given)[outside], codes(reference)[outside])
            blocks = outside[:, ::16]
            np.testing.assert_array_equal(
                given["rowwise_scale_inv"][:64][blocks], reference["rowwise_scale_inv"][:64][blocks]
            )
            return given["rowwise_amax"][5, 1], given["rowwise_scale_inv"][5, 4:8], codes(given)[5, 64:128]

        return run_with

    def test_zeros(self, changed):
        amax, scale_inv, code = changed([0.0, -0.0] * 32)
        assert not amax.view(np.uint32)
        assert not scale_inv.any()
        assert code.tolist() == [0, 8] * 32

    def test_nan_alone(self, changed):
        amax, scale_inv, code = changed(np.full(64, np.nan))
        assert amax == 0
        assert not scale_inv.any()
        assert (code == 7).all()

    def test_inf(self, changed):
        window = np.ones(64)
        window[20] = -np.inf
        amax, scale_inv, code = changed(window)
        assert amax == np.inf
        one_sixth = nvfp4.e4m3(np.full(1, 1 / 6, F32))[0]
        assert scale_inv.tolist() == [one_sixth, 0x7E, one_sixth, one_sixth]
        assert code[20] == 0xF
        assert (code[16:20] == 0).all()  # 1/448
        assert (code[:16] == 7).all()

    def test_an_underflowed_block_is_zeros_with_their_signs(self, changed):
        """2.7 gives 0 where 2.6 gives FLT_MAX."""
        window = np.ones(64)
        window[16:32] = [2.0**-30, -(2.0**-30)] * 8
        _, scale_inv, code = changed(window)
        assert scale_inv[1] == 0
        assert code[16:32].tolist() == [0, 8] * 8

    def test_an_underflowed_block_saturates_under_the_reciprocal(self, make_case):
        x = np.ones((64, 64), nvfp4.DTYPES["bf16"])
        x[0, 16:32] = [2.0**-30, -(2.0**-30), 0, -0.0] * 4
        given = run(make_case("local_1x64", 64, 64, outputs="rowwise", multiplier="reciprocal"), x)
        assert codes(given)[0, 16:20].tolist() == [7, 0xF, 0, 8]

    @pytest.mark.parametrize("exponent", [-39, -40, -41, -60])
    def test_the_amax_is_floored_but_written_raw(self, changed, exponent):
        """1e-12 lies between 2^-40 and 2^-39."""
        value = F32(2.0**exponent)
        amax, scale_inv, _ = changed(np.full(64, value))
        assert amax == value
        s_enc = F32(2688) / max(value, F32(1e-12))
        assert (scale_inv == nvfp4.e4m3(np.full(1, value * (s_enc * F32(1 / 6))))).all()
        assert (scale_inv[0] == 0x7E) == (exponent == -39)


@pytest.mark.parametrize(
    ("shape", "flags", "word"),
    [
        ((64, 64), {"block": "block_16x16"}, "block_16x16"),
        ((64, 64), {"rht": True}, "rht must be false"),
        ((64, 64), {"rounding": "sr"}, "rounding must be rne"),
        ((64, 80), {}, "multiples of 64, not 64x80"),
        ((48, 64), {}, "multiples of 64, not 48x64"),
        ((64, 0), {}, "64x0"),
    ],
)
def test_a_refusal_says_what_is_wrong(make_case, shape, flags, word):
    assert_refused(local_1x64, make_case("local_1x64", *shape, **flags), word)
