"""Hypotheses about a wrong amax: which elements it was taken over, in place of its own granule's."""

from __future__ import annotations

import numpy as np

from harness.verify.diagnosis.casts import BLOCK
from harness.verify.diagnosis.decode_steps import DecodeSteps
from harness.verify.diagnosis.evidence import OTHER_GRANULE, OTHER_TENSOR, SAMPLE, Evidence, Hypothesis
from harness.verify.diagnosis.steps import WINDOW, Steps

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
HYPOTHESES = (
    Hypothesis("amax of a part", "each wrong amax is that of some elements of its granule and not of all", _partial),
    Hypothesis(*OTHER_GRANULE, _elsewhere),
    Hypothesis(*OTHER_GRANULE, _any_granule),
)  # fmt: skip
PATTERNS = (
    Hypothesis("amax of a part", "each wrong amax is that of some lesser element of its granule", _some_element),
    Hypothesis(OTHER_GRANULE.name, "each wrong amax is the right one of some granule", _some_granule),
    Hypothesis(OTHER_GRANULE.name, "scales are those that amaxes of other granules give, where it was looked",
               _any_line),
)  # fmt: skip
