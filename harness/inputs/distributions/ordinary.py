"""Tensors as layers have them: normal values, outliers, and ranges of magnitudes."""

from __future__ import annotations

import numpy as np

from harness.contract.dtypes import LARGEST
from harness.inputs.distributions.tiles import one_in_499

F32 = np.float32


def normal(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Standard normal values: what most elements of most layers look like."""
    return rng.standard_normal((rows, cols), F32)


def outliers_rows(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with one row in 64 fifty times larger: tokens that attend to nothing; columnwise blocks mix both."""
    x = normal(rng, rows, cols, dtype)
    x[_one_in_64(rng, rows)] *= F32(50)
    return x


def outliers_cols(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with one column in 64 fifty times larger: outlier features; rowwise blocks mix both."""
    x = normal(rng, rows, cols, dtype)
    x[:, _one_in_64(rng, cols)] *= F32(50)
    return x


def outlier_spike(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Small normal values and a single 60,000: nearly every other block scale falls to the subnormals of e4m3."""
    x = normal(rng, rows, cols, dtype) / 4
    x[rng.integers(rows), rng.integers(cols)] = 60_000
    return x


def spike_1e6(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with one element in 499 at ±1e6 (fp16: ±65,504): with one amax, other scales are 0 or the smallest."""
    x = normal(rng, rows, cols, dtype)
    few = one_in_499(rng, rows, cols)
    x[few] = np.copysign(np.minimum(F32(1e6), LARGEST[dtype]), x[few])
    return x


def row_scales(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal rows, each times its own power of two from 2^-20 to 2^20 (fp16: 2^-10 to 2^10), both ends among them."""
    largest = 10 if dtype == "fp16" else 20
    exponents = rng.integers(-largest, largest, rows, endpoint=True)
    exponents[rng.permutation(rows)[:2]] = [-largest, largest][: min(2, rows)]
    return np.ldexp(normal(rng, rows, cols, dtype), exponents[:, None])


def window_scales(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal, each 1x64 window of a row times its own factor from 1/32 to 4: two orders that e4m3 scales span."""
    shape = rows, -(-cols // 64)
    factors = np.ldexp(rng.uniform(1, 2, shape).astype(F32), rng.integers(-5, 1, shape, endpoint=True))
    return normal(rng, rows, cols, dtype) * factors.repeat(64, axis=1)[:, :cols]


def heavy_tail(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Log-normal magnitudes over some ten binades within every block: most codes are 0, few are large."""
    x = normal(rng, rows, cols, dtype)
    x *= np.exp(2 * normal(rng, rows, cols, dtype))
    return np.clip(x, -60_000, 60_000)


def _one_in_64(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.permutation(count)[: max(1, count // 64)]
