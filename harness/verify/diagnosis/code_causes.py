"""Hypotheses about choices between neighbours: four_over_six's candidates, and the ways to round at random."""

from __future__ import annotations

import numpy as np

from harness.oracles import layout
from harness.verify.diagnosis.casts import E2M1_VALUES, unpacked
from harness.verify.diagnosis.evidence import FEW, SAMPLE, Evidence, Hypothesis
from harness.verify.diagnosis.steps import Steps
from harness.verify.expected import oracle_of

CANDIDATE = "another candidate"
_OFTEN = 0.15  # other random bits change a third of the codes that are not exact
_ALIKE = 0.2


def _candidate(e: Evidence) -> bool:
    oracle = oracle_of(e.case.recipe)
    if not hasattr(oracle, "candidates") or e.kind not in ("scale_inv", "data"):
        return False
    direction = layout.DIRECTIONS[e.side]
    x = e.tensors["input"]
    amax = e.tensors.get(f"{e.side}_amax", e.expected.get(f"{e.side}_amax"))
    if amax is None or x.size > SAMPLE:
        return False
    values = np.ascontiguousarray(x.T if direction.transposed else x).astype(np.float32)
    slab = layout.Slab(direction, slice(0, len(values)), values)
    amax = layout.amax_of_blocks(amax, slab.lines, "row" if e.case.flags.row_scaled else "tensor")
    both = oracle.candidates(e.case, slab, amax)
    if e.kind == "scale_inv":
        wrong = e.wrong[: len(values), : both[0].scale_inv.shape[1]]
        actual = e.actual[: len(values), : both[0].scale_inv.shape[1]]
        return bool(np.logical_or(*(actual == one.scale_inv for one in both))[wrong].all())
    actual, wrong = unpacked(e.actual), np.repeat(e.wrong, 2, axis=1)
    return bool(np.logical_or(*(actual == one.codes for one in both))[wrong].all())


def _random_bits(e: Evidence) -> bool:
    if e.kind != "data" or not isinstance(e.steps, Steps) or e.steps.rounding != "sr":
        return False
    right, actual = e.codes
    product = np.minimum(np.abs(e.baseline.product), np.float32(6))
    low = np.searchsorted(E2M1_VALUES[:8], product, side="right") - 1
    high = np.minimum(low + (E2M1_VALUES[low] != product), 7)
    magnitude = actual & 7
    fits = ((magnitude == low) | (magnitude == high)) & (actual >> 3 == right >> 3)
    wrong = right != actual
    inexact = low != high
    upward = ((actual & 7) > (right & 7))[wrong].mean()
    often = wrong.sum() >= max(FEW, _OFTEN * inexact.sum())
    return bool(fits[wrong].all()) and bool(often) and abs(upward - 0.5) < _ALIKE


def _saturation(e: Evidence) -> bool:
    if not e.kind.endswith("data") or e.kind.startswith("e4m3"):
        return False
    right, actual = unpacked(e.right), unpacked(e.actual)
    wrong = right != actual
    return np.count_nonzero(wrong) >= FEW and bool((right & 7 == 7)[wrong].all())


CHOICES = (
    Hypothesis(CANDIDATE, "every wrong block is encoded as the candidate that does not win", _candidate),
)  # fmt: skip
HYPOTHESES = (
    Hypothesis("other random bits", "codes went to the other neighbour of their products, up and down alike",
               _random_bits),
)  # fmt: skip
PATTERNS = (Hypothesis("values that saturate", "every wrong code is of a value that saturates", _saturation),)
