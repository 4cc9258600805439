"""The kernels' derivatives of activations, executed on the emulator, against NumPy in float64 rounded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from emulated import compiled

from harness.oracles.activations import DERIVATIVES
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

F32 = np.float32

SOURCE = """
#define OF_FLOAT(name, call) \\
  extern "C" __global__ void of_##name(const float* x, float* y) { \\
    const int i = blockIdx.x * blockDim.x + threadIdx.x; \\
    y[i] = call(x[i]); \\
  }
template <Activation activation>
__device__ float derivative_of(float x) {
  float values[1] = {x};
  derivative<activation>(values);
  return values[0];
}
OF_FLOAT(exp, exp_rn)
OF_FLOAT(tanh, tanh_rn)
OF_FLOAT(dgelu, derivative_of<Activation::dgelu>)
OF_FLOAT(dsilu, derivative_of<Activation::dsilu>)
OF_FLOAT(drelu, derivative_of<Activation::drelu>)
OF_FLOAT(dqgelu, derivative_of<Activation::dqgelu>)
OF_FLOAT(dsrelu, derivative_of<Activation::dsrelu>)
"""


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": lambda x: np.exp(x.astype(np.float64)).astype(F32),
    "tanh": lambda x: np.tanh(x.astype(np.float64)).astype(F32),
    **DERIVATIVES,  # which test_activations.py holds to their stated steps
}


@cache
def module() -> Module:
    return compiled("numerics/activations.cuh", SOURCE)


def by_kernel(name: str, x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    buffers = [Buffer("x", x.view(np.uint8), writable=False), Buffer("y", y.view(np.uint8), initialised=False)]
    launch(module(), f"of_{name}", grid=(x.size // 256, 1, 1), block=(256, 1, 1), args=buffers)
    return y


def inputs(kind: str) -> np.ndarray:
    if kind in ("bf16", "fp16"):
        dtype = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}[kind]
        return np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(F32)
    rng = np.random.default_rng(7)
    if kind == "any fp32":
        return rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(F32)
    return np.ldexp(rng.standard_normal(1 << 16, F32), rng.integers(-40, 6, 1 << 16))


@pytest.mark.parametrize("kind", ["bf16", "fp16", "any fp32", "near 0"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bytes_of_float64_rounded_once(name: str, kind: str):
    """Every value of the 16-bit types, so for those there is nothing left to prove."""
    x = inputs(kind)
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](x)
    ours = by_kernel(name, x)
    numbers = ~np.isnan(expected)
    assert (np.isnan(ours) == ~numbers).all()
    assert (ours.view(np.uint32) == expected.view(np.uint32))[numbers].all()


def test_it_would_show_if_tanh_lost_its_small_values():
    x = inputs("near 0")
    with np.errstate(over="ignore"):
        short = (1 - 2 / (np.exp(2 * x.astype(np.float64)) + 1)).astype(F32)
    assert (short != by_kernel("tanh", x)).any()
