"""SwiGLU and derivatives of activations in torch, derived from NUMERICS 8.3 alone.

Float32: every torch operation rounds once. exp and tanh are evaluated in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from harness.contract.case import Case
from harness.oracles.torch_source import SLAB_ELEMENTS

_GELU_SLOPE = 0.79788456
_GELU_CUBE = 0.044715
_GELU_CUBE_SLOPE = 0.1070322243
_QUICK_GELU = 1.702


def activated(
    activation: str, x: torch.Tensor, act_input: torch.Tensor | None, extents: tuple[int, int]
) -> torch.Tensor:
    """v of 8.2 for a tensor of a group, (rows, cols) float32. x, act_input: flat, as the kernel reads them"""
    rows = extents[0]
    if activation == "swiglu":
        return gated(x.view(rows, 2 * extents[1]))
    if activation == "dswiglu":
        return gated_slopes(x.view(rows, extents[1] // 2), act_input.view(extents))
    return dact(activation, x, act_input).view(extents)


def dact(activation: str, grad: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
    """The gradient in float32, times the derivative of the activation at `x` if there is one."""
    return grad.float() if x is None else grad.float() * _SLOPES[activation](x.float())


def quantized(case: Case, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The matrix that a dense case quantizes, in the dtype of its input: that, or SwiGLU of it, or its gradients."""
    x, activation = tensors["input"], case.flags.get("activation", "none")
    if activation == "none":
        return x
    backward = activation == "dswiglu"
    rows = max(1, SLAB_ELEMENTS // (2 * case.cols))
    pieces = []
    for part in x.split(rows) if not backward else zip(x.split(rows), tensors["act_input"].split(rows), strict=True):
        pieces.append(gated_slopes(*part) if backward else gated(part))
    return torch.cat(pieces).to(x.dtype)


def gated(halves: torch.Tensor) -> torch.Tensor:
    """silu of the first half of each row times the second, float32."""
    gate, up = halves.float().chunk(2, dim=1)
    return (gate * _logistic(gate)).mul_(up)


def gated_slopes(grad: torch.Tensor, halves: torch.Tensor) -> torch.Tensor:
    """The gradients of both halves, side by side, float32. grad: of `gated`"""
    gate, up = halves.float().chunk(2, dim=1)
    grad = grad.float()
    return torch.cat([(grad * _silu_slope(gate)) * up, (_logistic(gate) * gate) * grad], dim=1)


def _logistic(x: torch.Tensor) -> torch.Tensor:
    decay = torch.exp(x.double().neg()).float()
    return torch.div(torch.ones_like(x), decay + 1.0)


def _gelu_slope(x: torch.Tensor) -> torch.Tensor:
    bent = (x * _GELU_CUBE).mul_(x).add_(1.0).mul_(x * _GELU_SLOPE)
    t = torch.tanh(bent.double()).float()
    inner = (x * _GELU_CUBE_SLOPE).mul_(x).add_(_GELU_SLOPE)
    return (1.0 - t * t).mul_(inner).mul_(x * 0.5).add_((t + 1.0).mul_(0.5))


def _silu_slope(y: torch.Tensor) -> torch.Tensor:
    s = _logistic(y)
    return (y * s).mul_(1.0 - s).add_(s)


# A comparison with NaN is false, so drelu and dsrelu give 0 there.
_SLOPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dgelu": _gelu_slope,
    "dsilu": _silu_slope,
    "dqgelu": lambda x: _silu_slope(x * _QUICK_GELU),
    "drelu": lambda x: (x > 0).float(),
    "dsrelu": lambda x: (x + x).masked_fill(~(x > 0), 0.0),
}
