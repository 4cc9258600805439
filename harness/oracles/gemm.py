"""gemm: D (M, N) = A (M, K) * B (N, K)^T of two NVFP4 tensors, summed in an order of the kernel's own. NUMERICS 10.2.

For each element (i, j) of the output:
  1. terms = the products of its K pairs of code * scale_inv, which float64 holds exactly, and sum = all of them
  2. acc = float32 within n * 2^-23 * (the sum of |terms|) of that sum. n is the number of fp32 additions: K, because a
     matrix unit adds the products of each 16 along K in no stated order, and each of the K additions, from +0 on, may
     be off by a last bit of what can be no more than all |terms|. Adding up the sums of parts of K adds none to these.
  3. the epilogue, as `gemm_epilogues` has it, at both ends: every step of it is monotonic in acc, its roundings, too. A
     factor below zero makes the lowest acc the highest output. `per_token` rounds to bf16 twice, at both ends.
So the output has an interval. For the input `exact_sum` no sum rounds in any order, and the output has bytes.

A NaN scale byte makes its row or column NaN in every order, and acc is never inf. Where an amax, C or bias is not
finite, or a factor overflows, every acc within its bound must give a NaN or none may: otherwise there is no contract,
and a case whose operands are like that is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Interval, order
from harness.errors import ContractError
from harness.oracles import gemm_epilogues, gemm_flags, gemm_operands, gemm_ordered, layout, nvfp4

if TYPE_CHECKING:
    import torch

__all__ = ["inputs", "numpy_oracle", "outputs", "refuse", "torch_oracle"]

ROUTES = ("mma", "library", "fastest")
_ERROR = 2.0**-23  # of an addition, relative to its result: a last bit, as matrix units may cut instead of round


def refuse(case: Case) -> None:
    """Raise ContractError for what no two quantized tensors can have, and for a route that there is not."""
    if case.flags.route not in ROUTES:
        raise ContractError(f"{case.recipe}: route must be {', '.join(ROUTES)}, not {case.flags.route}")
    gemm_flags.refuse(case)


def outputs(case: Case) -> dict[str, Field]:
    """`output` (M, N) in `flags.dtype`."""
    refuse(case)
    return gemm_ordered.outputs(case)


def inputs(case: Case, *high_precision: np.ndarray, **named: np.ndarray) -> dict[str, np.ndarray]:
    """What a kernel reads, as `gemm_operands` makes it."""
    refuse(case)
    return gemm_operands.inputs(case, *high_precision, **named)


@nvfp4.ieee
def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray | Interval]:
    """`output`, as an interval unless every sum is exact. Raises ContractError for arrays that the flags do not say."""
    refuse(case)
    gemm_operands.require(case, tensors)
    a, b = (_values(case, tensors, name) for name in "ab")
    shape, dtype = (case.rows, case.problem.n), nvfp4.DTYPES[case.flags.dtype]
    if case.input == "exact_sum":
        output = np.empty(shape, dtype)
        for rows in layout.slabs(*shape):
            output[rows] = gemm_epilogues.output(case, tensors, rows, _sums(a[rows], b).astype(np.float32))
        return {"output": output}
    interval = Interval(np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape), np.empty(shape))
    for rows in layout.slabs(*shape):
        interval.sums[rows] = _sums(a[rows], b)  # 1
        interval.sizes[rows] = _sums(np.abs(a[rows]), np.abs(b))
        ends = _accumulators(case, interval.sums[rows], interval.sizes[rows])
        interval.low[rows], interval.high[rows] = _outputs(case, tensors, rows, ends)
    return {"output": interval}


def _values(case: Case, tensors: dict[str, np.ndarray], name: str) -> np.ndarray:
    """An operand, (lines, K) float64, exactly."""
    codes, scales = gemm_operands.decoded(case, tensors, name)
    return codes.astype(np.float64) * np.repeat(scales, nvfp4.BLOCK, axis=1)


def _sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b.T + 0.0  # a sum from +0 on is never -0


def _accumulators(case: Case, sums: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step 2: the first and the last float32 within the bound."""
    bound = case.cols * _ERROR * sizes
    low, high = ((sums + sign * bound).astype(np.float32) for sign in (-1, 1))
    low = np.where(low < sums - bound, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > sums + bound, np.nextafter(high, np.float32(-np.inf)), high)
    return low, high


def _outputs(
    case: Case, tensors: dict[str, np.ndarray], rows: slice, ends: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Step 3: the lowest and the highest output of the accumulators between two."""
    low, high = ends
    # What is nearest to 0 shows a NaN that both ends hide: 0 * inf between two infinities, or a finite value between
    # two that overflow and then meet a 0.
    nearest_zero = np.where((low < 0) & (high > 0), np.float32(0), np.where(high <= 0, high, low))
    made = [gemm_epilogues.output(case, tensors, rows, acc) for acc in (low, nearest_zero, high)]
    is_nan = [np.isnan(output) for output in made]
    undecided = np.logical_or.reduce(is_nan) & ~np.logical_and.reduce(is_nan)
    if undecided.any():
        row, col = (int(i) for i in np.argwhere(undecided)[0])
        raise ContractError(
            f"{case.recipe}: the order of the sum decides whether output [{rows.start + row}, {col}] is a NaN; amaxes, "
            "C and bias must be such that no order of it does"
        )
    falls = order(made[0]) > order(made[2])
    return np.where(falls, made[2], made[0]), np.where(falls, made[0], made[2])


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | Interval]:
    """The same field from the independent torch oracle, on the device the tensors are on."""
    from harness.oracles import torch_gemm_bounds

    refuse(case)
    gemm_operands.require(case, tensors)
    return {"output": torch_gemm_bounds.bounded(case, tensors)}
