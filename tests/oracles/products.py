"""Helpers of the GEMM tests: operands by hand and drawn, and flags that reach every step of both oracles."""

from __future__ import annotations

import numpy as np
import quantized

from harness.expected.expected import high_precision, oracle_of
from harness.oracles import layout, nvfp4

BOTH = quantized.BOTH

FLAGS = [
    {},
    {"dtype": "fp32", "layout": "nn", "a_scale_layout": "swizzled", "alpha": -2, "beta": 0.5},
    {"layout": "nt", "b_scale_layout": "swizzled", "a_e4m3_max": 288, "beta": 1},
    {"dtype": "fp32", "b_e4m3_max": 256, "alpha": 0.75},
    {"epilogue": "row_scaled", "layout": "nt", "bias": True},
    {"epilogue": "row_scaled", "dtype": "fp32", "a_e4m3_max": 256, "b_e4m3_max": 256, "accumulate": True},
    {"epilogue": "row_scaled", "layout": "nn", "b_granularity": "tensor", "b_e4m3_max": 256, "bias": True},
    {"a_dtype": "fp32", "b_dtype": "fp16", "layout": "nn", "a_e4m3_max": 320},
    {"epilogue": "row_scaled", "a_dtype": "fp16", "b_dtype": "fp32", "layout": "nt"},
    {"epilogue": "per_token", "layout": "nn", "a_scale_layout": "swizzled"},
    {"epilogue": "per_token", "layout": "nt"},
    {"epilogue": "per_token_fused", "b_scale_layout": "swizzled"},
    {"epilogue": "windows", "dtype": "fp32"},
    {"epilogue": "windows", "layout": "nt", "a_scale_layout": "swizzled", "b_dtype": "fp32"},
    {"epilogue": "per_token_fused", "layout": "nt", "dtype": "fp32", "accumulate": True},
    {"epilogue": "per_token_fused", "bias": True},
    {"alpha": 0.75, "beta": 1, "bias": True},
]


def by(ask, case, tensors):
    """The output that one oracle expects."""
    return quantized.by(ask, case, tensors)["output"]


def drawn(case):
    """The arrays that the kernel reads, from the case's own input."""
    return oracle_of(case.recipe).inputs(case, **high_precision(case))


def operand(name, codes, scales, amax):
    """The arrays of an operand: codes (lines, K), scale bytes (lines, K/16), amax as given."""
    return {
        f"{name}_data": nvfp4.pack(np.array(codes, np.uint8)),
        f"{name}_scale_inv": layout.arrange(np.array(scales, np.uint8), "compact"),
        f"{name}_amax": np.array(amax, np.float32),
    }


def shape_of(flags):
    """An (M, K, N) that these flags take."""
    if flags.get("epilogue") == "windows":
        return 64, 192, 128
    return (128, 128, 256) if "per_token" in flags.get("epilogue", "") else (48, 80, 32)
