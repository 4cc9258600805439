"""The types a high-precision tensor may have, `bf16`, `fp16` and `fp32`, and roundings to them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}
MANTISSA_BITS = {"bf16": 7, "fp16": 10, "fp32": 23}
LARGEST = {name: np.float32(ml_dtypes.finfo(dtype).max) for name, dtype in DTYPES.items()}


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """`values` in `dtype`, nearest-even; values that already are of that dtype keep their bits, NaN payloads too."""
    if values.dtype == DTYPES[dtype]:
        return np.ascontiguousarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values.astype(np.float32, copy=False).astype(DTYPES[dtype]))


def unsigned(dtype: str) -> np.dtype:
    """The unsigned integers as wide as `dtype`, to see its bits."""
    return np.dtype(f"u{DTYPES[dtype].itemsize}")


def moved(positive: np.ndarray, ulps: np.ndarray) -> np.ndarray:
    """Positive finite values, each moved by its number of ulps of their own dtype."""
    bits = np.dtype(f"i{positive.itemsize}")
    return (positive.view(bits) + ulps.astype(bits)).view(positive.dtype)
