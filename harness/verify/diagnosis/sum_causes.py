"""Hypotheses that a GEMM left out a part of its sums, counted it twice, or multiplied all of them.

An output without C and bias is linear in the products it adds up, so the counts of the parts solve a linear system with
one equation per output.
"""

from __future__ import annotations

import numpy as np

from harness.contract.case import Case
from harness.verify.diagnosis.casts import BLOCK, E2M1_VALUES, E4M3_VALUES
from harness.verify.diagnosis.evidence import FEW, Evidence, Hypothesis
from harness.verify.diagnosis.product import operand

_MOST = 1 << 11  # parts; there are two to about four equations for each
_CLEAR = 0.05  # a count may be this far from an integer


def _counts(e: Evidence, width: int) -> np.ndarray | None:
    """How often each run of `width` elements along K was added to the sums; None if that cannot be computed."""
    case, flags = e.case, e.case.flags
    if not case.is_gemm or flags.get("beta", 0) or flags.get("bias", False) or flags.get("accumulate", False):
        return None
    if flags.get("epilogue") == "windows":  # windows have factors of their own
        return None
    parts = case.cols // width
    if parts > _MOST or case.rows * case.problem.n < 2 * parts:
        return None
    a, b = (_decoded(case, e, name).reshape(-1, parts, width) for name in "ab")
    outputs = case.rows * case.problem.n
    chosen = np.linspace(0, outputs - 1, min(outputs, 4 * parts + 64)).astype(np.int64)
    rows, cols = np.divmod(np.unique(chosen), case.problem.n)
    with np.errstate(all="ignore"):
        terms = np.einsum("ipk,ipk->ip", a[rows], b[cols])
        factors = _factor(e, "a", rows) * _factor(e, "b", cols) * flags.get("alpha", 1)
        factors = factors / (36.0 * flags.a_e4m3_max * flags.b_e4m3_max)
        sizes = np.abs(terms).sum(axis=1)
        sums = e.actual_of(e.root).astype(np.float64)[rows, cols] / factors
    good = np.isfinite(sums) & np.isfinite(sizes) & (sizes > 0)
    if good.sum() < 2 * parts:
        return None
    scale = sizes[good]
    found, _, rank, _ = np.linalg.lstsq(terms[good] / scale[:, None], sums[good] / scale, rcond=None)
    whole = np.rint(found)
    return whole if rank == parts and (np.abs(found - whole) < _CLEAR).all() else None


def _decoded(case: Case, e: Evidence, name: str) -> np.ndarray:
    codes, scales = operand(case, e.tensors, name)
    return E2M1_VALUES[codes].astype(np.float64) * np.repeat(E4M3_VALUES[scales].astype(np.float64), BLOCK, axis=1)


def _factor(e: Evidence, name: str, lines: np.ndarray) -> np.ndarray:
    amax = e.tensors[f"{name}_amax"].astype(np.float64)
    return amax[lines] if amax.size > 1 else np.broadcast_to(amax, lines.shape)


def _is_partial(e: Evidence) -> bool:
    if not (e.wrong & e.valued).any() or e.kind != "output" or "a_data" not in e.tensors:
        return False
    return any(counts is not None and (counts != counts[0]).any() for counts in (_counts(e, BLOCK), _counts(e, 1)))


def _is_scaled(e: Evidence) -> bool:
    if e.kind != "output":
        return False
    with np.errstate(all="ignore"):
        ratio = e.actual.astype(np.float64) / e.right.astype(np.float64)
    ratio = ratio[e.wrong & np.isfinite(ratio) & (ratio != 0)]
    if ratio.size < FEW or abs(np.median(ratio) - 1) < _CLEAR:
        return False
    return bool((np.abs(ratio / np.median(ratio) - 1) < _CLEAR).all())


HYPOTHESES = (
    Hypothesis("a part of the sum", "some products are not in the sums, or more than once", _is_partial),
)  # fmt: skip
PATTERNS = (
    Hypothesis("a constant factor", "within 5 %, all wrong values are as many times the right ones", _is_scaled),
)  # fmt: skip
