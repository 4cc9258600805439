"""GEMM in any order, and in Hopper's, in torch: NUMERICS 10.2, derived apart from the NumPy oracle.

An fp32 addition, rounded or cut, is off by at most 2^-23 of its result, and no partial sum exceeds the sum of all
|terms|; an output of K terms takes K additions. `torch_gemm.finished` takes both ends through the epilogue.

In the order of H1 to H5, values are codes times scales times 2^-7, of ue5m3 2^-4, the f16 that the matrix unit reads,
and the sum so far is a float32 throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

import torch

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.errors import ContractError
from harness.oracles import torch_layout as layout
from harness.oracles.torch_gemm import finished, values, window_factors
from harness.oracles.torch_source import DTYPES

_SLAB = 1 << 24  # elements of the output that are bounded at one time
_INF = float("inf")
_SUMS = {"cpu": 1 << 11, "cuda": 1 << 20}  # sums in order at a time; on a CPU few, so that torch uses one thread
_KEPT = 25  # bits that a term keeps below the largest exponent
_UNITS = {"e4m3": 2.0**-7, "ue5m3": 2.0**-4}  # unit of a factor
_LOWEST = -400  # the exponent of a 0, below all others


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
    return Interval(low, high, sums, sizes, _in_order(case, tensors, a, b, splits) if splits else None)


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


def parts_of_k(case: Case) -> int:
    """How many parts K is summed in: 4 for few rows, one part per warpgroup of a CTA, else 1."""
    return 1 if case.problem.m > 64 or case.flags.epilogue == "windows" else 4


def _in_order(
    case: Case, tensors: Mapping[str, torch.Tensor], a: torch.Tensor, b: torch.Tensor, splits: int
) -> torch.Tensor:
    """The output (M, N) of a product whose sums are taken in this order.

    a, b: (M, K) and (N, K) float64, code times scale; splits: the parts into which stages of 128 are dealt out
    """
    out = torch.empty((case.rows, case.problem.n), dtype=DTYPES[case.flags.dtype], device=a.device)
    by_window, unit = case.flags.epilogue == "windows", _UNITS[case.scale_format]
    factors = [_Factors.of(x * unit, 64 if by_window else 128) for x in (a, b)]
    for at in _tiles(*out.shape, _SUMS.get(a.device.type, 1 << 10)):
        left, right = (one.lines(part) for one, part in zip(factors, at, strict=True))
        total = torch.zeros((left.count, right.count), device=a.device)
        if by_window:
            for window in range(case.cols // 64):
                own = _accumulated(left, right, range(4 * window, 4 * window + 4)) / unit**2
                total = total + window_factors(tensors, at, window) * own
        else:
            for part in range(splits):
                steps = [s for s in range(left.steps) if s // 8 % splits == part]
                total = total + _accumulated(left, right, steps)
            total = total / unit**2
        out[at] = finished(case, tensors, at, total)
    return out


def _tiles(rows: int, cols: int, sums: int) -> Iterator[tuple[slice, slice]]:
    height = min(rows, int(sums**0.5))
    width = sums // height
    for top, left in product(range(0, rows, height), range(0, cols, width)):
        yield slice(top, min(top + height, rows)), slice(left, min(left + width, cols))


class _Factors:
    """Lines of an operand, cut into the steps of sixteen that an instruction takes.

    value: (steps, 16, lines) float64; exponent: int16, of the f16 as its bits have it, subnormal ones being -14
    """

    def __init__(self, value: torch.Tensor, exponent: torch.Tensor):
        self.value, self.exponent = value, exponent
        self.steps, _, self.count = value.shape

    @classmethod
    def of(cls, x: torch.Tensor, group: int) -> _Factors:
        """group: 64 of a window, or 128 of a stage, which is filled up with zeros"""
        x = torch.nn.functional.pad(x, (0, -x.shape[1] % group))
        # Within a group: the block or pair of blocks, which of the pair, the word of a block, two codes on, odd or even
        cut = x.unflatten(1, (-1, 4, group // 64, 2, 4, 2))
        value = cut.permute(1, 3, 4, 6, 2, 5, 0).reshape(-1, 16, len(x)).contiguous()
        return cls(value, _exponent(value).clamp(min=-14).masked_fill(value == 0, _LOWEST).short())

    def lines(self, some: slice) -> _Factors:
        return _Factors(self.value[:, :, some], self.exponent[:, :, some])


def _accumulated(a: _Factors, b: _Factors, steps: Iterable[int]) -> torch.Tensor:
    """float32 (lines of a, lines of b): from +0 on, one step after the other."""
    acc = torch.zeros((a.count, b.count), dtype=torch.float64, device=a.value.device)
    for step in steps:
        exponents = a.exponent[step].unsqueeze(2) + b.exponent[step].unsqueeze(1)
        highest = torch.maximum(exponents.amax(dim=0).long(), _exponent(acc)).clamp(min=_LOWEST)
        last_bit = (highest - _KEPT + 1023).bitwise_left_shift(52).view(torch.float64)
        products = a.value[step].unsqueeze(2) * b.value[step].unsqueeze(1)
        kept = torch.div(products, last_bit, rounding_mode="trunc").sum(dim=0)
        kept = kept + torch.div(acc, last_bit, rounding_mode="trunc")
        acc = _shortened(kept * last_bit)
    return acc.float()


def _exponent(x: torch.Tensor) -> torch.Tensor:
    """The exponents of normal float64 numbers, int64; for 0 below `_LOWEST`, for NaN the largest."""
    return (x.abs().view(torch.int64) >> 52) - 1023


def _shortened(x: torch.Tensor) -> torch.Tensor:
    """A float64 rounded to float32 toward zero."""
    near = x.float()
    beyond = near.abs().double() > x.abs()
    return torch.where(beyond, torch.nextafter(near, torch.zeros_like(near)), near).double()
