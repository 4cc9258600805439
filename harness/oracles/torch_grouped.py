"""Groups in torch: d-activations, bias gradients, and the cutting into tensors for the recipe's own torch oracle.

Derived from NUMERICS section 8 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn.functional import pad

from harness.contract.case import Case
from harness.oracles.torch_oracle import stored

_CHUNK = 128
_GELU_SLOPE = 0.79788456
_GELU_CUBE = 0.044715
_GELU_CUBE_SLOPE = 0.1070322243
_QUICK_GELU = 1.702

Tensors = Mapping[str, torch.Tensor]
DenseOracle = Callable[[Case, Tensors], dict[str, torch.Tensor]]


def grouped(case: Case, tensors: Tensors, dense: DenseOracle, granularity: str) -> dict[str, torch.Tensor]:
    """Quantize every tensor of a group by itself, and join each field back to back.

    tensors: `input` (allocated elements,) of the case's dtype; `act_input` alike if there is an activation; for
        stage=encode the amax fields of all tensors back to back, float32
    dense, granularity: torch oracle of the recipe that quantizes every tensor, and the extent of its amaxes
    returns: flat fields, and `dbias` (num_tensors, cols) if asked for
    """
    flags = case.flags
    sizes = [rows * cols for rows, cols in case.problem.tensors]
    grads = cut(tensors["input"], sizes)
    inputs = cut(tensors["act_input"], sizes) if flags.activation != "none" else [None] * len(sizes)
    # Entries of each direction's amax of each tensor, also of an empty one.
    entries = {
        side: [_granules(granularity, extents, axis) for extents in case.problem.tensors]
        for axis, side in enumerate(("rowwise", "columnwise"))
        if flags.outputs in ("both", side)
    }
    given = {}
    if flags.stage == "encode":
        given = {f"{side}_amax": cut(tensors[f"{side}_amax"], counts) for side, counts in entries.items()}
    written: list[dict[str, torch.Tensor]] = []
    for g, extents in enumerate(case.problem.tensors):
        value = dact(flags.activation, grads[g], inputs[g]).view(extents)
        parts = {"dbias": stored(column_sums(value), flags.dtype)} if flags.dbias else {}
        if value.numel():
            amaxes = {name: split[g] for name, split in given.items()}
            written.append(dense(case.part(g), {"input": value.to(grads[g].dtype), **amaxes}) | parts)
        else:
            written.append(_empty(case, {side: counts[g] for side, counts in entries.items()}, value.device) | parts)
    joined = {name: torch.cat([parts[name].flatten() for parts in written]) for name in written[0]}
    if "dbias" in joined:
        joined["dbias"] = joined["dbias"].view(len(sizes), -1)
    return joined


def _granules(granularity: str, extents: tuple[int, int], axis: int) -> int:
    """How many amaxes a tensor has in one direction: one, one per line along `axis`, or one per 64 elements."""
    return {"tensor": 1, "row": extents[axis], "window": extents[0] * extents[1] // 64}[granularity]


def cut(flat: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, ...]:
    """Cut an allocation into its tensors; what lies behind the last one is dropped."""
    return flat.narrow(0, 0, sum(sizes)).split(sizes)


def dact(activation: str, grad: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
    """The gradient in float32, times the derivative of the activation at `x` if there is one."""
    return grad.float() if x is None else grad.float() * _SLOPES[activation](x.float())


def column_sums(value: torch.Tensor) -> torch.Tensor:
    """(rows, cols) float32 to (cols,): sums down each 128 rows in order, then the sum of these sums in order.

    All chunks go down together. Zeros complete the last one; they change no sum, because a sum from +0 is never -0.
    """
    rows, cols = value.shape
    chunks = pad(value, (0, 0, 0, -rows % _CHUNK)).unflatten(0, (-1, _CHUNK)) if rows else value.new_zeros((0, 0, cols))
    total = torch.zeros(cols, device=value.device)
    sums = torch.zeros((len(chunks), cols), device=value.device)
    for line in chunks.unbind(1):
        sums = sums + line
    for partial in sums:
        total = total + partial
    return total


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


def _empty(case: Case, entries: Mapping[str, int], device: torch.device) -> dict[str, torch.Tensor]:
    """The fields of an empty tensor: no bytes, and an amax of 0 for each of its granules."""
    parts = {}
    for side, count in entries.items():
        if case.flags.stage != "amax":
            parts[f"{side}_data"] = torch.empty(0, dtype=torch.uint8, device=device)
            parts[f"{side}_scale_inv"] = torch.empty(0, dtype=torch.uint8, device=device)
        if case.flags.stage != "encode":
            parts[f"{side}_amax"] = torch.zeros(count, device=device)
    return parts
