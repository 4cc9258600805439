"""The torch side of a grouped GEMM: the cutting of every array into its groups, derived from NUMERICS 8 and 10.4 alone.

What happens to one group is the business of the dense torch oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.oracles.torch_source import DTYPES

Tensors = Mapping[str, torch.Tensor]
DenseOracle = Callable[[Case, Tensors], dict[str, torch.Tensor | Interval]]

_WITH_M = ("a_data", "a_scale_inv", "a_amax", "c")  # the others are as long for one group as for another


def grouped(case: Case, tensors: Tensors, dense: DenseOracle) -> torch.Tensor | Interval:
    """The outputs of all groups, (M, N), one below the other.

    tensors: of all groups, each name as the dense oracle reads it; M_g is a multiple of 128, so that no scales of A are
        padded between groups
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
        return Interval(
            torch.cat([one.low for one in found]),
            torch.cat([one.high for one in found]),
            torch.cat([one.sums for one in found]),
            torch.cat([one.sizes for one in found]),
        )
    return torch.cat(found)
