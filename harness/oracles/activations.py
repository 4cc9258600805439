"""SwiGLU, derivatives of activations, and the bias gradient: NUMERICS section 8 in NumPy.

Float32; every written operation rounds once, to nearest even. exp and tanh are evaluated in float64 and rounded once to
float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from harness.contract.case import Case
from harness.errors import ContractError
from harness.oracles import layout, nvfp4
from harness.oracles.nvfp4 import ONE, ieee

CHUNK_ROWS = 128  # rows; each chunk is summed first, then the chunks' sums
HALF = np.float32(0.5)
SQRT_2_OVER_PI = np.float32(0.79788456)
GELU_CUBIC = np.float32(0.044715)
GELU_CUBIC_SLOPE = np.float32(0.1070322243)  # 3 * 0.044715 * sqrt(2/pi)
QUICK_GELU_SLOPE = np.float32(1.702)


def _exp(x: np.ndarray) -> np.ndarray:
    return np.exp(x.astype(np.float64)).astype(np.float32)


def _tanh(x: np.ndarray) -> np.ndarray:
    return np.tanh(x.astype(np.float64)).astype(np.float32)


def _dgelu(x: np.ndarray) -> np.ndarray:
    """Derivative of gelu in its tanh form."""
    t = _tanh((SQRT_2_OVER_PI * x) * (ONE + (GELU_CUBIC * x) * x))
    slope = SQRT_2_OVER_PI + (GELU_CUBIC_SLOPE * x) * x
    return (HALF * x) * ((ONE - t * t) * slope) + HALF * (ONE + t)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return ONE / (ONE + _exp(-x))


def _dsilu(x: np.ndarray) -> np.ndarray:
    s = _sigmoid(x)
    return (x * s) * (ONE - s) + s


def _dqgelu(x: np.ndarray) -> np.ndarray:
    """Derivative of quick gelu, x * sigmoid(1.702 * x), without its inner factor."""
    return _dsilu(QUICK_GELU_SLOPE * x)


def _drelu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, ONE, np.float32(0))


def _dsrelu(x: np.ndarray) -> np.ndarray:
    """Derivative of relu squared; 0 for a NaN, as in drelu, because it is not greater than 0."""
    return np.where(x > 0, np.float32(2) * x, np.float32(0))


DERIVATIVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "dgelu": _dgelu,
    "dsilu": _dsilu,
    "drelu": _drelu,
    "dqgelu": _dqgelu,
    "dsrelu": _dsrelu,
}


@ieee
def activated(activation: str, grad: np.ndarray, act_input: np.ndarray | None) -> np.ndarray:
    """v = f32(grad), or RN(f32(grad) * dact(f32(act_input))) with an activation; float32, shape of `grad`."""
    v = grad.astype(np.float32)
    return v if activation == "none" else v * DERIVATIVES[activation](act_input.astype(np.float32))


@ieee
def bias_gradient(v: np.ndarray) -> np.ndarray:
    """(rows, cols) float32 → (cols,): sums from 0 down each 128 rows, then from 0 over these sums in order."""
    total = np.zeros(v.shape[1], np.float32)
    for first in range(0, len(v), CHUNK_ROWS):
        chunk = np.zeros_like(total)
        for row in v[first : first + CHUNK_ROWS]:
            chunk += row
        total += chunk
    return total


SWIGLU, DSWIGLU = "swiglu", "dswiglu"
GATED = (SWIGLU, DSWIGLU)  # of gates, the first half of a row, and ups, the second


def refuse_gated(case: Case) -> None:
    """Raise ContractError for a case with SwiGLU that it cannot have."""
    activation = case.flags.activation
    if activation in GATED and case.flags.block != "block_1x16":
        raise ContractError(f"{case.recipe}: block must be block_1x16 with {activation}; 16x16 blocks are of weights")
    if activation == DSWIGLU:
        if case.flags.stage == "encode":
            raise ContractError(
                f"{case.recipe}: stage must not be encode with dswiglu: no source has its amax before it"
            )
        if any(cols % (2 * nvfp4.BLOCK) for _, cols in case.problem.grid_extents):
            raise ContractError(
                f"{case.recipe}: cols must be a multiple of {2 * nvfp4.BLOCK} with dswiglu, which are two halves of "
                f"whole blocks, not {case.shape}"
            )


def gated_inputs(activation: str, x: np.ndarray, act_input: np.ndarray) -> dict[str, np.ndarray]:
    """`input`, and for dswiglu `act_input`, as kernels read them.

    x, act_input: (rows, cols), as drawn. swiglu: ups and gates, which become the halves of each row. dswiglu: gradients
    of the activation, of which there are cols/2, and both halves
    """
    if activation == SWIGLU:
        return {"input": np.concatenate([act_input, x], axis=1)}
    return {"input": np.ascontiguousarray(x[:, : x.shape[1] // 2]), "act_input": act_input}


def input_elements(case: Case, quantized: int) -> int:
    """Elements of `input` for so many that are quantized: SwiGLU reads two for one, its gradients one for two."""
    return {SWIGLU: 2 * quantized, DSWIGLU: quantized // 2}.get(str(case.flags.get("activation")), quantized)


def quantized(case: Case, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """The tensor that a dense case quantizes, (rows, cols) of its dtype: its input, or an activation's output."""
    activation = str(case.flags.get("activation", "none"))
    return tensors["input"] if activation == "none" else gated(activation, tensors, str(case.flags.dtype))


@ieee
def gated(activation: str, tensors: Mapping[str, np.ndarray], dtype: str) -> np.ndarray:
    """The tensor that is quantized, (rows, cols) of the dtype. tensors: as `gated_inputs` returns them"""
    forward, x = activation == SWIGLU, tensors["input"]
    packed = x if forward else tensors["act_input"]
    half = packed.shape[1] // 2
    h = np.empty((len(packed), half if forward else 2 * half), nvfp4.DTYPES[dtype])
    for rows in layout.slabs(*packed.shape):
        gate, up = (part.astype(np.float32) for part in (packed[rows, :half], packed[rows, half:]))
        s = _sigmoid(gate)
        a = gate * s
        if forward:
            h[rows] = nvfp4.convert(a * up, dtype)
        else:
            grad = x[rows].astype(np.float32)
            h[rows, :half] = nvfp4.convert((_dsilu(gate) * grad) * up, dtype)
            h[rows, half:] = nvfp4.convert(grad * a, dtype)
    return h
