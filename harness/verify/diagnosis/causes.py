"""Hypotheses about one kind of field: the sums of a GEMM, choices between neighbouring codes, and amaxes.

An output without C and bias is linear in the products it adds up, so the counts of the parts solve a linear system with
one equation per output. A wrong amax is asked which elements it was taken over, in place of its own granule's.
"""

from __future__ import annotations

import math

import numpy as np

from harness.contract.case import Case
from harness.expected.expected import oracle_of
from harness.expected.formats import BLOCK, E2M1_VALUES, VALUES, unpacked
from harness.oracles import layout
from harness.verify.diagnosis.decode_steps import DecodeSteps, operand
from harness.verify.diagnosis.evidence import FEW, OTHER_GRANULE, OTHER_TENSOR, SAMPLE, Evidence, Hypothesis
from harness.verify.diagnosis.steps import WINDOW, Steps

_MOST_PARTS = 1 << 11  # parts; there are two to about four equations for each
_CLEAR = 0.05  # a count may be this far from an integer


def _counts(e: Evidence, width: int) -> np.ndarray | None:
    """How often each run of `width` elements along K was added to the sums; None if that cannot be computed."""
    case, flags = e.case, e.case.flags
    if not case.is_gemm or flags.get("beta", 0) or flags.get("bias", False) or flags.get("accumulate", False):
        return None
    if flags.get("epilogue") == "windows":  # windows have factors of their own
        return None
    parts = case.cols // width
    if parts > _MOST_PARTS or case.rows * case.problem.n < 2 * parts:
        return None
    a, b = (_decoded(case, e, name).reshape(-1, parts, width) for name in "ab")
    outputs = case.rows * case.problem.n
    chosen = np.linspace(0, outputs - 1, min(outputs, 4 * parts + 64)).astype(np.int64)
    rows, cols = np.divmod(np.unique(chosen), case.problem.n)
    with np.errstate(all="ignore"):
        terms = np.einsum("ipk,ipk->ip", a[rows], b[cols])
        factors = _factor(e, "a", rows) * _factor(e, "b", cols) * flags.get("alpha", 1)
        factors = factors / math.prod(_aimed_at(case, name) for name in "ab")
        sizes = np.abs(terms).sum(axis=1)
        sums = e.actual_of(e.root).astype(np.float64)[rows, cols] / factors
    good = np.isfinite(sums) & np.isfinite(sizes) & (sizes > 0)
    if good.sum() < 2 * parts:
        return None
    shares, sums = terms[good] / sizes[good, None], sums[good] / sizes[good]
    found, _, rank, _ = np.linalg.lstsq(shares, sums, rcond=None)
    whole = np.rint(found)
    # The fit is an average, which outputs of another mistake may leave near integers.
    fits = (np.abs(found - whole) < _CLEAR).all() and (np.abs(shares @ whole - sums) < _CLEAR).all()
    return whole if rank == parts and fits else None


def _decoded(case: Case, e: Evidence, name: str) -> np.ndarray:
    codes, scales = operand(case, e.tensors, name)
    scale = VALUES[case.scale_format][scales].astype(np.float64)
    return E2M1_VALUES[codes].astype(np.float64) * np.repeat(scale, BLOCK, axis=1)


def _aimed_at(case: Case, name: str) -> float:
    """The largest value of an operand under an amax of 1, which is the amax of one that has none."""
    return 6.0 * (case.scale_max if case.scale_format == "ue5m3" else case.flags[f"{name}_e4m3_max"])


def _factor(e: Evidence, name: str, lines: np.ndarray) -> np.ndarray:
    amax = np.float64(e.tensors.get(f"{name}_amax", [_aimed_at(e.case, name)]))
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


SUMS = (
    Hypothesis("a part of the sum", "some products are not in the sums, or more than once", _is_partial),
)  # fmt: skip
OF_SUMS = (
    Hypothesis("a constant factor", "within 5 %, all wrong values are as many times the right ones", _is_scaled),
)  # fmt: skip


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
    if not e.kind.endswith("data"):
        return False
    eight_bits = e.kind.startswith("e4m3")
    right, actual = (e.right, e.actual) if eight_bits else (unpacked(e.right), unpacked(e.actual))
    wrong, largest = right != actual, (right & 0x7F == 0x7E) if eight_bits else (right & 7 == 7)
    return np.count_nonzero(wrong) >= FEW and bool(largest[wrong].all())


CHOICES = (
    Hypothesis(CANDIDATE, "every wrong block is encoded as the candidate that does not win", _candidate),
)  # fmt: skip
CODES = (
    Hypothesis("other random bits", "codes went to the other neighbour of their products, up and down alike",
               _random_bits),
)  # fmt: skip
OF_CODES = (Hypothesis("values that saturate", "every wrong code is of a value that saturates", _saturation),)


_MOST_BLOCKS, _MOST_AMAXES = 64, 4096
_SHARES = (0.5, 0.625, 0.75, 0.8125, 0.875, 0.9375)  # of an amax, for the values that a mistake may give by chance
_NEAR = (1 - 2**-7, 1 + 2**-7, 1 - 2**-6, 1 + 2**-6)
_BY_CHANCE = 1e-3


def _is_encoded_amax(e: Evidence) -> bool:
    return e.kind == "amax" and isinstance(e.steps, Steps)


def _magnitudes(e: Evidence) -> np.ndarray | None:
    """The magnitudes of every granule, (lines, granules of a line, elements); None for a large input."""
    x = e.tensors.get("input")
    if not _is_encoded_amax(e) or x is None or x.size > SAMPLE:
        return None
    lines = np.abs(e.steps.lines(x, slice(None)))
    if e.right.shape == (1,):
        return lines.reshape(1, 1, -1)
    return lines.reshape(len(lines), -1, WINDOW if e.steps.granularity == "window" else lines.shape[1])


