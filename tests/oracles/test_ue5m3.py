"""Scales in ue5m3, and no global scale: the cast by exact rationals, blocks by hand, and what each leaves out."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest
import torch
from quantized import BOTH, assert_same, codes, run

from harness.errors import ContractError
from harness.oracles import dequantize, nvfp4, per_tensor, torch_numerics
from harness.suite.suite import suite_of

F32 = np.float32
# 1.9 in rationals: subnormals count 2^-17, and each of 31 binades has eight steps, but for the last, where 0xFF is NaN.
VALUES = [Fraction(i, 2**17) for i in range(8)]
VALUES += [(8 + m) * Fraction(2) ** (e - 18) for e in range(1, 32) for m in range(8)][:-1]
CASTS = pytest.mark.parametrize(
    "cast", [nvfp4.ue5m3, lambda v: torch_numerics.ue5m3(torch.from_numpy(v)).numpy()], ids=["numpy", "torch"]
)


@cache  # for both libraries
def nearest(v: np.float32) -> int:
    """The byte of a float32 by comparing exact distances."""
    if np.isnan(v):
        return 0xFF
    a = VALUES[-1] if np.isinf(v) else min(abs(Fraction(float(v))), VALUES[-1])
    return min(range(255), key=lambda byte: (abs(VALUES[byte] - a), byte % 2)) if a < 1 else _from(a)


def _from(a: Fraction) -> int:
    around = [byte for byte in range(250 - 130, 255) if abs(VALUES[byte] - a) <= a / 8]
    return min(around, key=lambda byte: (abs(VALUES[byte] - a), byte % 2))


@CASTS
def test_cast_is_nearest_even_saturates_and_drops_the_sign(cast):
    middles = [(a + b) / 2 for a, b in zip(VALUES, VALUES[1:], strict=False)]
    exact = np.array([float(v) for v in VALUES + middles], F32)
    assert [Fraction(float(v)) for v in exact] == VALUES + middles
    beyond = F32([np.inf, np.nan, nvfp4.FLT_MAX, 114688, 114689, 122880, 131072, 1e-45, 2**-18, 2**-19])
    v = np.concatenate([exact, np.nextafter(exact, F32(np.inf)), np.nextafter(exact, F32(0)), beyond])
    expected = [nearest(value) for value in v]
    assert {0, 1, 7, 8, 0xFE, 0xFF} <= set(expected)
    np.testing.assert_array_equal(cast(v), expected)
    np.testing.assert_array_equal(cast(-v), expected)


@CASTS
def test_cast_of_every_bf16(cast):
    """Above 2^-14 a byte is the bf16 with four bits of mantissa less; ml_dtypes rounds below, in a subnormal format."""
    v = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(F32)
    byte, a = cast(v), np.abs(v)
    np.testing.assert_array_equal(byte == 0xFF, np.isnan(v))
    fits = ~np.isnan(v)
    back = nvfp4.decode_ue5m3(byte[fits])
    a = np.minimum(a[fits], F32(114688))
    step = np.exp2(np.maximum(np.floor(np.log2(np.maximum(a, F32(2**-14)))), -14) - 3)
    np.testing.assert_array_equal(back, np.rint(a / step) * step)


def test_every_byte_decodes():
    byte = np.arange(256, dtype=np.uint8)
    for values in (nvfp4.decode_ue5m3(byte), torch_numerics.ue5m3_values(torch.from_numpy(byte)).numpy()):
        assert [Fraction(float(v)) for v in values[:-1]] == VALUES and np.isnan(values[-1])
    np.testing.assert_array_equal(nvfp4.ue5m3(nvfp4.decode_ue5m3(byte)), byte)


@BOTH
@pytest.mark.parametrize("two_levels", [True, False])
def test_blocks_by_hand(make_case, ask, two_levels):
    """amax 688128 = 6 * 114688 makes S_enc 1, as no global scale does; block amaxes 6, 6 * 2^-17 and 6 * 2^-18."""
    x = np.zeros((16, 64), F32)
    x[0, 0], x[0, 1], x[0, 16], x[0, 32] = 6, -0.25, 6 * 2**-17, -6 * 2**-18
    x[0, 48] = 688128
    flags = {"dtype": "fp32", "outputs": "rowwise", "scale_format": "ue5m3", "global_scale": two_levels}
    given = run(ask, make_case("per_tensor", 16, 64, **flags), x)
    assert given["rowwise_scale_inv"][0].tolist() == [0x78, 0x01, 0x00, 0xFE]
    assert codes(given)[0, [0, 1, 16, 32, 48]].tolist() == [7, 8, 7, 15, 7]
    assert ("rowwise_amax" in given) == two_levels


@BOTH
@pytest.mark.parametrize("scale_format", per_tensor.SCALE_FORMATS)
@pytest.mark.parametrize("flags", [{}, {"rht": True}, {"block": "block_16x16"}, {"fast_math": True}], ids=str)
def test_no_global_scale_is_that_of_a_largest_amax(make_case, tensor, ask, flags, scale_format):
    """As Transformer Engine's own test has it (test_nvfp4_quantize_exact.py of pull request 3325)."""
    x = tensor(48, 80).astype(F32)
    x[0, 0] = 6 * {"e4m3": 448, "ue5m3": 114688}[scale_format]
    if "rht" in flags:
        x[0, 0], x[:16, 0] = 0, 4 * 6 * {"e4m3": 448, "ue5m3": 114688}[scale_format] * (np.arange(16) == 3)
        flags = {**flags, "outputs": "columnwise"}
    x = x.astype(nvfp4.DTYPES["bf16"])
    both = [
        run(ask, make_case("per_tensor", 48, 80, scale_format=scale_format, global_scale=two, **flags), x)
        for two in (True, False)
    ]
    amaxes = {name: both[0].pop(name) for name in list(both[0]) if name.endswith("amax")}
    assert {float(amax[0]) for amax in amaxes.values()} == {6 * {"e4m3": 448, "ue5m3": 114688}[scale_format]}
    assert_same(*both)


