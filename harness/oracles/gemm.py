"""gemm: D (M, N) = A (M, K) * B (N, K)^T of two NVFP4 tensors, summed in any order. NUMERICS section 10.2.

For each element (i, j) of the output:
  1. terms = the K products (code * sa) * (code * sb), each exact in float64; sum = their exact sum
  2. acc is a float32 within K * 2^-23 * sum(|terms|) of sum
     A matrix unit adds in no stated order and may cut instead of round, so each of the K fp32 additions is off by at
     most a last bit of what is no more than all |terms|. A K that is split and added up again has no more additions.
     epilogue windows: terms are multiplied by RN(a_iw * b_jw) of their window of 64, and acc is within
     (K + 64) * 2^-23 * sum(|terms|) + K/64 * 2^-149 of their sum: the sum of a window is off by 64 last bits, its
     product by one, and K/64 of them are added; a product may be subnormal
  3. D lies between the epilogues of the smallest and the largest such acc, see `gemm_ordered.epilogue`
     Every step of an epilogue is monotonic in acc, its roundings too. A negative factor swaps the ends.
On the input `exact_sum` no sum rounds in any order, and the output has bytes instead of an interval.
Where cuBLAS multiplies by alpha' itself, a zero may have either sign: some of its kernels add a +0, and some do not.

The interval also has the bytes that our kernels write on Hopper, whose order of the sum is known (see `gemm_hopper`),
of products that they sum and that are not too large (see `has_order`).

A NaN scale byte makes its row or column NaN in every order, and acc is never inf. Where an amax, C or bias is not
finite, or a factor overflows, either every acc within the bound gives a NaN or none does; other operands are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Interval, may_be_ordered, order
from harness.errors import ContractError
from harness.oracles import gemm_flags, gemm_hopper, gemm_operands, gemm_ordered, layout, nvfp4, quantizer
from harness.oracles.gemm_ordered import epilogue

if TYPE_CHECKING:
    import torch

ROUTES = ("mma", "library", "fastest")
SKINNY_ROWS, SKINNY_SPLITS = 64, 4  # a special kernel for at most this many rows sums K in this many parts
FASTEST_ROWS = 512  # up to so many rows the route fastest sums by our kernels
_ERROR = 2.0**-23  # relative error of one addition that cuts
_LEAST = 2.0**-149  # the smallest subnormal


def refuse(case: Case) -> None:
    if case.flags.route not in ROUTES:
        raise ContractError(f"{case.recipe}: route must be {', '.join(ROUTES)}, not {case.flags.route}")
    if case.flags.epilogue == "windows":
        quantizer.require(case, "route", "mma", "a library multiplies whole lines, and amaxes differ along them")
    gemm_flags.refuse(case)
    refuse_large(case)


def refuse_large(case: Case) -> None:
    """Raise ContractError for a product, or a group of products, beyond what the recipe's kernels take."""
    error = case.problem.too_large_for(case.recipe)
    if error:
        raise ContractError(f"{case.recipe}: {error}")


def outputs(case: Case) -> dict[str, Field]:
    """`output` (M, N) in `flags.dtype`."""
    refuse(case)
    return gemm_ordered.outputs(case)


def inputs(case: Case, *high_precision: np.ndarray, **named: np.ndarray) -> dict[str, np.ndarray]:
    """See `gemm_operands.inputs`."""
    refuse(case)
    return gemm_operands.inputs(case, *high_precision, **named)


def has_either_zero(case: Case) -> bool:
    """Whether cuBLAS itself scales its sums to the output, so that a zero may have either sign."""
    flags = case.flags
    library = flags.get("route") == "library" or (flags.get("route") == "fastest" and case.rows > FASTEST_ROWS)
    return library and flags.epilogue == "per_tensor" and flags.beta == 0 and not flags.bias


def has_order(case: Case) -> bool:
    """Whether our kernels sum the product, and it is small enough to be summed again in their order."""
    ours = case.flags.route == "mma" or (case.flags.route == "fastest" and case.rows <= FASTEST_ROWS)
    return ours and may_be_ordered(case.terms)


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray | Interval]:
    """`output`, as an interval unless every sum is exact."""
    return numpy_answer(case, tensors, (SKINNY_SPLITS if case.rows <= SKINNY_ROWS else 1) if has_order(case) else 0)


