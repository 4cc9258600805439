"""What every oracle test needs: cases without a suite, and tensors with full mantissas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from harness.contract.case import Case, Flags
from harness.contract.group_shape import GroupedShape
from harness.contract.problem import Dense, Gemm, Grouped
from harness.oracles import nvfp4
from harness.suite.suite import suite_of

DEFAULTS = {
    "per_tensor": {
        "dtype": "bf16",
        "block": "block_1x16",
        "outputs": "both",
        "rht": False,
        "rounding": "rne",
        "scale_layout": "compact",
        "fast_math": False,
        "stage": "full",
        "sign_mask": 0xD7E8,
    },
    "row_scaled": {
        "dtype": "bf16",
        "outputs": "rowwise",
        "scale_layout": "compact",
        "stage": "full",
        "block": "block_1x16",
        "rht": False,
        "rounding": "rne",
    },
    "local_1x64": {
        "dtype": "bf16",
        "outputs": "both",
        "multiplier": "direct",
        "scale_layout": "compact",
        "block": "block_1x16",
        "rht": False,
        "rounding": "rne",
    },
    "four_over_six": {
        "dtype": "bf16",
        "outputs": "both",
        "block": "block_1x16",
        "error": "mae",
        "e4m3_max": 256,
        "error_math": "exact",
        "row_scaled": False,
        "stage": "full",
        "scale_layout": "compact",
        "rht": False,
        "rounding": "rne",
    },
    "per_token": {
        "dtype": "bf16",
        "outputs": "both",
        "rht": False,
        "rounding": "rne",
        "scale_layout": "compact",
        "weight_2d": False,
        "stage": "full",
        "sign_mask": 0xACE1,
    },
    "dequantize": {
        "dtype": "bf16",
        "scale_layout": "compact",
        "block": "block_1x16",
        "granularity": "tensor",
        "e4m3_max": 448,
    },
    "grouped": {
        "recipe": "per_tensor",
        "dtype": "bf16",
        "shape_representation": "varying_first_dim",
        "outputs": "both",
        "rht": False,
        "rounding": "rne",
        "scale_layout": "compact",
        "stage": "full",
        "activation": "none",
        "dbias": False,
    },
    "swizzle": {"direction": "rowwise"},
    "gemm_ordered": {
        "epilogue": "per_tensor",
        "dtype": "bf16",
        "layout": "tn",
        "a_scale_layout": "compact",
        "b_scale_layout": "compact",
        "a_e4m3_max": 448,
        "b_e4m3_max": 448,
        "b_granularity": "row",
        "alpha": 1,
        "beta": 0,
        "bias": False,
        "accumulate": False,
    },
}

DEFAULTS["gemm"] = {**DEFAULTS["gemm_ordered"], "route": "mma"}

DENSE_DEFAULTS = {recipe: suite_of(recipe).defaults for recipe in ("per_tensor", "per_token")}

MakeCase = Callable[..., Case]


@pytest.fixture
def make_case() -> MakeCase:
    """`make_case(recipe, rows, cols, input="normal", **flags)`: the recipe's default flags but for `flags`."""

    def make(recipe: str, rows: int, cols: int, input: str = "normal", **flags: object) -> Case:
        defaults = Flags(DEFAULTS[recipe])
        return Case(recipe, defaults.replace(**flags), Dense(rows, cols), input, defaults=defaults)

    return make


@pytest.fixture
def make_group() -> MakeCase:
    """`make_group("128+0+256x512", input="normal", **flags)`: a grouped case, by default of varying_first_dim."""

    def make(shape: str, input: str = "normal", **flags: object) -> Case:
        defaults = Flags(DEFAULTS["grouped"])
        flags = defaults.replace(**flags)
        group = GroupedShape.parse(shape)
        problem = Grouped(*group.logical(flags.shape_representation), group.tensors)
        return Case("grouped", flags, problem, input, defaults=defaults, dense_defaults=DENSE_DEFAULTS)

    return make


@pytest.fixture
def make_gemm() -> MakeCase:
    """`make_gemm((M, K, N), input="normal", recipe="gemm_ordered", **flags)`: a case of two operands."""

    def make(shape: tuple[int, int, int], input: str = "normal", recipe: str = "gemm_ordered", **flags: object) -> Case:
        defaults = Flags(DEFAULTS[recipe])
        return Case(recipe, defaults.replace(**flags), Gemm(*shape), input, defaults=defaults)

    return make


@pytest.fixture
def tensor() -> Callable[..., np.ndarray]:
    """`tensor(rows, cols, dtype="bf16")`: normal values whose blocks span a few binades."""

    def make(rows: int, cols: int, dtype: str = "bf16") -> np.ndarray:
        rng = np.random.default_rng([rows, cols])
        spread = np.exp2(rng.integers(-6, 3, (rows, cols // nvfp4.BLOCK))).repeat(nvfp4.BLOCK, axis=1)
        return (rng.standard_normal((rows, cols)) * spread).astype(nvfp4.DTYPES[dtype])

    return make
