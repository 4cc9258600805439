"""Fixtures of the oracle tests: cases by flags, and tensors with full mantissas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from harness.contract.case import Case
from harness.contract.group_shape import GroupedShape
from harness.contract.problem import Dense, Gemm, Grouped
from harness.oracles import nvfp4
from harness.suite.suite import suite_of

DENSE_DEFAULTS = suite_of("grouped").dense_defaults

MakeCase = Callable[..., Case]


@pytest.fixture
def make_case() -> MakeCase:
    """`make_case(recipe, rows, cols, input="normal", **flags)`: the recipe's default flags but for `flags`."""

    def make(recipe: str, rows: int, cols: int, input: str = "normal", **flags: object) -> Case:
        defaults = suite_of(recipe).defaults
        return Case(recipe, defaults.replace(**flags), Dense(rows, cols), input, defaults=defaults)

    return make


@pytest.fixture
def make_group() -> MakeCase:
    """`make_group("128+0+256x512", input="normal", **flags)`: a grouped case, by default of varying_first_dim."""

    def make(shape: str, input: str = "normal", **flags: object) -> Case:
        defaults = suite_of("grouped").defaults
        flags = defaults.replace(**flags)
        group = GroupedShape.parse(shape)
        problem = Grouped(*group.logical(flags.shape_representation), group.tensors, group.capacity, group.splits_by)
        return Case("grouped", flags, problem, input, defaults=defaults, dense_defaults=DENSE_DEFAULTS)

    return make


@pytest.fixture
def make_gemm() -> MakeCase:
    """`make_gemm((M, K, N), input="normal", recipe="gemm_ordered", **flags)`: a case of two operands."""

    def make(shape: tuple[int, int, int], input: str = "normal", recipe: str = "gemm_ordered", **flags: object) -> Case:
        defaults = suite_of(recipe).defaults
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
