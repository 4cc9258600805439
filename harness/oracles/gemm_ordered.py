"""gemm_ordered: D (M, N) = A (M, K) * B (N, K)^T of two NVFP4 tensors, summed in a stated order. NUMERICS section 10.

Float32; RN marks every rounding, to nearest even. For each element (i, j) of the output:
  1. acc = +0
  2. for each 16-block k from first to last: acc = RN(acc + p), p = f32(sa * sb) * dot
     sa and sb are the block's scales of row i of A and row j of B, of `scale_format`; dot is the sum of the products of
     its 16 pairs of codes. sa * sb has 8 significant bits and dot is a multiple of 1/4 up to 576, so p is exact.
     epilogue windows: for each window of 64 from first to last: s = the sum of its four blocks by step 2,
     acc = RN(acc + RN(RN(a_iw * b_jw) * s)), a_iw and b_jw being the amaxes of the window
  3. D = epilogue(acc), see below                  f32→bf16 rounds to nearest even; overflow gives inf
A NaN scale byte (0x7F, 0xFF; of ue5m3 0xFF) makes its row or column of the output NaN, also where the codes are 0. A
NaN is stored as 0x7FFF in bf16 and 0x7FFFFFFF in fp32. acc is never -0, so a zero has the sign of what multiplies it.

The epilogues of every GEMM, 10.3:
  per_tensor       1. alpha' = RN(RN(RN(alpha * a) * b) * C_AB)   2. out = RN(alpha' * acc)
                   3. beta ≠ 0: out = fma(beta, C, out); beta = 0 reads no C   4. bias: out = RN(out + bias_j)
                   then 5. D = cast(out)
  row_scaled       1. out = RN(C_AB * acc)   2. out = RN(RN(out * a_i) * b_j); one amax of B: RN(out * RN(a_i * b))
                   3. bias: out = RN(out + bias_j)   4. D = cast(out)   5. accumulate: D = cast(RN(D + C))
  windows          1. D = cast(RN(C_AB * acc)); the amaxes are in acc
  per_token        1. d = bf16(RN(C_AB * acc))   2. D = bf16(RN(RN(d * a_i) * b_j)), by a kernel of its own
  per_token_fused  1. out = RN(C_AB * RN(b_j * RN(a_i * acc)))   2. bias: out = RN(out + bias_j)
                   3. D = cast(out)   4. accumulate: D = cast(RN(D + C))
C_AB = RN(1 / (36 * E_A * E_B)), E being e4m3_max, of ue5m3 114688; a_i and b_j are the amaxes of row i of A and row j
of B. An operand without a global scale has the amax 6 E, and alpha' = alpha where neither has one. A cast f32→bf16
rounds to nearest even.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import gemm_flags, gemm_operands, layout, nvfp4
from harness.oracles.gemm_flags import refuse
from harness.oracles.gemm_operands import inputs

if TYPE_CHECKING:
    import torch

__all__ = ["inputs", "numpy_oracle", "outputs", "refuse", "torch_oracle"]

ANY_ORDER = "gemm"  # the recipe that may compute the same sums in another order


def outputs(case: Case) -> dict[str, Field]:
    """`output` (M, N) in `flags.dtype`."""
    refuse(case)
    return {"output": Field((case.rows, case.problem.n), nvfp4.DTYPES[case.flags.dtype].name)}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    refuse(case)
    gemm_operands.require(case, tensors)
    (a, a_scales), (b, b_scales) = (gemm_operands.decoded(case, tensors, name) for name in "ab")
    a_scales, b_scales = (np.ascontiguousarray(scales.T) for scales in (a_scales, b_scales))
    output = np.empty((case.rows, case.problem.n), nvfp4.DTYPES[case.flags.dtype])
    for rows in layout.slabs(case.rows, case.problem.n):
        if case.flags.epilogue == "windows":
            amaxes = tensors["a_amax"][rows], tensors["b_amax"]
            acc = _sum_of_windows(a[rows], b, a_scales[:, rows], b_scales, *amaxes)
        else:
            acc = _sum(a[rows], b, a_scales[:, rows], b_scales)
        output[rows] = epilogue(case, tensors, rows, acc)  # 3
    return {"output": output}


@nvfp4.ieee
def _sum(a: np.ndarray, b: np.ndarray, a_scales: np.ndarray, b_scales: np.ndarray) -> np.ndarray:
    """Steps 1 and 2: values of codes (rows, K) and (N, K), scales (K/16, rows) and (K/16, N) → sums (rows, N)."""
    acc = np.zeros((len(a), len(b)), np.float32)  # 1
    for k, (sa, sb) in enumerate(zip(a_scales, b_scales, strict=True)):
        block = slice(k * nvfp4.BLOCK, (k + 1) * nvfp4.BLOCK)
        p = a[:, block] @ b[:, block].T  # exact, in whatever order a matrix product sums
        p *= sa[:, None] * sb
        acc += p  # 2
    return acc


@nvfp4.ieee
def _sum_of_windows(
    a: np.ndarray, b: np.ndarray, a_scales: np.ndarray, b_scales: np.ndarray, a_amax: np.ndarray, b_amax: np.ndarray
) -> np.ndarray:
    """Step 2 with an amax for each window: amaxes (rows, K/64) and (N, K/64)."""
    acc = np.zeros((len(a), len(b)), np.float32)
    blocks = nvfp4.WINDOW // nvfp4.BLOCK
    for w in range(a_amax.shape[1]):
        along, scales = slice(w * nvfp4.WINDOW, (w + 1) * nvfp4.WINDOW), slice(w * blocks, (w + 1) * blocks)
        s = _sum(a[:, along], b[:, along], a_scales[scales], b_scales[scales])
        acc += (a_amax[:, w, None] * b_amax[:, w]) * s
    return acc


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_gemm

    refuse(case)
    gemm_operands.require(case, tensors)
    return {"output": torch_gemm.ordered(case, tensors)}


@nvfp4.ieee
def epilogue(case: Case, tensors: Mapping[str, np.ndarray], rows: slice, acc: np.ndarray) -> np.ndarray:
    """Some rows of D in the case's dtype, from the same rows of the sum, (rows, N) float32."""
    flags = case.flags
    bounds = (gemm_flags.scale_max(case, name) for name in "ab")
    c_ab = nvfp4.ONE / np.float32(nvfp4.E2M1_MAX**2 * math.prod(bounds))
    if flags.epilogue == "per_tensor":
        out = _tensor_factor(case, tensors, c_ab) * acc
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


def _tensor_factor(case: Case, tensors: Mapping[str, np.ndarray], c_ab: np.float32) -> np.ndarray:
    """alpha', (1,) float32."""
    alpha = np.full(1, case.flags.alpha, np.float32)
    if not any(gemm_flags.two_levels(case, name) for name in "ab"):
        return alpha
    a, b = (gemm_operands.amax_of(case, tensors, name) for name in "ab")
    return ((alpha * a) * b) * c_ab


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
