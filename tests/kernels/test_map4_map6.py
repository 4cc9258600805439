"""Arithmetic of map4_map6.cuh that is not the contract's own: divisions without a division, and approximate errors."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from emulated import compiled

from harness.inputs.distributions.edges import four_over_six_ties
from harness.oracles.nvfp4 import BLOCK, E2M1_MAX, E4M3_BOUNDS
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

F32 = np.float32
THREADS = 256
KINDS = [(error, math, bound) for error in ("mae", "mse") for math in ("exact", "fp16") for bound in (256, 448)]
SOURCE = """
#define OF(error, math, e) \\
  extern "C" __global__ void error##_##math##_##e(const float* input, const float* amax, float* found) { \\
    const int block = blockIdx.x * blockDim.x + threadIdx.x; \\
    float x[kBlock], most = 0.0f; \\
    for (int i = 0; i < kBlock; ++i) { \\
      x[i] = input[block * kBlock + i]; \\
      most = fmaxf(most, fabsf(x[i])); \\
    } \\
    const GlobalScale global = global_scale(amax[0], float(e)); \\
    const Map4Map6 scales(most, amax[0], global); \\
    const Errors ours = approximate_errors<Error::error>(x, scales, global); \\
    const Errors contract = contract_errors<Error::error, ErrorMath::math, e>(x, scales, amax[0], global); \\
    const float row[] = { \\
        ours.map4, ours.map6, contract.map4, contract.map6, error_bound<Error::error, 1>(ours, scales), \\
        float(undecided<Error::error, 1>(ours, scales))}; \\
    for (int i = 0; i < 6; ++i) found[block * 6 + i] = row[i]; \\
  }
"""


@cache
def module() -> Module:
    return compiled("numerics/map4_map6.cuh", SOURCE + "".join(f"OF({', '.join(map(str, kind))})\n" for kind in KINDS))


def blocks() -> tuple[np.ndarray, np.ndarray]:
    """Normal blocks, some in bf16, and such as both maps encode equally well but for roundings; their amax, (1,)."""
    rng = np.random.default_rng(6)
    ties = four_over_six_ties(rng, 256, 128, "fp32").reshape(-1, BLOCK)
    amax = np.abs(ties).max(keepdims=True)[0]
    beside = ties * (1 + rng.normal(size=ties.shape) * 2.0**-22)
    normal = rng.normal(size=(len(ties), BLOCK)) * amax / 5
    normal[::2] = normal[::2].astype(ml_dtypes.bfloat16)
    return np.concatenate([ties, beside, normal]).clip(-amax, amax).astype(F32), amax


@pytest.mark.parametrize("error, math, bound", KINDS)
def test_errors_that_decide_decide_as_the_contracts_do(error: str, math: str, bound: int):
    x, amax = blocks()
    found = np.zeros((len(x), 6), F32)
    buffers = [
        Buffer("input", x.reshape(-1).view(np.uint8), writable=False),
        Buffer("amax", amax.view(np.uint8), writable=False),
        Buffer("found", found.reshape(-1).view(np.uint8)),
    ]
    launch(module(), f"{error}_{math}_{bound}", grid=(len(x) // THREADS, 1, 1), block=(THREADS, 1, 1), args=buffers)
    ours, contract, most, undecided = found[:, :2], found[:, 2:4], found[:, 4].astype(float), found[:, 5] != 0
    assert 0.01 < undecided.mean() < 0.6
    assert (undecided | ((ours[:, 0] < ours[:, 1]) == (contract[:, 0] < contract[:, 1]))).all()
    # Their difference is wrong by at most the bound, and the bound is not a thousand times what it could be.
    unit = E2M1_MAX * bound / float(amax[0]) if math == "exact" else 1.0
    contract = contract.astype(float) * unit ** (1 if error == "mae" else 2)
    wrong = np.abs(np.subtract(*ours.T.astype(float)) - np.subtract(*contract.T))
    measured = most > 0
    assert 2.0**-10 < (wrong[measured] / most[measured]).max() < 1


@pytest.mark.parametrize("divisor", [3, 27, 15, 21])
def test_a_reciprocal_and_a_remainder_divide_every_mantissa(divisor: int):
    """`divide` by the odd parts of 6, 6 * 288, 6 * 320 and 6 * 448; a power of two changes no rounding."""
    assert {divisor * 2**k for k in range(10)} & {E2M1_MAX, *(E2M1_MAX * bound for bound in E4M3_BOUNDS)}
    reciprocal = F32(1) / F32(divisor)
    for first in range(0, 1 << 23, 1 << 20):
        value = (np.arange(first, first + (1 << 20), dtype=np.uint32) | np.uint32(0x3F800000)).view(F32)
        quotient = value * reciprocal
        rest = value.astype(np.float64) - quotient.astype(np.float64) * divisor  # exact in float64, and in float32
        assert (rest == rest.astype(F32)).all()
        corrected = rest * np.float64(reciprocal) + quotient
        assert not (corrected.view(np.uint64) & 0x1FFFFFFF == 0x10000000).any()  # where float64 could round to a tie
        np.testing.assert_array_equal(corrected.astype(F32), value / F32(divisor))