def _partial(e: Evidence) -> bool:
    """Whether every wrong amax is a lesser magnitude of its own granule, where few of the lesser values are one."""
    if not _is_encoded_amax(e) or not (e.actual < e.right)[e.wrong].all() or not e.actual[e.wrong].any():
        return False
    magnitudes = _magnitudes(e)
    if magnitudes is None:
        return False

    def present(values: np.ndarray) -> np.ndarray:
        found = (magnitudes == values.reshape(len(magnitudes), -1)[:, :, None]).any(axis=2)
        return found.reshape(e.right.shape)[e.wrong]

    dtype = e.tensors["input"].dtype
    chance = np.mean([present((e.right * np.float32(share)).astype(dtype).astype(np.float32)) for share in _SHARES])
    return bool(present(e.actual).all()) and chance ** np.count_nonzero(e.wrong) < _BY_CHANCE


def _some_element(e: Evidence) -> bool:
    magnitudes = _magnitudes(e)
    if magnitudes is None or not (e.actual < e.right)[e.wrong].all() or not e.actual[e.wrong].all():
        return False
    found = (magnitudes == e.actual.reshape(len(magnitudes), -1)[:, :, None]).any(axis=2)
    return bool(found.reshape(e.right.shape)[e.wrong].all())


def _some_granule(e: Evidence) -> bool:
    return _is_encoded_amax(e) and e.right.size > 1 and bool(np.isin(e.actual[e.wrong], e.right).all())


def _elsewhere(e: Evidence) -> bool:
    """Whether every wrong amax is the right one of another granule, where few values near by are one."""
    if not _is_encoded_amax(e) or e.right.size == 1:
        return False
    dtype = e.tensors["input"].dtype
    near = [(e.right[e.wrong] * np.float32(share)).astype(dtype).astype(np.float32) for share in _NEAR]
    chance = np.isin(near, e.right).mean()
    return bool(np.isin(e.actual[e.wrong], e.right).all()) and chance ** np.count_nonzero(e.wrong) < _BY_CHANCE


def _floored(e: Evidence) -> bool:
    if not _is_encoded_amax(e) or not e.steps.amax_floor:
        return False
    return np.array_equal(np.fmax(e.right, np.float32(e.steps.amax_floor)), e.actual)


def _of_another_tensor(e: Evidence) -> bool:
    if not _is_encoded_amax(e) or e.right.shape != (1,):
        return False
    return any(bool(e.actual[0] == e.steps.amax(other["input"])[0]) for other in e.others)


def _any_granule(e: Evidence) -> bool:
    """Whether every wrong decoded block has the values that some other amax gives."""
    if not isinstance(e.steps, DecodeSteps) or e.steps.granularity == "tensor":
        return False
    amaxes = np.unique(e.tensors["amax"])[:_MOST_AMAXES]
    got = e.steps.decode(e.tensors, np.arange(e.case.rows))
    rows, blocks = np.nonzero(e.wrong.reshape(e.case.rows, -1, BLOCK).any(axis=2))
    for row, block in zip(rows[:_MOST_BLOCKS], blocks[:_MOST_BLOCKS], strict=True):
        span = slice(block * BLOCK, block * BLOCK + BLOCK)
        made = e.steps.values(got.codes[row, span], got.scale_inv[row, block], amaxes)
        if not (made.view(np.uint8) == e.actual[row, span].view(np.uint8)).all(axis=1).any():
            return False
    return True


def _any_line(e: Evidence) -> bool:
    """Whether the scales of every granule with a wrong one are those that some other amax gives."""
    if e.kind != "scale_inv" or not isinstance(e.steps, Steps) or e.steps.granularity == "tensor":
        return False
    given = e.tensors.get(f"{e.side}_amax")
    amaxes = np.unique(e.steps.amax(e.tensors["input"]) if given is None else given)[:_MOST_AMAXES]
    blocks = e.baseline.block_amax.shape[1]
    width = WINDOW // BLOCK if e.steps.granularity == "window" else blocks
    wrong, actual = e.wrong[e.lines, :blocks], e.actual[e.lines, :blocks]
    lines, granules = np.nonzero(wrong.reshape(len(wrong), -1, width).any(axis=2))
    for line, granule in zip(lines[:_MOST_BLOCKS], granules[:_MOST_BLOCKS], strict=True):
        span = slice(granule * width, granule * width + width)
        made = e.steps.scales(e.baseline.block_amax[line, span], amaxes)
        if not (made == actual[line, span]).all(axis=1).any():
            return False
    return len(lines) > 0


EXACT = (
    Hypothesis("floor on the stored amax", "what is stored is never less than what S_enc is computed from", _floored),
    Hypothesis(*OTHER_TENSOR, _of_another_tensor),
)  # fmt: skip
AMAXES = (
    Hypothesis("amax of a part", "each wrong amax is that of some elements of its granule and not of all", _partial),
    Hypothesis(*OTHER_GRANULE, _elsewhere),
    Hypothesis(*OTHER_GRANULE, _any_granule),
)  # fmt: skip
OF_AMAXES = (
    Hypothesis("amax of a part", "each wrong amax is that of some lesser element of its granule", _some_element),
    Hypothesis(OTHER_GRANULE.name, "each wrong amax is the right one of some granule", _some_granule),
    Hypothesis(OTHER_GRANULE.name, "scales are those that amaxes of other granules give, where it was looked",
               _any_line),
)  # fmt: skip