@nvfp4.ieee
def numpy_answer(case: Case, tensors: dict[str, np.ndarray], splits: int) -> dict[str, np.ndarray | Interval]:
    """`numpy_oracle` for a product whose K is summed in `splits` parts; 0 if the order is not stated."""
    refuse(case)
    gemm_operands.require(case, tensors)
    a, b = (_values(case, tensors, name) for name in "ab")
    shape, dtype = (case.rows, case.problem.n), nvfp4.DTYPES[case.flags.dtype]
    exact, either_zero = case.input == "exact_sum", has_either_zero(case)
    if exact and not either_zero:
        output = np.empty(shape, dtype)
        for rows in layout.slabs(*shape):
            sums = _sums(case, tensors, rows, a[rows], b)
            output[rows] = epilogue(case, tensors, rows, sums.astype(np.float32))
        return {"output": output}
    interval = Interval(np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape), np.empty(shape))
    for rows in layout.slabs(*shape):
        interval.sums[rows] = _sums(case, tensors, rows, a[rows], b)  # 1
        interval.sizes[rows] = _sums(case, tensors, rows, np.abs(a[rows]), np.abs(b))
        if exact:
            ends = (interval.sums[rows].astype(np.float32),) * 2
        else:
            ends = _accumulators(case, interval.sums[rows], interval.sizes[rows])
        interval.low[rows], interval.high[rows] = _outputs(case, tensors, rows, ends)
    if either_zero:
        interval.low[interval.low == 0], interval.high[interval.high == 0] = -0.0, 0.0
    if splits:
        interval = replace(interval, ordered=_ordered(case, tensors, a, b, splits))
    return {"output": interval}


@nvfp4.ieee
def _ordered(case: Case, tensors: dict[str, np.ndarray], a: np.ndarray, b: np.ndarray, splits: int) -> np.ndarray:
    """The output with sums in the order of Hopper's matrix unit."""
    if case.flags.epilogue == "windows":
        acc = gemm_hopper.sums_of_windows(a, b, tensors["a_amax"], tensors["b_amax"])
    else:
        acc = gemm_hopper.sums(a, b, splits, case.scale_format)
    output = np.empty(acc.shape, nvfp4.DTYPES[case.flags.dtype])
    for rows in layout.slabs(*output.shape):
        output[rows] = epilogue(case, tensors, rows, acc[rows])
    return output


def _values(case: Case, tensors: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Code times scale of an operand, (lines, K) float64; exact."""
    codes, scales = gemm_operands.decoded(case, tensors, name)
    return codes.astype(np.float64) * np.repeat(scales, nvfp4.BLOCK, axis=1)


@nvfp4.ieee
def _sums(case: Case, tensors: dict[str, np.ndarray], rows: slice, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if case.flags.epilogue != "windows":
        return a @ b.T + 0.0  # a sum that starts at +0 is never -0
    total = np.zeros((len(a), len(b)))
    for w, (of_a, of_b) in enumerate(zip(tensors["a_amax"][rows].T, tensors["b_amax"].T, strict=True)):
        along = slice(w * nvfp4.WINDOW, (w + 1) * nvfp4.WINDOW)
        total += (of_a[:, None] * of_b).astype(np.float64) * (a[:, along] @ b[:, along].T)
    return total


def _accumulators(case: Case, sums: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step 2: the first and the last float32 within the bound."""
    bound = case.cols * _ERROR * sizes
    if case.flags.epilogue == "windows":
        bound = (case.cols + nvfp4.WINDOW) * _ERROR * sizes + case.cols // nvfp4.WINDOW * _LEAST
        if (np.abs(sizes) + bound > nvfp4.FLT_MAX).any():
            raise ContractError(f"{case.recipe}: a sum of windows overflows float32, and its order decides what comes")
    low, high = ((sums + sign * bound).astype(np.float32) for sign in (-1, 1))
    low = np.where(low < sums - bound, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > sums + bound, np.nextafter(high, np.float32(-np.inf)), high)
    return low, high


def _outputs(
    case: Case, tensors: dict[str, np.ndarray], rows: slice, ends: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Step 3: the lowest and the highest output over all accumulators between two ends."""
    low, high = ends
    # The accumulator nearest to 0 shows a NaN that both ends hide: 0 * inf between two infinities, or a finite value
    # between two that overflow and then meet a 0.
    nearest_zero = np.clip(np.float32(0), low, high)
    made = [epilogue(case, tensors, rows, acc) for acc in (low, nearest_zero, high)]
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
    from harness.oracles import torch_gemm_bounds

    return torch_answer(case, tensors, torch_gemm_bounds.parts_of_k(case) if has_order(case) else 0)


def torch_answer(case: Case, tensors: dict[str, torch.Tensor], splits: int) -> dict[str, torch.Tensor | Interval]:
    """`torch_oracle` for a product whose K is summed in `splits` parts; 0 if the order is not stated."""
    from harness.oracles import torch_gemm_bounds

    refuse(case)
    gemm_operands.require(case, tensors)
    return {"output": torch_gemm_bounds.bounded(case, tensors, splits)}
