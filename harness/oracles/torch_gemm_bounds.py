"""GEMM in any order in torch: NUMERICS 10.2, derived apart from the NumPy oracle.

An fp32 addition, rounded or cut, is off by at most 2^-23 of its result, and no partial sum exceeds the sum of all
|terms|; an output of K terms takes K additions. `torch_gemm.finished` takes both ends through the epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.errors import ContractError
from harness.oracles import torch_layout as layout
from harness.oracles.torch_gemm import finished, values, window_factors
from harness.oracles.torch_gemm_hopper import in_order
from harness.oracles.torch_source import DTYPES

_SLAB = 1 << 24  # elements of the output that are bounded at one time
_INF = float("inf")


def bounded(case: Case, tensors: Mapping[str, torch.Tensor], splits: int = 0) -> torch.Tensor | Interval:
    """The output (M, N) where its sums are exact, else its interval.

    tensors: the arrays that `inputs` of the recipe makes
    splits: how many parts of K are summed separately in the order of a matrix unit; 0 for the interval alone
    """
    a, b = (values(case, tensors, name).double() for name in ("a", "b"))
    shape = (case.rows, case.problem.n)
    exact, signless = case.input == "exact_sum", _has_signless_zeros(case)
    kinds = (DTYPES[case.flags.dtype], DTYPES[case.flags.dtype], torch.float64, torch.float64)
    low, high, sums, sizes = (torch.empty(shape, dtype=kind, device=a.device) for kind in kinds)
    for at in layout.slabs(*shape, _SLAB):
        rows, cols = at
        total = _summed(case, tensors, at, a[rows], b[cols]) + 0.0  # turns -0 into +0, as in a sum from +0
        if exact and not signless:
            low[at] = finished(case, tensors, at, total.float())
            continue
        sums[at] = total
        sizes[at] = _summed(case, tensors, at, a[rows].abs(), b[cols].abs())
        off = 0 * total if exact else _bound(case, sizes[at])
        low[at], high[at] = _between(case, tensors, at, _inward(total - off, _INF), _inward(total + off, -_INF))
    if exact and not signless:
        return low
    if signless:
        low, high = (end.masked_fill(end == 0, zero) for end, zero in ((low, -0.0), (high, 0.0)))
    return Interval(low, high, sums, sizes, in_order(case, tensors, a, b, splits) if splits else None)


def _has_signless_zeros(case: Case) -> bool:
    """Whether cuBLAS scales its own sums, by per_tensor's one factor; then its kernel decides the sign of a zero."""
    flags = case.flags
    by_cublas = flags.get("route") == "library" or (flags.get("route") == "fastest" and case.rows > 512)
    return by_cublas and flags.epilogue == "per_tensor" and not (flags.beta or flags.bias)


def _summed(
    case: Case, tensors: Mapping[str, torch.Tensor], at: tuple[slice, slice], a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    if case.flags.epilogue != "windows":
        return torch.mm(a, b.T)
    windows = zip(a.split(64, dim=1), b.split(64, dim=1), strict=True)
    return sum(window_factors(tensors, at, w).double() * torch.mm(*(x, y.T)) for w, (x, y) in enumerate(windows))


def _bound(case: Case, sizes: torch.Tensor) -> torch.Tensor:
    """The largest error of a sum: a last bit for each addition and, with windows, for each product by a factor."""
    if case.flags.epilogue != "windows":
        return sizes * (case.cols / 2**23)
    off = sizes * ((case.cols + 64) / 2**23) + case.cols / 64 * 2.0**-149
    if (sizes + off > torch.finfo(torch.float32).max).any():
        raise ContractError(f"{case.recipe}: windows add up beyond float32, where an order decides what comes")
    return off


def _inward(end: torch.Tensor, direction: float) -> torch.Tensor:
    """The float32 equal to a float64, or else the next one in the given direction."""
    near = end.float()
    short = near < end if direction > 0 else near > end
    return torch.where(short, torch.nextafter(near, torch.full_like(near, direction)), near)


def _between(
    case: Case, tensors: Mapping[str, torch.Tensor], at: tuple[slice, slice], first: torch.Tensor, last: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The lowest and the highest output for accumulators from `first` to `last`."""
    least = torch.zeros_like(first).clamp(first, last)  # nearest to 0
    ends = [finished(case, tensors, at, acc) for acc in (first, last)]
    nans = sum(output.isnan().int() for output in (*ends, finished(case, tensors, at, least)))
    if ((nans == 1) | (nans == 2)).any():
        raise ContractError(f"{case.recipe}: whether an output is a NaN depends on the order of its sum")
    below, above = ends
    swapped = (above < below) | ((above == below) & above.signbit() & ~below.signbit())
    return torch.where(swapped, above, below), torch.where(swapped, below, above)
