"""The divisions of map4_map6.cuh that are none: by a reciprocal and a remainder, against true ones."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from emulated import compiled

from harness.oracles.nvfp4 import E2M1_MAX, E4M3_BOUNDS
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

F32 = np.float32
SOURCE = """
#define OF_BOUND(e) \\
  extern "C" __global__ void decoded_##e(const float* amax, float* value) { \\
    const Decoded<short, 6 * e> decoded(1.0f, amax[blockIdx.x * blockDim.x + threadIdx.x]); \\
    const float magnitude[] = {0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f}; \\
    for (int i = 0; i < 7; ++i) \\
      value[(blockIdx.x * blockDim.x + threadIdx.x) * 7 + i] = decoded(magnitude[i] * kE2m1Unit); \\
  }
"""


@cache
def module() -> Module:
    return compiled("numerics/map4_map6.cuh", SOURCE + "".join(f"OF_BOUND({bound})\n" for bound in E4M3_BOUNDS))


@pytest.mark.parametrize("bound", E4M3_BOUNDS)
def test_one_division_decodes_all_codes_of_a_block(bound: int):
    """All products of a scale and a 16-bit amax: every number of 15 bits, by every code, as NUMERICS 6 divides."""
    amax = np.arange(1 << 14, 1 << 15, dtype=F32)
    value = np.zeros((amax.size, 7), F32)
    buffers = [Buffer("amax", amax.view(np.uint8), writable=False), Buffer("value", value.reshape(-1).view(np.uint8))]
    launch(module(), f"decoded_{bound}", grid=(amax.size // 256, 1, 1), block=(256, 1, 1), args=buffers)
    codes = F32([0.5, 1, 1.5, 2, 3, 4, 6])
    np.testing.assert_array_equal(value, amax[:, None] * codes / F32(E2M1_MAX * bound))


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
