"""gemm_ordered: the stated order to the last bit, every epilogue by hand, and both oracles agreeing."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from emulated import output_of
from products import BOTH, FLAGS, by, drawn, operand, shape_of

from harness.expected.expected import high_precision
from harness.oracles import gemm_ordered, nvfp4, torch_gemm

F32 = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
ONE, TWO, HALF, LARGE, TINY, NAN = 0x38, 0x40, 0x30, 0x78, 0x01, 0x7F  # e4m3 bytes: 1, 2, 1/2, 256, 2^-9, NaN
C_AB = F32(1) / F32(36 * 448 * 448)


def bits(array):
    return array.view(f"u{array.itemsize}")


def simple(blocks, lines=1):
    """Codes (lines, 16 * blocks) that are 1 at the start of every block and 0 elsewhere."""
    codes = np.zeros((lines, 16 * blocks), np.uint8)
    codes[:, ::16] = 2
    return codes


# --- by hand ----------------------------------------------------------------------------------------------------------


@BOTH
def test_a_small_product_by_hand(make_gemm, ask):
    """Row 0 of A: 1 and 6 under 2, then -0.5 under 1/2; row j of B: 3 and j/2 under 1, then 4 under 2."""
    a_codes, b_codes = np.zeros((1, 32), np.uint8), np.zeros((16, 32), np.uint8)
    a_codes[0, [0, 1, 16]] = 2, 7, 9
    b_codes[:, 0], b_codes[:4, 1], b_codes[:, 16] = 5, range(4), 6
    tensors = operand("a", a_codes, [[TWO, HALF]], [3]) | operand("b", b_codes, [[ONE, TWO]] * 16, [7])
    case = make_gemm((1, 32, 16), dtype="fp32", alpha=0.75)
    # 2 * (1 * 3 + 6 * j/2) + (1/2 * 2) * (-0.5 * 4)
    acc = np.array([6 + 6 * j - 2 if j < 4 else 4 for j in range(16)], F32)
    alpha = (F32(0.75) * F32(3)) * F32(7) * C_AB
    np.testing.assert_array_equal(by(ask, case, tensors), (alpha * acc)[None])


@BOTH
def test_the_order_is_that_of_the_blocks(make_gemm, ask):
    """2^25 and then three times 1, which it absorbs one at a time; 3 at once it would not."""
    codes = simple(4, lines=16)
    a_codes = codes[:1].copy()
    a_codes[0, :15] = 7
    b_codes = codes.copy()
    b_codes[:, :14] = 7
    b_codes[:, 14] = 4  # 14 * 36 + 6 * 2 = 516, and 512 is 4 less
    a_codes[0, 14] = 0
    a_codes[0, 15], b_codes[:, 15] = 6, 4  # 4 * 2 = 8
    scales = np.full((16, 4), ONE)
    scales[:, 0] = LARGE
    tensors = operand("a", a_codes, scales[:1], [2688]) | operand("b", b_codes, scales, [2688])
    case = make_gemm((1, 64, 16), dtype="fp32")
    assert by(ask, case, tensors)[0, 0] == 512 * 2**16

    def reverse(name, lines):
        data = tensors[f"{name}_data"].reshape(lines, 4, 8)[:, ::-1].reshape(lines, 32)
        scale_inv = tensors[f"{name}_scale_inv"].copy()
        scale_inv[:, :4] = scale_inv[:, 3::-1]
        return {f"{name}_data": np.ascontiguousarray(data), f"{name}_scale_inv": scale_inv}

    other = by(ask, case, {**tensors, **reverse("a", 1), **reverse("b", 16)})
    assert other[0, 0] == 512 * 2**16 + 4


@BOTH
def test_no_sum_is_wider_than_float32(make_gemm, ask):
    """2^-20 after 1: float64 would keep it."""
    tensors = operand("a", simple(2), [[ONE, TINY]], [2688]) | operand("b", simple(2, 16), [[ONE, TINY]] * 16, [2688])
    tensors["a_data"][0, 8] = 1  # 2^-18 / 2
    tensors["b_data"][:, 8] = 1
    given = by(ask, make_gemm((1, 32, 16), dtype="fp32", beta=1), tensors | {"c": np.full((1, 16), -1, F32)})
    assert (given == F32(2**-20)).all()
    tensors["a_scale_inv"][0, 0] = 0x58  # 16: 2^-20 is less than half of its last bit
    given = by(ask, make_gemm((1, 32, 16), dtype="fp32", beta=1), tensors | {"c": np.full((1, 16), -16, F32)})
    assert (given == 0).all()


@BOTH
def test_a_zero_has_the_sign_of_what_multiplies_it(make_gemm, ask):
    """-0 codes add up to +0."""
    a, b = np.full((1, 16), 8, np.uint8), np.full((16, 16), 2, np.uint8)
    tensors = operand("a", a, [[ONE]], [3]) | operand("b", b, [[ONE]] * 16, [7])
    assert set(bits(by(ask, make_gemm((1, 16, 16)), tensors)).ravel()) == {0}
    assert set(bits(by(ask, make_gemm((1, 16, 16), alpha=-2), tensors)).ravel()) == {0x8000}
    c = np.zeros((1, 16), BF16)
    c[0, ::2] = -0.0
    given = by(ask, make_gemm((1, 16, 16), alpha=-2, beta=0.5), tensors | {"c": c})
    assert bits(given).tolist() == [[0x8000, 0] * 8]


@BOTH
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_nan_scale_is_nan_wherever_it_goes_even_over_zeros(make_gemm, dtype, ask):
    scales = np.full((16, 2), ONE)
    scales[3, 1] = NAN
    tensors = operand("a", simple(2, 16), np.full((16, 2), ONE), [3]) | operand("b", simple(2, 16) * 0, scales, [7])
    given = bits(by(ask, make_gemm((16, 32, 16), dtype=dtype), tensors))
    assert set(given[:, 3]) == {0x7FFF if dtype == "bf16" else 0x7FFFFFFF}
    assert not np.delete(given, 3, axis=1).any()


@BOTH
def test_a_negative_scale_byte_is_negative(make_gemm, ask):
    tensors = operand("a", simple(1), [[ONE | 0x80]], [2688]) | operand("b", simple(1, 16), [[TWO]] * 16, [2688])
    assert (by(ask, make_gemm((1, 16, 16)), tensors) == -2).all()


@BOTH
def test_an_infinite_amax_gives_inf_and_beside_a_zero_nan(make_gemm, ask):
    b_codes = simple(1, 16)
    b_codes[5] = 0
    tensors = operand("a", simple(1), [[ONE]], [np.inf]) | operand("b", b_codes, [[ONE]] * 16, [7])
    given = bits(by(ask, make_gemm((1, 16, 16), alpha=-2), tensors))[0]
    assert given[5] == 0x7FFF
    assert set(np.delete(given, 5)) == {0xFF80}


ACC = F32(37.5)  # 36 + 2.25 - 0.75
A, B, ADDED = F32(1.17268), F32(32493.32), F32(-0.45)  # found by search: every step shows


def bf16(value):
    return F32(BF16.type(value))


BIAS = F32(0.27734375)
ROW_SCALED = (C_AB * ACC) * A * B
PER_TENSOR = (A * B * C_AB) * ACC
FUSED = C_AB * (B * (A * ACC))
EXPECTED = {
    "per_tensor": ({}, PER_TENSOR),
    "alpha": ({"alpha": 0.75}, (F32(0.75) * A * B * C_AB) * ACC),
    "reduced a": ({"a_e4m3_max": 256}, (A * B * (F32(1) / F32(36 * 256 * 448))) * ACC),
    "reduced": ({"a_e4m3_max": 256, "b_e4m3_max": 256}, (A * B * (F32(1) / F32(36 * 256 * 256))) * ACC),
    "beta": ({"beta": 0.5}, F32(0.5) * ADDED + PER_TENSOR),  # half of it is exact, so that this is the fma
    "row_scaled": ({"epilogue": "row_scaled"}, ROW_SCALED),
    "row_scaled by a tensor": ({"epilogue": "row_scaled", "b_granularity": "tensor"}, (C_AB * ACC) * (A * B)),
    "bias": ({"epilogue": "row_scaled", "bias": True}, ROW_SCALED + BIAS),
    "accumulate": ({"epilogue": "row_scaled", "bias": True, "accumulate": True}, ROW_SCALED + BIAS + ADDED),
    "per_tensor with a bias": ({"bias": True}, PER_TENSOR + BIAS),
    "beta and bias": ({"beta": 0.5, "bias": True}, (F32(0.5) * ADDED + PER_TENSOR) + BIAS),
    "per_token": ({"epilogue": "per_token"}, bf16((bf16(C_AB * ACC) * A) * B)),
    "per_token_fused": ({"epilogue": "per_token_fused"}, FUSED),
    "fused with a bias": ({"epilogue": "per_token_fused", "bias": True}, FUSED + BIAS),
    "fused into a gradient": ({"epilogue": "per_token_fused", "accumulate": True}, FUSED + ADDED),
}


@BOTH
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("name", EXPECTED)
def test_every_epilogue_by_hand(make_gemm, name, dtype, ask):
    flags, expected = EXPECTED[name]
    if name == "per_token":
        dtype = "bf16"
    if name == "fused into a gradient":
        dtype = "fp32"
    case = make_gemm((1, 128, 128), dtype=dtype, **flags)
    codes = {"a": np.zeros((1, 128), np.uint8), "b": np.zeros((128, 128), np.uint8)}
    codes["a"][:, :3], codes["b"][:, :3] = (7, 3, 9), (7, 3, 3)
    tensors = {}
    for side, amax in (("a", A), ("b", B)):
        one = case.flags.epilogue == "per_tensor" or (side == "b" and case.flags.b_granularity == "tensor")
        lines = len(codes[side])
        tensors |= operand(side, codes[side], np.full((lines, 8), ONE), [amax] * (1 if one else lines))
    stored = nvfp4.DTYPES[dtype]
    if case.flags.beta or case.flags.accumulate:
        tensors["c"] = np.full((1, 128), ADDED, stored)
    if case.flags.bias:
        tensors["bias"] = np.full(128, BIAS, stored)
    if dtype == "bf16" and "beta" in name:
        expected = F32(0.5) * bf16(ADDED) + PER_TENSOR
    if dtype == "bf16" and name == "beta and bias":
        expected += bf16(BIAS)
    if dtype == "bf16" and name in ("per_tensor with a bias", "fused with a bias"):
        expected = (PER_TENSOR if "tensor" in name else FUSED) + bf16(BIAS)
    if dtype == "bf16" and name == "accumulate":
        expected = bf16(ROW_SCALED + BIAS) + bf16(ADDED)
    assert set(by(ask, case, tensors).astype(F32).ravel().tolist()) == {float(F32(stored.type(expected)))}


def test_the_steps_of_epilogues_are_not_interchangeable():
    """The numbers above tell epilogues apart that differ in an order or a rounding."""
    one_rounding = [PER_TENSOR, ROW_SCALED, EXPECTED["row_scaled by a tensor"][1], FUSED]
    assert len({float(value) for value in one_rounding}) == len(one_rounding)
    assert EXPECTED["per_token"][1] != bf16(FUSED)
    assert bf16(FUSED + BIAS) != bf16(bf16(FUSED) + BIAS)  # after the cast, as one source adds it
    assert bf16(bf16(ROW_SCALED + BIAS) + bf16(ADDED)) != bf16(ROW_SCALED + BIAS + bf16(ADDED))


# --- fma --------------------------------------------------------------------------------------------------------------


def once(value: Fraction) -> np.float32:
    """The float32 nearest to a rational, ties to even."""
    near = F32(float(value))
    around = [F32(np.nextafter(near, F32(s * np.inf))) for s in (-1, 1)] + [near]
    return min((x for x in around if np.isfinite(x)), key=lambda x: (abs(Fraction(float(x)) - value), int(bits(x)) & 1))


def fused(fma, x, y, z):
    if fma == "numpy":
        return gemm_ordered.fma(x, y, z)
    return torch_gemm.fused_multiply_add(float(x), torch.from_numpy(y), torch.from_numpy(z)).numpy()


def exactly(x, y, z):
    """float32 results of x * y + z in rationals."""
    pairs = zip(y.tolist(), z.tolist(), strict=True)
    return np.array([once(Fraction(float(x)) * Fraction(q) + Fraction(r)) for q, r in pairs], F32)


@pytest.mark.parametrize("fma", ["numpy", "torch"])
@pytest.mark.parametrize("x", [0.5, 1.0, 1.2345678, -1e-20])
def test_fma_rounds_once(fma, x):
    rng = np.random.default_rng(3)
    y, z = (np.ldexp(rng.standard_normal(2000, F32), rng.integers(-w, w, 2000)) for w in (30, 60))
    np.testing.assert_array_equal(fused(fma, F32(x), y, z), exactly(F32(x), y, z))


@pytest.mark.parametrize("fma", ["numpy", "torch"])
def test_fma_beside_the_middle_of_two_floats(fma):
    """x * y is 2^16 less 2^-30, and half an ulp of z is 2^16: a sum in float64 would be a tie."""
    x = F32(1 + 2**-23)
    z = F32(2**40) + np.arange(8, dtype=F32) * F32(2**17)
    y = np.full(8, F32(2**16) * F32(1 - 2**-23), F32)
    z, y = (np.concatenate(parts) for parts in ((z, -z, z, -z), (y, y, -y, -y)))
    expected = exactly(x, y, z)
    np.testing.assert_array_equal(fused(fma, x, y, z), expected)
    assert ((np.float64(x) * y + z).astype(F32) != expected).any()


# --- properties -------------------------------------------------------------------------------------------------------

INPUTS = ["normal", "exact_sum", "wide_sum", "specials_inf", "specials_nan", "row_scales", "signed_zero", "tiny_amax"]


@pytest.mark.sweep
@pytest.mark.parametrize("input_name", INPUTS)
@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_both_oracles_agree(make_gemm, flags, input_name):
    case = make_gemm(shape_of(flags), input_name, **flags)
    tensors = drawn(case)
    ours, theirs = by("numpy", case, tensors), by("torch", case, tensors)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_array_equal(bits(ours), bits(theirs))


@pytest.mark.parametrize("epilogue", ["per_tensor", "row_scaled", "per_token", "per_token_fused"])
@pytest.mark.parametrize("scale_layouts", [("compact", "swizzled"), ("swizzled", "compact")], ids=str)
def test_the_scale_layout_changes_no_byte(make_gemm, epilogue, scale_layouts):
    flags = {"epilogue": epilogue, "a_scale_layout": scale_layouts[0], "b_scale_layout": scale_layouts[1]}
    plain, other = make_gemm((128, 128, 256), epilogue=epilogue), make_gemm((128, 128, 256), **flags)
    made = high_precision(plain)
    given, swizzled = gemm_ordered.inputs(plain, **made), gemm_ordered.inputs(other, **made)
    assert [name for name in given if (given[name] != swizzled[name]).any()] == [
        f"{name}_scale_inv" for name, kind in zip("ab", scale_layouts, strict=True) if kind == "swizzled"
    ]
    np.testing.assert_array_equal(by("numpy", plain, given), by("numpy", other, swizzled))


@pytest.mark.parametrize("epilogue", ["per_tensor", "row_scaled", "per_token"])
def test_a_columnwise_copy_is_the_rowwise_copy_of_the_transpose(make_gemm, epilogue):
    tn, nn, nt = (make_gemm((128, 128, 256), epilogue=epilogue, layout=name) for name in ("tn", "nn", "nt"))
    made = high_precision(tn)
    a, b = made["a"], made["b"]
    expected = gemm_ordered.inputs(tn, a, b)
    for case, given in ((nn, (a, b.T)), (nt, (a.T, b.T))):
        assert [x.shape for x in high_precision(case).values()] == [x.shape for x in given]
        tensors = gemm_ordered.inputs(case, *map(np.ascontiguousarray, given))
        for name, array in expected.items():
            np.testing.assert_array_equal(tensors[name], array, err_msg=name)


@pytest.mark.parametrize("epilogue", ["row_scaled", "per_token", "per_token_fused"])
@pytest.mark.parametrize("rows", [1, 16, 65])
def test_some_rows_of_a_are_the_same_rows_of_the_output(make_gemm, epilogue, rows):
    whole, part = (make_gemm((m, 128, 128), epilogue=epilogue) for m in (128, rows))
    made = high_precision(whole)
    expected = by("numpy", whole, gemm_ordered.inputs(whole, **made))
    tensors = gemm_ordered.inputs(part, made["a"][:rows], made["b"])
    assert tensors["a_scale_inv"].shape == (128, 8)
    assert not tensors["a_scale_inv"][rows:].any()
    np.testing.assert_array_equal(by("numpy", part, tensors), expected[:rows])


@BOTH
@pytest.mark.parametrize("amax", [1.0, 3.0])
def test_fused_with_unit_vectors_is_the_plain_kernel(make_gemm, amax, ask):
    fused, plain = (make_gemm((128, 256, 128), epilogue=name) for name in ("per_token_fused", "per_token"))
    tensors = drawn(fused)
    tensors |= {name: np.full_like(tensors[name], amax) for name in ("a_amax", "b_amax")}
    same = bits(by(ask, fused, tensors)) == bits(by(ask, plain, tensors))
    assert same.all() == (amax == 1)


@BOTH
def test_sums_of_exact_sum_are_exact(make_gemm, ask):
    case = make_gemm((16, 16384, 16), "exact_sum", dtype="fp32")
    tensors = drawn(case)
    values = [nvfp4.decode_e2m1(nvfp4.unpack(tensors[f"{name}_data"])).astype(np.float64) for name in "ab"]
    assert {len(np.unique(v)) for v in values} == {15}
    scales = [nvfp4.decode_e4m3(tensors[f"{name}_scale_inv"][:16]).astype(np.float64) for name in "ab"]
    assert {frozenset(np.unique(s).tolist()) for s in scales} == {frozenset({1.0, 2.0})}
    a, b = (v * s.repeat(16, axis=1) for v, s in zip(values, scales, strict=True))
    assert (4 * np.abs(a) @ np.abs(b).T).max() < 2**24
    alpha = (tensors["a_amax"] * tensors["b_amax"]) * C_AB
    np.testing.assert_array_equal(by(ask, case, tensors), alpha * (a @ b.T).astype(F32))


def test_wide_sum_leaves_nothing_but_roundings_in_every_other_row(make_gemm):
    case = make_gemm((6, 96, 16), "wide_sum", dtype="fp32")
    tensors = drawn(case)
    a, b = (
        torch_gemm.values(case, {k: torch.from_numpy(v) for k, v in tensors.items()}, name).numpy() for name in "ab"
    )
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    given = by("numpy", case, tensors)
    assert not exact[::2].any()
    assert (exact[1::2] != 0).all()
    assert np.mean(given[::2] != 0) > 0.25
    scale_bytes = drawn(make_gemm((256, 1024, 16), "wide_sum"))["a_scale_inv"]
    assert set(np.unique(scale_bytes)) == set(range(0x7F))


def test_exact_sum_has_amaxes_that_show_in_every_epilogue(make_gemm):
    for epilogue, counts in (("per_tensor", (1, 1)), ("row_scaled", (128, 256)), ("per_token", (128, 256))):
        tensors = drawn(make_gemm((128, 128, 256), "exact_sum", epilogue=epilogue))
        for name, count in zip("ab", counts, strict=True):
            assert np.unique(tensors[f"{name}_amax"]).size == count
            assert (np.frexp(tensors[f"{name}_amax"])[0] != 0.5).all()
        assert (bits(tensors["a_amax"])[0] != bits(tensors["b_amax"])[0]).all()


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_close_to_the_product_of_what_was_quantized(make_gemm, flags):
    """A property, not a byte check: relative L2 below 0.30 of the float64 product, as published."""
    neutral = {"alpha": 1, "beta": 0, "bias": False, "accumulate": False}
    case = make_gemm((128, 512, 256), **{**flags, **neutral})
    made = high_precision(case)
    given = by("numpy", case, gemm_ordered.inputs(case, **made)).astype(np.float64)
    a = made["a"].astype(np.float64).T if case.flags.layout == "nt" else made["a"].astype(np.float64)
    b = made["b"].astype(np.float64) if case.flags.layout == "tn" else made["b"].astype(np.float64).T
    exact = a @ b.T
    assert 0.01 < np.linalg.norm(given - exact) / np.linalg.norm(exact) < 0.30


UNIT_VECTORS = [
    {"epilogue": "row_scaled"},
    {"epilogue": "row_scaled", "b_granularity": "tensor"},
    {"epilogue": "per_token_fused"},
]


def products_by_unit_amaxes(make_gemm, recipe, flags, output):
    """The output with one amax of 1 for each operand, and with amaxes of 1 for the lines of these operands."""
    one = make_gemm((80, 128, 48), recipe=recipe, dtype="fp32")
    by_lines = make_gemm((80, 128, 48), recipe=recipe, dtype="fp32", **flags)
    tensors = drawn(one) | {"a_amax": np.ones(1, F32), "b_amax": np.ones(1, F32)}
    columns = 1 if "b_granularity" in flags else 48
    vectors = tensors | {"a_amax": np.ones(80, F32), "b_amax": np.ones(columns, F32)}
    return output(one, tensors), output(by_lines, vectors)


@BOTH
@pytest.mark.parametrize("flags", UNIT_VECTORS, ids=lambda flags: "-".join(flags.values()))
def test_unit_vectors_give_the_product_of_one_amax(make_gemm, ask, flags):
    """Pull request 3045 asserts it of its fused product, bit for bit."""
    whole, vectors = products_by_unit_amaxes(make_gemm, "gemm_ordered", flags, lambda *asked: by(ask, *asked))
    np.testing.assert_array_equal(bits(np.asarray(whole)), bits(np.asarray(vectors)))
    assert np.unique(np.asarray(whole)).size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["gemm", "gemm_ordered"])
@pytest.mark.parametrize("flags", UNIT_VECTORS, ids=lambda flags: "-".join(flags.values()))
def test_kernels_give_the_product_of_one_amax_by_unit_vectors(make_gemm, recipe, flags):
    whole, vectors = products_by_unit_amaxes(
        make_gemm, recipe, flags, lambda *asked: output_of(asked[0], "sm_90a", asked[1])
    )
    np.testing.assert_array_equal(bits(whole), bits(vectors))
