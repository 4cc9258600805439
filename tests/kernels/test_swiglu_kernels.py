"""SwiGLU and its gradients in the kernels: the oracle's words, whichever bits PTX allows approximate instructions."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from emulated import compiled

from harness.oracles.activations import gated
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer
from ptx_emulator.schedule import ASCENDING, Schedule

DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
SOURCE = """
template <typename Dtype>
__device__ void forward(const u32* gate, const u32* up, u32* value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 gates[1] = {gate[i]}, ups[1] = {up[i]};
  u32 values[1];
  swiglu<Dtype>(gates, ups, values);
  value[i] = values[0];
}
template <typename Dtype>
__device__ void backward(const u32* grad, u32* gate, u32* up) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 grads[1] = {grad[i]};
  u32 gates[1] = {gate[i]}, ups[1] = {up[i]};
  swiglu_gradient<Dtype>(grads, gates, ups);
  gate[i] = gates[0], up[i] = ups[0];
}
#define KERNELS(Dtype) \\
  extern "C" __global__ void forward_##Dtype(const u32* gate, const u32* up, u32* value) { \\
    forward<Dtype>(gate, up, value); \\
  } \\
  extern "C" __global__ void backward_##Dtype(const u32* grad, u32* gate, u32* up) { backward<Dtype>(grad, gate, up); }
KERNELS(bf16)
KERNELS(fp16)
"""
SPECIALS = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-45, 2.0**-133, 3e38, -3e38, 65504.0, 2.0**126, 6e-8]


@cache
def module(arch: str) -> Module:
    return compiled("numerics/swiglu.cuh", SOURCE, arch)


def every_gate(dtype: str, draw: int) -> np.ndarray:
    """Each value of the type once, and as many around 0, where activations bend; (rows, 256)"""
    rng = np.random.default_rng(draw)
    gate = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype])
    near = np.ldexp(rng.standard_normal(1 << 16), rng.integers(-8, 4, 1 << 16)).astype(DTYPES[dtype])
    return rng.permutation(np.concatenate([gate, near])).reshape(-1, 256)


def factor(dtype: str, shape: tuple[int, ...], draw: int) -> np.ndarray:
    """Values that are multiplied by: of all magnitudes, and special ones"""
    rng = np.random.default_rng(draw)
    with np.errstate(over="ignore"):
        values = np.ldexp(rng.standard_normal(shape), rng.integers(-20, 20, shape)).astype(DTYPES[dtype])
        special = rng.choice(np.float32(SPECIALS), shape).astype(DTYPES[dtype])
    any_bits = rng.integers(0, 1 << 16, shape, np.uint16).view(DTYPES[dtype])
    return np.choose(rng.choice(3, shape, p=[0.8, 0.1, 0.1]), [values, special, any_bits])


def by_kernel(
    name: str, order: tuple[str, Schedule], arrays: dict[str, np.ndarray], written: str
) -> dict[str, np.ndarray]:
    """What a kernel makes of these arrays, one for each of its parameters. written: the names of those it writes"""
    arch, schedule = order
    arrays = {key: array.copy() for key, array in arrays.items()}
    names = written.split()
    buffers = [Buffer(key, each.view(np.uint8).reshape(-1), writable=key in names) for key, each in arrays.items()]
    words = next(iter(arrays.values())).size // 2
    launch(module(arch), name, grid=(words // 256, 1, 1), block=(256, 1, 1), args=buffers, schedule=schedule)
    return arrays


def assert_same_words(ours: np.ndarray, expected: np.ndarray) -> None:
    numbers = ~np.isnan(expected)
    assert (np.isnan(ours) == ~numbers).all()
    wrong = (ours.view(np.uint16) != expected.view(np.uint16)) & numbers
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} differ"


# PTX's own bounds are those of sm_100a; of sm_90a the emulator has an H200's bits.
in_orders = pytest.mark.parametrize(
    "order",
    [("sm_90a", ASCENDING), ("sm_100a", Schedule(descending=True)), ("sm_100a", Schedule(seed=1))],
    ids=["an H200's", "one end", "the other"],
)


@in_orders
@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu(dtype: str, order: tuple[str, Schedule]):
    gate = every_gate(dtype, 1)
    up = factor(dtype, gate.shape, 2)
    expected = gated("swiglu", {"input": np.concatenate([gate, up], axis=1)}, dtype)
    ours = by_kernel(f"forward_{dtype}", order, {"gate": gate, "up": up, "value": np.zeros_like(up)}, "value")
    assert_same_words(ours["value"], expected)


@in_orders
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(dtype: str, order: tuple[str, Schedule]):
    gate = every_gate(dtype, 3)
    up, grad = factor(dtype, gate.shape, 4), factor(dtype, gate.shape, 5)
    expected = gated("dswiglu", {"input": grad, "act_input": np.concatenate([gate, up], axis=1)}, dtype)
    ours = by_kernel(f"backward_{dtype}", order, {"grad": grad, "gate": gate, "up": up}, "gate up")
    assert_same_words(np.concatenate([ours["gate"], ours["up"]], axis=1), expected)


ERRORS = """
extern "C" __global__ void errors(const float* grad, const float* gate, const float* up, float* found) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  bool open = false;
  const float2 value = approximate_swiglu(gate[i], up[i], open);
  const ApproximateGradient gradient = approximate_gradient(grad[i], gate[i], up[i], open);
  const float2 all[] = {value, gradient.gate, gradient.up};
  for (int k = 0; k < 3; ++k) found[2 * k * n + i] = all[k].x, found[(2 * k + 1) * n + i] = all[k].y;
}
"""


@pytest.mark.parametrize(
    "schedule", [ASCENDING, Schedule(descending=True), Schedule(seed=1)], ids=lambda each: each.name
)
def test_no_approximate_value_is_off_by_more_than_its_error(schedule: Schedule):
    """And by more than a fifth of it somewhere, so that it is no loose bound."""
    rng = np.random.default_rng(9)
    n = 1 << 18
    gate = np.float32(rng.uniform(-80, 80, n) * rng.choice([1, 0.1], n))
    grad, up = (np.float32(np.ldexp(rng.standard_normal(n), rng.integers(-8, 8, n))) for _ in range(2))
    found = np.zeros((3, 2, n), np.float32)
    buffers = [Buffer(str(k), each.view(np.uint8).reshape(-1)) for k, each in enumerate((grad, gate, up, found))]
    kernel = compiled("numerics/swiglu.cuh", ERRORS, "sm_100a")
    launch(kernel, "errors", grid=(n // 256, 1, 1), block=(256, 1, 1), args=buffers, schedule=schedule)
    one = np.float32(1)
    sigmoid = one / (one + np.exp(-gate.astype(np.float64)).astype(np.float32))
    silu = gate * sigmoid
    as_written = [silu * up, ((silu * (one - sigmoid) + sigmoid) * grad) * up, grad * silu]
    for (value, error), exact in zip(found.astype(np.float64), as_written, strict=True):
        part = np.abs(value - exact) / error
        assert part.max() <= 1
        assert schedule == ASCENDING or part.max() > 0.2, part.max()
