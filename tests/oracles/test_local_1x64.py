"""local_1x64 by both oracles: what zeros, NaN, inf and amaxes below the floor do within one window, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from quantized import BOTH, codes, run

from harness.oracles import nvfp4

F32 = np.float32


@pytest.fixture(params=["numpy", "torch"])
def changed(make_case, tensor, request):
    """`changed(window)`: amax, scale bytes and codes of row 5, columns 64 to 127, which became `window`; only these."""
    case, x = make_case("local_1x64", 64, 192, outputs="rowwise"), tensor(64, 192)
    reference = run(request.param, case, x)

    def run_with(window):
        x[5, 64:128] = window
        given = run(request.param, case, x)
        outside = np.ones((64, 192), bool)
        outside[5, 64:128] = False
        np.testing.assert_array_equal(codes(given)[outside], codes(reference)[outside])
        blocks = outside[:, ::16]
        scales, before = (tensors["rowwise_scale_inv"][:64, :12] for tensors in (given, reference))
        np.testing.assert_array_equal(scales[blocks], before[blocks])
        return given["rowwise_amax"][5, 1], given["rowwise_scale_inv"][5, 4:8], codes(given)[5, 64:128]

    return run_with


def test_zeros(changed):
    amax, scale_inv, code = changed([0.0, -0.0] * 32)
    assert not amax.view(np.uint32) and not scale_inv.any()
    assert code.tolist() == [0, 8] * 32


def test_nan_alone(changed):
    amax, scale_inv, code = changed(np.full(64, np.nan))
    assert amax == 0 and not scale_inv.any() and (code == 7).all()


def test_inf(changed):
    window = np.ones(64)
    window[20] = -np.inf
    amax, scale_inv, code = changed(window)
    assert amax == np.inf
    one_sixth = nvfp4.e4m3(np.full(1, 1 / 6, F32))[0]
    assert scale_inv.tolist() == [one_sixth, 0x7E, one_sixth, one_sixth]
    assert code[20] == 0xF and (code[16:20] == 0).all()  # 1/448
    assert (code[:16] == 7).all()


@pytest.mark.parametrize("exponent", [-39, -40, -41, -60])
def test_the_amax_is_floored_but_written_raw(changed, exponent):
    """1e-12 lies between 2^-40 and 2^-39."""
    value = F32(2.0**exponent)
    amax, scale_inv, code = changed(np.full(64, value))
    assert amax == value
    s_enc = F32(2688) / max(value, F32(1e-12))
    assert (scale_inv == nvfp4.e4m3(np.full(1, value * (s_enc * F32(1 / 6))))).all()
    assert (scale_inv[0] == 0x7E) == (exponent == -39)
    assert exponent > -60 or not code.any()  # a scale of 3.9e-4 is less than half of the least e4m3 value


@BOTH
def test_the_multipliers_give_other_codes_under_the_same_scales(make_case, tensor, ask):
    direct, reciprocal = (
        run(ask, make_case("local_1x64", 192, 320, multiplier=m), tensor(192, 320)) for m in ("direct", "reciprocal")
    )
    np.testing.assert_array_equal(direct["rowwise_scale_inv"], reciprocal["rowwise_scale_inv"])
    assert (codes(direct) != codes(reciprocal)).any()
