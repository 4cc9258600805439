"""Refusals of a GEMM: each sentence names the operand and the field."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from products import drawn
from quantized import assert_arrays_refused, assert_refused

from harness.contract.field import QuantizedTensor
from harness.errors import ContractError
from harness.expected.expected import high_precision
from harness.oracles import gemm, gemm_operands, gemm_ordered

F32 = np.float32
SHAPE = (48, 80, 32)


def quantized(case, name):
    return gemm_operands.quantize(case, name, high_precision(case)[name])


def assert_bind_refused(case, name, tensor, sentence):
    """Instead of the operand that the case wants, a tensor that it does not."""
    operands = {side: quantized(case, side) for side in "ab"} | {name: tensor}
    with pytest.raises(ContractError, match=sentence):
        gemm_operands.bind(case, **operands)


# --- flags and extents ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "flags", "sentence"),
    [
        ((48, 72, 32), {}, "K of A and B must be a positive multiple of 16, not 72"),
        ((48, 0, 32), {}, "K of A and B must be a positive multiple of 16, not 0"),
        ((48, 80, 24), {}, "N of B must be a positive multiple of 16, not 24"),
        ((0, 80, 32), {}, "M of A must be a positive multiple of 1, not 0"),
        ((20, 80, 32), {"layout": "nt"}, "M of A must be a positive multiple of 16, not 20"),
        ((1, 72, 128), {"epilogue": "per_token"}, "K of A and B must be a positive multiple of 16, not 72"),
        ((1, 128, 24), {"epilogue": "per_token_fused"}, "N of B must be a positive multiple of 16, not 24"),
        ((20, 128, 128), {"epilogue": "per_token", "layout": "nt"}, "M of A must be a positive multiple of 16, not 20"),
        ((1, 96, 64), {"epilogue": "windows"}, "K of A and B must be a positive multiple of 64, not 96"),
        ((1, 64, 64), {"epilogue": "windows", "bias": True}, "bias must be false, not true: the epilogue windows"),
        ((1, 64, 64), {"epilogue": "windows", "a_e4m3_max": 256}, "a_e4m3_max must be 448, not 256: .* has no windows"),
        (SHAPE, {"epilogue": "per_channel"}, "epilogue must be per_tensor, .*, not per_channel"),
        (SHAPE, {"layout": "tt"}, "layout must be tn, nn, nt, not tt"),
        (SHAPE, {"a_e4m3_max": 240}, "a_e4m3_max must be 256, 288, 320 or 448, not 240"),
        (SHAPE, {"b_e4m3_max": 480}, "b_e4m3_max must be 256, 288, 320 or 448, not 480"),
        (SHAPE, {"epilogue": "row_scaled", "alpha": 0.75}, "alpha must be 1, not 0.75: the epilogue row_scaled"),
        (SHAPE, {"epilogue": "row_scaled", "beta": 1}, "beta must be 0, not 1: the epilogue row_scaled"),
        (SHAPE, {"gelu": True}, "gelu must be false, not true: the epilogue per_tensor"),
        (SHAPE, {"accumulate": True}, "accumulate must be false, not true: the epilogue per_tensor"),
        (SHAPE, {"b_granularity": "tensor"}, "b_granularity must be row, not tensor: the epilogue per_tensor"),
        ((1, 128, 128), {"epilogue": "per_token", "alpha": -2}, "alpha must be 1, not -2: the epilogue per_token"),
        ((1, 128, 128), {"epilogue": "per_token_fused", "beta": 0.5}, "beta must be 0, not 0.5"),
        ((1, 128, 128), {"epilogue": "per_token", "bias": True}, "bias must be false"),
        ((1, 128, 128), {"epilogue": "per_token", "accumulate": True}, "accumulate must be false"),
        ((1, 128, 128), {"epilogue": "per_token_fused", "b_dtype": "fp32"}, "b_dtype must be bf16, not fp32"),
        (SHAPE, {"a_dtype": "fp8"}, "a_dtype must be bf16, fp16, fp32, not fp8"),
        (
            (1, 128, 128),
            {"epilogue": "per_token_fused", "accumulate": True},
            "dtype must be fp32, not bf16: a gradient is accumulated in fp32",
        ),
        (
            (1, 128, 128),
            {"epilogue": "per_token_fused", "dtype": "fp32", "accumulate": True, "bias": True},
            "bias must be false, not true: a bias goes forward",
        ),
        ((1, 128, 128), {"epilogue": "per_token", "dtype": "fp32"}, "dtype must be bf16, not fp32"),
        ((1, 128, 128), {"epilogue": "per_token", "a_e4m3_max": 256}, "a_e4m3_max must be 448, not 256"),
        ((1, 128, 128), {"epilogue": "per_token_fused", "b_e4m3_max": 256}, "b_e4m3_max must be 448, not 256"),
        (
            SHAPE,
            {"epilogue": "row_scaled", "layout": "nt", "a_e4m3_max": 256},
            "a_e4m3_max must be 448, not 256: .* layout nt reads the columns of A",
        ),
        (
            SHAPE,
            {"epilogue": "row_scaled", "layout": "nn", "b_e4m3_max": 256},
            "b_e4m3_max must be 448, not 256: .* layout nn reads the columns of B",
        ),
    ],
    ids=str,
)
def test_flags_and_extents_that_no_two_tensors_have(make_gemm, shape, flags, sentence):
    for oracle in (gemm_ordered, gemm):
        case = make_gemm(shape, recipe=oracle.__name__.rpartition(".")[2], **flags)
        assert_refused(oracle, case, sentence, np.zeros(0), np.zeros(0))


def test_a_route_that_no_kernel_takes(make_gemm):
    case = make_gemm(SHAPE, recipe="gemm", route="wgmma")
    assert_refused(gemm, case, "route must be mma, library, fastest, not wgmma", np.zeros(0), np.zeros(0))


def test_a_sum_that_is_too_long_to_be_exact(make_gemm):
    case = make_gemm((16, 16400, 16), "exact_sum")
    with pytest.raises(ContractError, match="K of A and B must be at most 16384 for exact_sum, not 16400"):
        gemm_ordered.outputs(case)


# --- operands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "name", "has", "misses"),
    [
        ("nn", "b", "tn", "columnwise_data"),
        ("nt", "a", "nn", "columnwise_data"),
        ("tn", "b", "nn", "rowwise_data"),
        ("nn", "a", "nt", "rowwise_data"),
    ],
)
def test_a_layout_whose_copy_is_not_there(make_gemm, layout, name, has, misses):
    case = make_gemm((32, 32, 32), layout=layout)
    other = quantized(make_gemm((32, 32, 32), layout=has), name)
    sentence = f"operand {name.upper()} has no {misses}, which layout {layout} reads; it has "
    assert_bind_refused(case, name, other, sentence)


@pytest.mark.parametrize(
    ("flags", "name", "recipe", "right"),
    [
        ({}, "a", "local_1x64", "per_tensor or four_over_six"),
        ({"epilogue": "windows"}, "b", "per_token", "local_1x64"),
        ({}, "b", "per_token", "per_tensor or four_over_six"),
        ({}, "a", "row_scaled", "per_tensor or four_over_six"),
        ({"epilogue": "row_scaled"}, "b", "per_tensor", "row_scaled or four_over_six"),
        ({"epilogue": "row_scaled"}, "b", "per_token", "row_scaled or four_over_six"),
        ({"epilogue": "row_scaled", "b_granularity": "tensor"}, "b", "row_scaled", "per_tensor or four_over_six"),
        ({"epilogue": "per_token"}, "a", "per_tensor", "per_token"),
        ({"epilogue": "per_token_fused"}, "b", "row_scaled", "per_token"),
    ],
    ids=str,
)
def test_recipes_that_do_not_mix(make_gemm, flags, name, recipe, right):
    case = make_gemm((128, 128, 128), **flags)
    wrong = replace(quantized(case, name), recipe=recipe)
    sentence = f"operand {name.upper()} was quantized by {recipe}; with the epilogue .* it must be by {right}$"
    assert_bind_refused(case, name, wrong, sentence)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"granularity": "row"}, "has the amax granularity row; this GEMM reads tensor"),
        ({"e4m3_max": 256}, "has the e4m3_max 256; this GEMM reads 448"),
        ({"scale_layout": "swizzled"}, "has the scale layout swizzled; this GEMM reads compact"),
        ({"cols": 96}, "has the K 96; this GEMM reads 80"),
        ({"rows": 16}, r"has the [MN] 16; this GEMM reads \d+"),
    ],
    ids=str,
)
def test_metadata_that_is_not_the_cases(make_gemm, name, change, sentence):
    case = make_gemm(SHAPE)
    assert_bind_refused(case, name, replace(quantized(case, name), **change), f"operand {name.upper()} {sentence}")


def test_four_over_six_comes_with_either_bound(make_gemm):
    case = make_gemm(SHAPE, a_e4m3_max=256)
    tensor = quantized(case, "a")
    assert (tensor.recipe, tensor.e4m3_max) == ("four_over_six", 256)
    other = make_gemm(SHAPE)
    full = QuantizedTensor(**{**vars(tensor), "e4m3_max": 448})
    assert (
        gemm_operands.bind(other, full, quantized(other, "b")).keys()
        == gemm_operands.inputs(other, **high_precision(other)).keys()
    )


def test_a_tensor_of_other_extents_than_the_operand(make_gemm):
    case = make_gemm(SHAPE)
    made = high_precision(case)
    with pytest.raises(ContractError, match=r"operand B has the shape \(80, 32\), which is not its case's"):
        gemm_ordered.inputs(case, made["a"], made["b"].T)


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "name", "shape", "sentence"),
    [
        ({}, "a_amax", (48,), r"amax of operand A must have the shape \(1,\), one amax per tensor, not \(48,\)"),
        ({}, "b_amax", (48,), r"amax of operand B must have the shape \(1,\), one amax per tensor"),
        ({"epilogue": "row_scaled"}, "a_amax", (1,), r"amax of operand A .* \(48,\), one amax per row, not \(1,\)"),
        ({"epilogue": "row_scaled"}, "b_amax", (48,), r"amax of operand B .* \(32,\), one amax per row"),
        ({"epilogue": "row_scaled", "b_granularity": "tensor"}, "b_amax", (32,), r"amax of operand B .* \(1,\)"),
        ({}, "a_data", (48, 32), r"data of operand A must have the shape \(48, 40\), not \(48, 32\)"),
        ({}, "b_data", (48, 40), r"data of operand B must have the shape \(32, 40\)"),
        ({}, "a_scale_inv", (48, 5), r"scale_inv of operand A must have the shape \(128, 8\)"),
        ({}, "b_scale_inv", (128, 5), r"scale_inv of operand B must have the shape \(128, 8\)"),
        ({"beta": 1, "dtype": "fp32"}, "c", (32, 48), r"c must have the shape \(48, 32\), not \(32, 48\)"),
        ({"epilogue": "row_scaled", "bias": True, "dtype": "fp32"}, "bias", (48,), r"bias must have the shape \(32,\)"),
    ],
    ids=str,
)
def test_an_array_of_another_shape(make_gemm, flags, name, shape, sentence):
    case = make_gemm(SHAPE, **flags)
    tensors = drawn(case)
    assert_arrays_refused(case, tensors | {name: np.ones(shape, tensors[name].dtype)}, sentence)
    left = {key: array for key, array in tensors.items() if key != name}
    assert_arrays_refused(case, left, "is missing; it must have the shape")


@pytest.mark.parametrize("name", ["c", "bias"])
def test_nothing_that_is_given_is_ignored(make_gemm, name):
    case = make_gemm(SHAPE)
    tensors = drawn(case) | {name: np.ones((48, 32) if name == "c" else 32, F32)}
    assert_arrays_refused(case, tensors, f"{name} is given, and no flag asks for it")


# --- products of amaxes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "a", "b"), [(1, 1e20, 1e20), (-2, 2e38, 1.0), (0.75, 3e38, 2.0)])
def test_an_alpha_that_overflows(make_gemm, alpha, a, b):
    case = make_gemm(SHAPE, alpha=alpha)
    tensors = drawn(case) | {"a_amax": np.array([a], F32), "b_amax": np.array([b], F32)}
    sentence = rf"alpha = {alpha} times amax {F32(a):g} of operand A times amax {F32(b):g} of operand B overflows"
    assert_arrays_refused(case, tensors, sentence.replace("+", r"\+"))


def test_a_row_of_amaxes_that_overflows_under_the_one_amax_of_b(make_gemm):
    case = make_gemm(SHAPE, epilogue="row_scaled", b_granularity="tensor")
    tensors = drawn(case) | {"b_amax": np.array([1e30], F32)}
    tensors["a_amax"][7] = 1e20
    assert_arrays_refused(case, tensors, r"amax 1e\+20 of operand A, row 7, times amax 1e\+30 of operand B overflows")


def test_inputs_whose_alpha_overflows(make_gemm):
    case = make_gemm(SHAPE, "huge")
    with pytest.raises(ContractError, match="of operand A times amax .* of operand B overflows float32"):
        drawn(case)


def test_an_infinite_amax_is_no_overflow(make_gemm):
    case = make_gemm(SHAPE, "specials_inf")
    tensors = drawn(case)
    assert np.isinf(tensors["a_amax"]).all()
    gemm_ordered.numpy_oracle(case, tensors)
