"""Grouped GEMM in torch: cut every array into its groups and ask the dense torch oracle for each. NUMERICS 10.4."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.oracles.torch_gemm import finished
from harness.oracles.torch_source import BLOCK, DTYPES

Tensors = Mapping[str, torch.Tensor]
DenseOracle = Callable[[Case, Tensors], dict[str, torch.Tensor | Interval]]

_TILE = (128, 4)  # a scale matrix is padded to multiples of these lines and blocks


def grouped(case: Case, tensors: Tensors, dense: DenseOracle) -> torch.Tensor | Interval:
    """The outputs of all groups, (M, N), one below the other.

    tensors: the arrays of the dense oracle, all groups back to back, and the extents of the groups
    """
    found = []
    cuts = {name: _cut(case, name, tensor) for name, tensor in tensors.items() if name[:2] in ("a_", "b_", "c", "bi")}
    for g, (lines, length) in enumerate(case.problem.tensors):
        if not lines:
            continue
        own = {name: cut[g] for name, cut in cuts.items()}
        if length:
            found.append(dense(case.part(g), own)["output"])
            continue
        zeros = torch.zeros((lines, case.problem.n), device=tensors["a_data"].device)
        only = finished(case.part(g), own, (slice(None), slice(None)), zeros)
        exact = Interval(only, only.clone(), *[zeros.double()] * 2, only.clone())
        found.append(only if case.input == "exact_sum" else exact)
    if not found:
        return torch.empty((0, case.problem.n), dtype=DTYPES[case.flags.dtype], device=tensors["a_data"].device)
    if isinstance(found[0], Interval):
        return Interval.joined(found, torch.cat)
    return torch.cat(found)


def _cut(case: Case, name: str, tensor: torch.Tensor) -> list[torch.Tensor]:
    """Each group's part of an array, in its own shape."""
    groups, n = case.problem.tensors, case.problem.n
    if name == "bias" or (name.endswith("amax") and tensor.numel() == len(groups) and _has_one(case, name)):
        return list(tensor.tensor_split(len(groups)))
    shapes = []
    for m, k in groups:
        lines = n if name.startswith("b_") else m
        if name.endswith("data"):
            shapes.append((lines, k // 2))
        elif name.endswith("scale_inv"):
            shapes.append(
                tuple(-(-count // unit) * unit for count, unit in zip((lines, k // BLOCK), _TILE, strict=True))
            )
        else:
            shapes.append((lines, n) if name == "c" else (lines,))
    sizes = [torch.Size(shape).numel() for shape in shapes]
    parts = tensor.flatten()[: sum(sizes)].split(sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _has_one(case: Case, name: str) -> bool:
    """Whether an operand has one amax instead of one for each line."""
    by_tensor = case.flags.epilogue == "row_scaled" and case.flags.b_granularity == "tensor"
    return case.flags.epilogue == "per_tensor" or (name == "b_amax" and by_tensor)
