"""What every oracle test needs: cases without a suite, and tensors with full mantissas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from harness.case import Case, Flags
from harness.oracles import nvfp4

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
    "dequantize": {
        "dtype": "bf16",
        "scale_layout": "compact",
        "block": "block_1x16",
        "granularity": "tensor",
        "e4m3_max": 448,
    },
    "swizzle": {"direction": "rowwise"},
}

MakeCase = Callable[..., Case]


@pytest.fixture
def make_case() -> MakeCase:
    """`make_case(recipe, rows, cols, input="normal", **flags)`: the recipe's default flags but for `flags`."""

    def make(recipe: str, rows: int, cols: int, input: str = "normal", **flags: object) -> Case:
        defaults = Flags(DEFAULTS[recipe])
        return Case(recipe, defaults.replace(**flags), rows, cols, input, defaults=defaults)

    return make


@pytest.fixture
def tensor() -> Callable[..., np.ndarray]:
    """`tensor(rows, cols, dtype="bf16")`: normal values whose blocks span a few binades."""

    def make(rows: int, cols: int, dtype: str = "bf16") -> np.ndarray:
        rng = np.random.default_rng([rows, cols])
        spread = np.exp2(rng.integers(-6, 3, (rows, cols // nvfp4.BLOCK))).repeat(nvfp4.BLOCK, axis=1)
        return (rng.standard_normal((rows, cols)) * spread).astype(nvfp4.DTYPES[dtype])

    return make