@BOTH
def test_ue5m3_without_an_amax_is_better_than_e4m3_where_magnitudes_are_far_apart(make_case, ask):
    x = (np.random.default_rng(4).standard_normal((64, 64)) * np.exp2(np.linspace(-12, 12, 64))[:, None]).astype(F32)
    errors = {}
    for scale_format in per_tensor.SCALE_FORMATS:
        case = make_case("dequantize", 64, 64, dtype="fp32", scale_format=scale_format, global_scale=False)
        errors[scale_format] = np.abs(run(ask, case, x)["output"] - x)[:8].mean() / np.abs(x[:8]).mean()
    assert errors["ue5m3"] < 0.12 < 0.4 < errors["e4m3"]


@BOTH
def test_without_an_amax_the_factor_is_the_scale(make_case, ask):
    for scale_format, values in (("e4m3", nvfp4.E4M3_VALUES), ("ue5m3", nvfp4.UE5M3_VALUES)):
        case = make_case(
            "dequantize", 64, 64, "exhaustive", dtype="fp32", scale_format=scale_format, global_scale=False
        )
        given = dequantize.inputs(case, np.zeros((64, 64), F32))
        assert "amax" not in given
        q = nvfp4.E2M1_VALUES[nvfp4.unpack(given["data"])]
        expected = nvfp4.convert(nvfp4.scaled(q, values[given["scale_inv"][:64, :4]]), "fp32")
        output = run(ask, case, np.zeros((64, 64), F32))["output"]
        np.testing.assert_array_equal(output.view(np.uint32), expected.view(np.uint32))
        assert np.isnan(output).any()


@pytest.mark.parametrize(
    ("recipe", "flags", "word"),
    [
        ("per_tensor", {"scale_format": "e5m2"}, "scale_format must be e4m3 or ue5m3, not e5m2"),
        ("per_tensor", {"scale_format": "ue5m3", "activation": "swiglu"}, "swiglu is defined with e4m3 scales"),
        ("per_tensor", {"global_scale": False, "activation": "dswiglu"}, "dswiglu is defined with e4m3 scales"),
        ("per_tensor", {"global_scale": False, "stage": "encode"}, "there is no amax, so no stage encode"),
        ("dequantize", {"scale_format": "e5m2"}, "scale_format must be e4m3 or ue5m3, not e5m2"),
        ("dequantize", {"scale_format": "ue5m3", "granularity": "row"}, "granularity must be tensor, not row"),
        ("dequantize", {"scale_format": "ue5m3", "e4m3_max": 256}, "e4m3_max must be 448, not 256"),
        ("dequantize", {"global_scale": False, "granularity": "window"}, "granularity must be tensor, not window"),
        ("dequantize", {"global_scale": False, "e4m3_max": 320}, "e4m3_max must be 448, not 320"),
    ],
)
def test_refusals_of_oracle_and_suite(make_case, recipe, flags, word):
    case = make_case(recipe, 64, 128, **flags)
    with pytest.raises(ContractError, match=word):
        {"per_tensor": per_tensor, "dequantize": dequantize}[recipe].refuse(case)
    if flags.get("scale_format") != "e5m2":
        assert suite_of(recipe).refusal(case.flags)
