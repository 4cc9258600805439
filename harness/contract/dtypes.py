"""The dtypes of high-precision tensors, `bf16`, `fp16` and `fp32`, and roundings to them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}
MANTISSA_BITS = {"bf16": 7, "fp16": 10, "fp32": 23}
LARGEST = {name: np.float32(ml_dtypes.finfo(dtype).max) for name, dtype in DTYPES.items()}


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Round values to the nearest even of `dtype`; values already in it keep their bits, NaN payloads too."""
    if values.dtype == DTYPES[dtype]:
        return np.ascontiguousarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values.astype(np.float32, copy=False).astype(DTYPES[dtype]))


def unsigned(dtype: str) -> np.dtype:
    """Unsigned integer type as wide as `dtype`, to view its bits."""
    return np.dtype(f"u{DTYPES[dtype].itemsize}")


def moved(positive: np.ndarray, ulps: np.ndarray) -> np.ndarray:
    """Move each positive finite value by its number of ulps of its own dtype."""
    bits = np.dtype(f"i{positive.itemsize}")
    return (positive.view(bits) + ulps.astype(bits)).view(positive.dtype)
