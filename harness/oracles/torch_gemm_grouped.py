"""Grouped GEMM in torch: cut every array into its groups and ask the dense torch oracle for each. NUMERICS 10.4."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.oracles.torch_source import DTYPES

Tensors = Mapping[str, torch.Tensor]
DenseOracle = Callable[[Case, Tensors], dict[str, torch.Tensor | Interval]]

_WITH_M = ("a_data", "a_scale_inv", "a_amax", "c")  # the others are equally long in every group


def grouped(case: Case, tensors: Tensors, dense: DenseOracle) -> torch.Tensor | Interval:
    """The outputs of all groups, (M, N), one below the other.

    tensors: the arrays of the dense oracle, all groups back to back; M_g is a multiple of 128, so the scales of A have
        no padding between groups
    """
    count, entries = len(case.problem.tensors), [rows for rows, _ in case.problem.tensors]
    cuts: dict[str, tuple[torch.Tensor, ...]] = {}
    for name, tensor in tensors.items():
        if name in ("first_dims", "last_dims", "tensor_offsets"):
            continue
        one_each = name not in _WITH_M or (name == "a_amax" and case.flags.epilogue == "per_tensor")
        cuts[name] = tensor.tensor_split(count) if one_each else tensor.split(entries)
    found = [
        dense(case.part(g), {name: cut[g] for name, cut in cuts.items()})["output"]
        for g, rows in enumerate(entries)
        if rows
    ]
    if not found:
        return torch.empty((0, case.problem.n), dtype=DTYPES[case.flags.dtype], device=tensors["a_data"].device)
    if isinstance(found[0], Interval):
        ends = zip(*((one.low, one.high, one.sums, one.sizes) for one in found), strict=True)
        return Interval(*map(torch.cat, ends))
    return torch.cat(found)
