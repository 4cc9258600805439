"""Groups in torch: every array is cut into its tensors, and the recipe's own torch oracle is asked for each.

d-activations, bias gradients and quantizers are derived from NUMERICS section 8 alone, products from 10.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.nn.functional import pad

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.oracles.torch_activations import activated
from harness.oracles.torch_gemm import finished
from harness.oracles.torch_layout import padded_shape
from harness.oracles.torch_oracle import stored
from harness.oracles.torch_source import BLOCK, DTYPES

_CHUNK = 128
_HALVES = {"swiglu": 4, "dswiglu": 1}  # of `input`, for two that are quantized

Tensors = Mapping[str, torch.Tensor]
DenseOracle = Callable[[Case, Tensors], dict[str, torch.Tensor | Interval]]


def grouped(case: Case, tensors: Tensors, dense: DenseOracle, granularity: str) -> dict[str, torch.Tensor]:
    """Quantize every tensor of a group by itself, and join each field back to back.

    tensors: `input` (allocated elements,) of the case's dtype; `act_input` alike if there is an activation; for
        stage=encode the amax fields of all tensors back to back, or one amax for all of them, float32
    dense, granularity: torch oracle of the recipe that quantizes every tensor, and the extent of its amaxes
    returns: flat fields, and `dbias` (num_tensors, cols) if asked for
    """
    flags = case.flags
    sizes = [rows * cols for rows, cols in case.problem.tensors]
    grads = cut(tensors["input"], [size * _HALVES.get(flags.activation, 2) // 2 for size in sizes])
    inputs = cut(tensors["act_input"], sizes) if "act_input" in tensors else [None] * len(sizes)
    # Entries of each direction's amax of each tensor, also of an empty one.
    entries = {
        side: [_granules(granularity, extents, axis) for extents in case.problem.tensors]
        for axis, side in enumerate(("rowwise", "columnwise"))
        if flags.outputs in ("both", side)
    }
    given = {}
    for side, counts in entries.items() if flags.stage == "encode" else ():
        read = tensors["rowwise_amax" if flags.amax == "rowwise" else f"{side}_amax"]
        given[f"{side}_amax"] = [read] * len(sizes) if flags.amax == "shared" else cut(read, counts)
    written: list[dict[str, torch.Tensor]] = []
    for g, extents in enumerate(case.problem.tensors):
        value = activated(flags.activation, grads[g], inputs[g], extents)
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


def grouped_product(case: Case, tensors: Tensors, dense: DenseOracle) -> torch.Tensor | Interval:
    """The outputs of all groups, (M, N), one below the other; one behind the other where N differs.

    tensors: the arrays of the dense oracle, all groups back to back, and the extents of the groups
    """
    found = []
    widths = case.problem.n_dims or [case.problem.n] * len(case.problem.tensors)
    groups = [(m, k, n) for (m, k), n in zip(case.problem.tensors, widths, strict=True)]
    cuts = {
        name: _parts(case, groups, name, tensor)
        for name, tensor in tensors.items()
        if name[:2] in ("a_", "b_", "c", "bi")
    }
    for g, (lines, length, width) in enumerate(groups):
        if not lines * width:
            continue
        own = {name: cut[g] for name, cut in cuts.items()}
        if length:
            found.append(dense(case.part(g), own)["output"])
            continue
        zeros = torch.zeros((lines, width), device=tensors["a_data"].device)
        only = finished(case.part(g), own, (slice(None), slice(None)), zeros)
        exact = Interval(only, only.clone(), *[zeros.double()] * 2, only.clone())
        found.append(only if case.input == "exact_sum" else exact)
    one_width = case.problem.n_dims is None
    if not found:
        nothing = (0, case.problem.n) if one_width else (0,)
        return torch.empty(nothing, dtype=DTYPES[case.flags.dtype], device=tensors["a_data"].device)

    def join(outputs: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(outputs if one_width else [output.flatten() for output in outputs])

    return Interval.joined(found, join) if isinstance(found[0], Interval) else join(found)


def _parts(case: Case, groups: Sequence[tuple[int, int, int]], name: str, tensor: torch.Tensor) -> list[torch.Tensor]:
    """Each group's part of an array, in its own shape. groups: (M, K, N) of each"""
    shapes = []
    for m, k, n in groups:
        lines = n if name.startswith("b_") else m
        if name == "bias":
            shapes.append((n,))
        elif name.endswith("amax"):
            shapes.append((1,) if _has_one(case, name) else (lines,))
        elif name.endswith("data"):
            shapes.append((lines, k // 2))
        elif name.endswith("scale_inv"):
            shapes.append(padded_shape(lines, k // BLOCK))
        else:
            shapes.append((lines, n))
    sizes = [torch.Size(shape).numel() for shape in shapes]
    parts = tensor.flatten()[: sum(sizes)].split(sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _has_one(case: Case, name: str) -> bool:
    """Whether an operand has one amax instead of one for each line."""
    by_tensor = case.flags.epilogue == "row_scaled" and case.flags.b_granularity == "tensor"
    return case.flags.epilogue == "per_tensor" or (name == "b_amax" and by_tensor)
