"""From the sum of a GEMM to its output: NUMERICS 10.3 in NumPy. Float32; RN marks every rounding, to nearest even.

  per_tensor       1. alpha' = RN(RN(RN(alpha * a) * b) * C_AB)   2. out = RN(alpha' * acc)
                   3. beta ≠ 0: out = fma(beta, C, out); beta = 0 reads no C   4. bias: out = RN(out + bias_j)
                   5. D = cast(out)
  row_scaled       1. out = RN(C_AB * acc)   2. out = RN(RN(out * a_i) * b_j); one amax of B: RN(out * RN(a_i * b))
                   3. bias: out = RN(out + bias_j)   4. D = cast(out)   5. accumulate: D = cast(RN(D + C))
  windows          1. D = cast(RN(C_AB * acc)); the amaxes are in acc
  per_token        1. d = bf16(RN(C_AB * acc))   2. D = bf16(RN(RN(d * a_i) * b_j)), by a kernel of its own
  per_token_fused  1. out = RN(C_AB * RN(b_j * RN(a_i * acc)))   2. bias: out = RN(out + bias_j)
                   3. D = cast(out)   4. accumulate: D = cast(RN(D + C))
C_AB = RN(1 / (36 * E_A * E_B)); a_i and b_j are the amaxes of row i of A and row j of B. A cast f32→bf16 rounds to
nearest even.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.contract.case import Case
from harness.oracles import nvfp4


@nvfp4.ieee
def output(case: Case, tensors: Mapping[str, np.ndarray], rows: slice, acc: np.ndarray) -> np.ndarray:
    """Some rows of D in the case's dtype, from the same rows of the sum, (rows, N) float32."""
    flags = case.flags
    c_ab = nvfp4.ONE / np.float32(nvfp4.E2M1_MAX**2 * flags.a_e4m3_max * flags.b_e4m3_max)
    if flags.epilogue == "per_tensor":
        scale = ((np.float32(flags.alpha) * tensors["a_amax"]) * tensors["b_amax"]) * c_ab
        out = scale * acc
        if flags.beta != 0:
            out = fma(np.float32(flags.beta), tensors["c"][rows].astype(np.float32), out)
        return nvfp4.convert(_biased(case, tensors, out), flags.dtype)
    if flags.epilogue == "windows":
        return nvfp4.convert(c_ab * acc, flags.dtype)
    a, b = tensors["a_amax"][rows, None], tensors["b_amax"]
    if flags.epilogue == "per_token":
        d = nvfp4.bf16(c_ab * acc)  # 1
        return nvfp4.convert((d * a) * b, "bf16")  # 2
    if flags.epilogue == "per_token_fused":
        out = c_ab * (b * (a * acc))
    else:
        out = c_ab * acc
        out = out * (a * b) if flags.b_granularity == "tensor" else (out * a) * b
    d = nvfp4.convert(_biased(case, tensors, out), flags.dtype)
    if not flags.accumulate:
        return d
    return nvfp4.convert(d.astype(np.float32) + tensors["c"][rows].astype(np.float32), flags.dtype)


def _biased(case: Case, tensors: Mapping[str, np.ndarray], out: np.ndarray) -> np.ndarray:
    return out + tensors["bias"].astype(np.float32) if case.flags.bias else out


@nvfp4.ieee
def fma(x: np.float32, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """RN(x * y + z) in float32, rounded once.

    The product is exact in float64. The sum is rounded to odd there: toward zero, with its last bit set if anything was
    lost, so that the cast to float32 rounds as if it saw every bit.
    """
    product, z = np.float64(x) * y, z.astype(np.float64)
    near = product + z
    part = near - product
    lost = (product - (near - part)) + (z - part)
    inexact = (lost != 0) & np.isfinite(near)
    beyond = inexact & (np.signbit(lost) != np.signbit(near))
    toward_zero = np.where(beyond, np.nextafter(near, 0), near)
    return (toward_zero.view(np.int64) | inexact).view(np.float64).astype(np.float32)
