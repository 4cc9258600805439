"""Products of operands in ue5m3, and of operands without an amax: by hand, in f16, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from products import BOTH, by, operand

from harness.errors import ContractError
from harness.expected.expected import high_precision
from harness.oracles import gemm_operands, gemm_ordered, nvfp4

F32 = np.float32
ONE, TWO, LEAST, MOST, NAN = 0x78, 0x80, 0x01, 0xFE, 0xFF  # ue5m3 bytes: 1, 2, 2^-17, 114688, NaN
UE5M3 = {"dtype": "fp32", "scale_format": "ue5m3"}
C_AB = F32(1) / F32(36 * 114688**2)


def product(scales, lines=1):
    """Codes of 1 at the start of every block, under these scales in every line."""
    codes = np.zeros((lines, 16 * len(scales)), np.uint8)
    codes[:, ::16] = 2
    return codes, [scales] * lines


@BOTH
def test_scales_from_the_least_to_the_largest(make_gemm, ask):
    a = operand("a", *product([MOST, LEAST, 0x7F]), [3])
    b = operand("b", *product([MOST, LEAST, TWO], 16), [7])
    acc = F32(F32(114688**2) + F32(2.0**-34)) + F32(2 * 1.875)
    assert Fraction(float(acc)) == 114688**2  # which absorbs the rest
    case = make_gemm((1, 48, 16), **UE5M3)
    np.testing.assert_array_equal(by(ask, case, a | b), np.full((1, 16), F32(3) * F32(7) * C_AB * acc))


@BOTH
def test_ff_is_the_only_nan(make_gemm, ask):
    scales = [[byte] for byte in (0x7F, 0xFE, NAN, 0x80)]
    a = operand("a", np.zeros((4, 16), np.uint8), scales, [1])
    b = operand("b", *product([ONE], 16), [1])
    given = by(ask, make_gemm((4, 16, 16), **UE5M3), a | b)
    assert np.isnan(given).tolist() == [[row == 2] * 16 for row in range(4)]
    assert given.view(np.uint32)[2, 0] == 0x7FFFFFFF


@BOTH
@pytest.mark.parametrize("alpha", [1, 0.1, -2])
@pytest.mark.parametrize("scale_format", ["e4m3", "ue5m3"])
def test_an_absent_amax_is_6_e_and_alpha_stays_where_both_are_absent(make_gemm, ask, alpha, scale_format):
    one, largest = {"e4m3": (0x38, 448), "ue5m3": (ONE, 114688)}[scale_format]
    a, b = operand("a", *product([one]), [6 * largest]), operand("b", *product([one], 16), [6 * largest])

    def of(given, **flags):
        case = make_gemm((1, 16, 16), dtype="fp32", scale_format=scale_format, alpha=alpha, **flags)
        return by(ask, case, given)

    def without(tensors):
        return {name: array for name, array in tensors.items() if not name.endswith("amax")}

    both = of(a | b)
    np.testing.assert_array_equal(of(without(a) | b, a_global_scale=False), both)
    np.testing.assert_array_equal(of(a | without(b), b_global_scale=False), both)
    neither = of(without(a) | without(b), a_global_scale=False, b_global_scale=False)
    assert (neither == F32(alpha)).all()
    assert (both == F32(alpha)).all() == (alpha != 0.1)  # which dividing does not give back


@pytest.mark.parametrize(("power", "holds"), [(-3, False), (-4, True), (-6, True), (-7, False)])
def test_f16_holds_every_factor_in_the_unit_of_10_2(power, holds):
    """H1: 2^-4 is the largest power of two whose products with codes and scales f16 holds, 2^-6 the smallest."""
    factors = np.outer(nvfp4.E2M1_VALUES, nvfp4.UE5M3_VALUES[:-1]).astype(np.float64) * 2.0**power
    with np.errstate(over="ignore"):
        assert (factors.astype(np.float16).astype(np.float64) == factors).all() == holds


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"scale_format": "e5m2"}, "scale_format must be e4m3 or ue5m3, not e5m2"),
        ({"scale_format": "ue5m3", "epilogue": "row_scaled"}, "epilogue must be per_tensor, not row_scaled"),
        ({"a_global_scale": False, "epilogue": "windows"}, "epilogue must be per_tensor, not windows"),
        ({"b_global_scale": False, "epilogue": "per_token"}, "epilogue must be per_tensor, not per_token"),
        ({"scale_format": "ue5m3", "b_e4m3_max": 256}, "b_e4m3_max must be 448, not 256"),
        ({"a_global_scale": False, "a_e4m3_max": 320}, "a_e4m3_max must be 448, not 320"),
    ],
    ids=str,
)
def test_flags_that_no_product_has(make_gemm, flags, sentence):
    with pytest.raises(ContractError, match=sentence):
        gemm_ordered.outputs(make_gemm((64, 64, 64), **flags))


def test_operands_of_another_format_or_level(make_gemm):
    case = make_gemm((48, 80, 32), a_global_scale=False, **UE5M3)
    made = {name: gemm_operands.quantize(case, name, x) for name, x in high_precision(case).items()}
    assert "a_amax" not in gemm_operands.bind(case, **made)
    for name, change, sentence in (
        ("a", {"scale_format": "e4m3"}, "operand A has the scale format e4m3; this GEMM reads ue5m3"),
        ("a", {"two_levels": True}, "operand A has the global scale true; this GEMM reads false"),
        ("b", {"two_levels": False}, "operand B has the global scale false; this GEMM reads true"),
        ("b", {"recipe": "four_over_six"}, "operand B was quantized by four_over_six; .* must be by per_tensor$"),
    ):
        with pytest.raises(ContractError, match=sentence):
            gemm_operands.bind(case, **(made | {name: replace(made[name], **change)}))


def test_an_amax_that_no_flag_asks_for(make_gemm):
    case = make_gemm((48, 80, 32), a_global_scale=False)
    tensors = gemm_operands.inputs(case, *high_precision(case).values())
    with pytest.raises(ContractError, match="a_amax is given, and no flag asks for it"):
        gemm_ordered.numpy_oracle(case, tensors | {"a_amax": np.ones(1, F32)})
    with pytest.raises(ContractError, match="amax of operand B is missing"):
        gemm_ordered.numpy_oracle(case, {name: array for name, array in tensors.items() if name != "b_amax"})
