"""gemm: its interval holds the sums of every order, through every epilogue, and is narrow enough to catch mistakes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from products import BOTH, FLAGS, by, drawn, operand, shape_of

from harness.contract.interval import inside, order
from harness.errors import ContractError
from harness.oracles import gemm, gemm_ordered, nvfp4

F32 = np.float32
ONE, TWO, NAN = 0x38, 0x40, 0x7F  # e4m3 bytes: 1, 2, NaN
C_AB = F32(1) / F32(36 * 448 * 448)


def accepts(interval, output):
    """Find the elements of an output that lie within their interval."""
    arrays = (np.ascontiguousarray(x).view(np.uint8) for x in (output, interval.low, interval.high))
    return inside(*arrays, output.dtype.itemsize)


def values(case, tensors, name):
    """(lines, K) float64 of an operand with compact scales."""
    data = tensors[f"{name}_data"]
    scales = nvfp4.decode_e4m3(tensors[f"{name}_scale_inv"][: len(data), : case.cols // 16]).astype(np.float64)
    return nvfp4.decode_e2m1(nvfp4.unpack(data)) * scales.repeat(16, axis=1)


# --- the bound --------------------------------------------------------------------------------------------------------


@BOTH
def test_the_ends_by_hand(make_gemm, ask):
    """Row 0 of A: 6 and -4 under 2, then -0.5 under 1; every row of B: 3 and 1.5 under 1, then 4 under 2."""
    a_codes, b_codes = np.zeros((1, 32), np.uint8), np.zeros((16, 32), np.uint8)
    a_codes[0, [0, 1, 16]] = 7, 14, 9
    b_codes[:, [0, 1, 16]] = 5, 3, 6
    tensors = operand("a", a_codes, [[TWO, ONE]], [3]) | operand("b", b_codes, [[ONE, TWO]] * 16, [7])
    terms = [36, -12, -4]
    bound = Fraction(32 * 52, 2**23)
    given = by(ask, make_gemm((1, 32, 16), recipe="gemm", dtype="fp32"), tensors)
    assert (given.sums[0, 0], given.sizes[0, 0]) == (sum(terms), 52)
    alpha = (F32(3) * F32(7)) * C_AB
    ends = [F32(float(20 + sign * bound)) for sign in (-1, 1)]
    assert [Fraction(float(end)) - 20 for end in ends] == [-bound, bound]  # float32 has both
    np.testing.assert_array_equal(given.low, np.full((1, 16), alpha * ends[0]))
    np.testing.assert_array_equal(given.high, np.full((1, 16), alpha * ends[1]))
    swapped = by(ask, make_gemm((1, 32, 16), recipe="gemm", dtype="fp32", alpha=-2), tensors)
    np.testing.assert_array_equal(swapped.low, np.full((1, 16), F32(-2) * F32(3) * F32(7) * C_AB * ends[1]))
    np.testing.assert_array_equal(swapped.high, np.full((1, 16), F32(-2) * F32(3) * F32(7) * C_AB * ends[0]))


@BOTH
def test_the_ends_of_the_post_scale_route_are_rounded_twice(make_gemm, ask):
    case = make_gemm((128, 128, 128), recipe="gemm", epilogue="per_token")
    tensors = drawn(case)
    given = by(ask, case, tensors)
    terms = case.cols * 2.0**-23 * given.sizes
    for end, sign in ((given.low, -1), (given.high, 1)):
        acc = (given.sums + sign * terms).astype(F32)
        d = nvfp4.bf16(C_AB * acc)
        expected = nvfp4.bf16((d * tensors["a_amax"][:, None]) * tensors["b_amax"])
        # This sum may lie a bit beyond the bound.
        assert (end.astype(F32) == expected).mean() > 0.99
        assert np.abs(order(end).astype(int) - order(expected.astype(end.dtype))).max() <= 1


@BOTH
def test_sums_of_nothing_have_the_sign_of_what_multiplies_them(make_gemm, ask):
    """There is nothing to round, so that there is one right answer."""
    a, b = np.full((1, 16), 8, np.uint8), np.full((16, 16), 2, np.uint8)
    tensors = operand("a", a, [[ONE]], [3]) | operand("b", b, [[ONE]] * 16, [7])
    for alpha, zero in ((1, 0), (-2, 0x8000)):
        given = by(ask, make_gemm((1, 16, 16), recipe="gemm", alpha=alpha), tensors)
        assert {*given.low.view(np.uint16).ravel(), *given.high.view(np.uint16).ravel()} == {zero}


@BOTH
@pytest.mark.parametrize("alpha", [1, -2])
def test_between_two_underflows_are_both_zeros(make_gemm, alpha, ask):
    a = np.full((1, 16), 2, np.uint8)
    a[:, 8:] = 10
    tensors = operand("a", a, [[ONE]], [1e-38]) | operand("b", np.full((16, 16), 2), [[ONE]] * 16, [1])
    given = by(ask, make_gemm((1, 16, 16), recipe="gemm", alpha=alpha), tensors)
    assert set(given.low.view(np.uint16).ravel()) == {0x8000}
    assert set(given.high.view(np.uint16).ravel()) == {0}


@BOTH
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_nan_scale_demands_one_nan(make_gemm, dtype, ask):
    scales = np.full((16, 1), ONE)
    scales[3] = NAN
    ones = np.full((16, 16), 2, np.uint8)
    tensors = operand("a", ones, np.full((16, 1), ONE), [3]) | operand("b", ones * 0, scales, [7])
    case = make_gemm((16, 16, 16), recipe="gemm", dtype=dtype)
    given = by(ask, case, tensors)
    output = gemm_ordered.numpy_oracle(case, tensors)["output"]
    assert np.isnan(output[:, 3]).all()
    assert accepts(given, output).all()
    output[5, 3] = 0
    output[5, 4] = np.nan
    assert np.flatnonzero(~accepts(given, output)).tolist() == [5 * 16 + 3, 5 * 16 + 4]
    negative = np.copysign(output, -1)
    assert not accepts(given, negative).reshape(16, 16)[:, 3].any()


@BOTH
def test_an_infinite_amax_is_demanded_where_no_order_can_change_it(make_gemm, ask):
    ones = np.full((16, 16), 2, np.uint8)
    tensors = operand("a", ones, np.full((16, 1), ONE), [np.inf]) | operand("b", ones, np.full((16, 1), ONE), [7])
    case = make_gemm((16, 16, 16), recipe="gemm", alpha=-2)
    given = by(ask, case, tensors)
    assert (given.low == -np.inf).all()
    assert (given.high == -np.inf).all()
    mixed = ones.copy()
    mixed[:, 8:] = 10
    undecided = operand("a", mixed, np.full((16, 1), ONE), [np.inf])
    with pytest.raises(ContractError, match="NaN"):
        by(ask, case, tensors | undecided)


@BOTH
def test_an_overflow_that_meets_a_zero_is_seen_between_the_ends(make_gemm, ask):
    """Both ends overflow and are NaN once they meet 0, and 0 itself is not."""
    codes = np.full((1, 128), 7, np.uint8)
    codes[:, 64:] = 15
    b = np.full((128, 128), 2, np.uint8)
    tensors = operand("a", codes, np.full((1, 8), ONE), [F32(3e38)])
    tensors |= operand("b", b, np.full((128, 8), 0x7E), np.zeros(128))
    case = make_gemm((1, 128, 128), recipe="gemm", epilogue="row_scaled", dtype="fp32")
    assert (by(ask, case, tensors).low == 0).all()
    fused = replace(case, flags=case.flags.replace(epilogue="per_token_fused", dtype="bf16"))
    with pytest.raises(ContractError, match="NaN"):
        by(ask, fused, tensors)


# --- both oracles, and the answers that must be inside ----------------------------------------------------------------

INPUTS = ["normal", "exact_sum", "wide_sum", "specials_nan", "row_scales", "signed_zero", "tiny_amax", "zero_rows"]


@pytest.mark.sweep
@pytest.mark.parametrize("input_name", INPUTS)
@pytest.mark.parametrize("flags", [*FLAGS, {"route": "library"}], ids=str)
def test_both_oracles_agree_and_the_stated_order_is_one_of_all(make_gemm, flags, input_name):
    case = make_gemm(shape_of(flags), input_name, recipe="gemm", **flags)
    tensors = drawn(case)
    ours, theirs = by("numpy", case, tensors), by("torch", case, tensors)
    ordered = gemm_ordered.numpy_oracle(case, tensors)["output"]
    if input_name == "exact_sum" and not gemm.has_either_zero(case):
        assert ours.tobytes() == theirs.tobytes() == ordered.tobytes()
        return
    assert ours.disagreement(theirs) == ""
    assert (ours.low.tobytes(), ours.high.tobytes()) == (theirs.low.tobytes(), theirs.high.tobytes())
    assert (order(ours.low) <= order(ours.high)).all()
    assert accepts(ours, ordered).all()


def test_specials_that_row_and_tensor_amaxes_decide(make_gemm):
    for flags in (flags for flags in FLAGS if flags.get("epilogue", "per_tensor") in ("per_tensor", "row_scaled")):
        case = make_gemm(shape_of(flags), "specials_inf", recipe="gemm", **flags)
        tensors = drawn(case)
        assert accepts(by("numpy", case, tensors), gemm_ordered.numpy_oracle(case, tensors)["output"]).all()


@BOTH
@pytest.mark.parametrize("amax", [np.inf, 1e30])
def test_windows_beyond_float32_are_refused_because_the_order_decides(make_gemm, ask, amax):
    case = make_gemm((16, 128, 64), recipe="gemm", epilogue="windows")
    tensors = drawn(case)
    for name in ("a_amax", "b_amax"):
        tensors[name][0, 0] = amax
    with pytest.raises(ContractError, match="float32"):
        by(ask, case, tensors)


def test_a_window_has_its_own_amaxes(make_gemm):
    """Both oracles scale each 64 of K by the amaxes of that window, before they are added."""
    case = make_gemm((16, 128, 64), "exact_sum", recipe="gemm", epilogue="windows", dtype="fp32")
    tensors = drawn(case)
    whole = by("numpy", case, tensors)
    parts = []
    for window in (0, 1):
        own = {**tensors, "a_amax": tensors["a_amax"].copy()}
        own["a_amax"][:, 1 - window] = 0
        parts.append(by("torch", case, own))
    assert not np.array_equal(*parts) and parts[0].any() and parts[1].any()
    c_ab = np.float32(1) / np.float32(36 * 448 * 448)
    sums = [np.rint(part / c_ab * 4) / 4 for part in parts]
    np.testing.assert_array_equal(whole, (c_ab * (sums[0] + sums[1]).astype(np.float32)))


@pytest.mark.parametrize("flags", [flags for flags in FLAGS if "per_token" in flags.get("epilogue", "")], ids=str)
def test_an_infinite_token_is_refused_because_the_order_decides(make_gemm, flags):
    case = make_gemm((128, 256, 256), "specials_inf", recipe="gemm", **flags)
    with pytest.raises(ContractError, match="the order of the sum decides whether output .* is a NaN"):
        by("numpy", case, drawn(case))


def cut(value):
    """float64 to the float32 nearer zero."""
    near = value.astype(F32)
    return np.where(np.abs(near) > np.abs(value), np.nextafter(near, F32(0)), near)


@pytest.mark.parametrize("rounded", [lambda value: value.astype(F32), cut], ids=["nearest", "cut"])
@pytest.mark.parametrize("input_name", ["normal", "wide_sum"])
def test_any_order_is_inside_rounded_or_cut(make_gemm, rounded, input_name):
    case = make_gemm((32, 256, 32), input_name, recipe="gemm", dtype="fp32")
    tensors = drawn(case)
    a, b = (values(case, tensors, name) for name in "ab")
    given = by("numpy", case, tensors)
    rng = np.random.default_rng(4)
    for _ in range(3):
        acc = np.zeros((32, 32), F32)
        for k in rng.permutation(case.cols):
            acc = rounded(acc + np.outer(a[:, k], b[:, k]))
        assert accepts(given, gemm_ordered.epilogue(case, tensors, slice(None), acc)).all()


# --- mistakes that must be outside ------------------------------------------------------------------------------------


def exactly(case, tensors, a=None, b=None, amaxes=None):
    """The output of the exact sum of these values, with these amaxes."""
    a, b = (values(case, tensors, name) if x is None else x for name, x in (("a", a), ("b", b)))
    return gemm_ordered.epilogue(case, {**tensors, **(amaxes or {})}, slice(None), (a @ b.T).astype(F32))


@pytest.mark.parametrize("epilogue", ["per_tensor", "row_scaled", "per_token", "per_token_fused"])
def test_the_exact_sum_is_inside(make_gemm, epilogue):
    case = make_gemm((128, 256, 128), recipe="gemm", epilogue=epilogue)
    tensors = drawn(case)
    assert accepts(by("numpy", case, tensors), exactly(case, tensors)).all()


@BOTH
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_dropped_product_and_a_swapped_scale_are_outside(make_gemm, dtype, ask):
    """Blocks 2 and 3 of every row of B with each other's scale."""
    case = make_gemm((128, 256, 128), recipe="gemm", dtype=dtype)
    tensors = drawn(case)
    given, a = by(ask, case, tensors), values(case, tensors, "a")
    a[:, 100] = 0
    assert (~accepts(given, exactly(case, tensors, a=a))).mean() > {"bf16": 0.1, "fp32": 0.6}[dtype]
    swapped = tensors["b_scale_inv"].copy()
    swapped[:, [2, 3]] = swapped[:, [3, 2]]
    b = values(case, {**tensors, "b_scale_inv": swapped}, "b")
    rows = np.flatnonzero((swapped != tensors["b_scale_inv"])[:128, 2])
    share = (~accepts(given, exactly(case, tensors, b=b)).reshape(128, 128))[:, rows].mean()
    assert share > {"bf16": 0.4, "fp32": 0.9}[dtype]


@BOTH
@pytest.mark.parametrize("epilogue", ["row_scaled", "per_token", "per_token_fused"])
def test_the_amax_of_another_row_is_outside(make_gemm, epilogue, ask):
    case = make_gemm((128, 256, 128), recipe="gemm", epilogue=epilogue)
    tensors = drawn(case)
    amaxes = {"a_amax": np.roll(tensors["a_amax"], 1)}
    assert (~accepts(by(ask, case, tensors), exactly(case, tensors, amaxes=amaxes))).mean() > 0.8


# --- witnesses -------------------------------------------------------------------------------------------


def test_witnesses_that_differ_are_told_apart(make_gemm):
    case = make_gemm((16, 64, 16), recipe="gemm", dtype="fp32")
    given = by("numpy", case, drawn(case))

    def changed(name, factor):
        array = getattr(given, name).copy()
        array[2, 3] *= factor
        return replace(given, **{name: array})

    assert given.disagreement(given) == ""
    assert given.disagreement(changed("sums", 1 + 2.0**-50)) == ""
    assert given.disagreement(changed("sums", 1 + 2.0**-20)) == "1 exact values, first at [2, 3]"
    assert given.disagreement(changed("sizes", 1 + 2.0**-20)) == "1 exact values, first at [2, 3]"
    assert given.disagreement(changed("sums", np.nan)) == "1 exact values, first at [2, 3]"
    assert given.disagreement(changed("high", 2)) == "1 intervals, first at [2, 3]"
    # Where sums are rounded the ends follow them.
    other = replace(given, low=np.nextafter(given.low, F32(9)), sums=given.sums * (1 + 2.0**-50))
    assert given.disagreement(other) == ""
