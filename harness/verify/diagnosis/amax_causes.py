"""Hypotheses about a wrong amax: which elements it was taken over, in place of its own granule's."""

from __future__ import annotations

import numpy as np

from harness.verify.diagnosis.casts import BLOCK
from harness.verify.diagnosis.decode_steps import DecodeSteps
from harness.verify.diagnosis.evidence import OTHER_GRANULE, OTHER_TENSOR, SAMPLE, Evidence, Hypothesis
from harness.verify.diagnosis.steps import WINDOW, Steps

_MOST_BLOCKS, _MOST_AMAXES = 64, 4096


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
    """Whether every wrong amax is a magnitude of its own granule, or 0."""
    if _is_encoded_amax(e) and e.right.shape == (1,):
        found, x = e.actual[0], e.tensors["input"]
        numbers = range(0, x.shape[e.steps.direction], BLOCK)
        return found == 0 or any((abs(e.steps.lines(x, slice(n, n + BLOCK))) == found).any() for n in numbers)
    magnitudes = _magnitudes(e)
    if magnitudes is None:
        return False
    found = e.actual.reshape(len(magnitudes), -1)
    own = (magnitudes == found[:, :, None]).any(axis=2) | (found == 0)
    return bool(own.reshape(e.actual.shape)[e.wrong].all())


def _elsewhere(e: Evidence) -> bool:
    magnitudes = _magnitudes(e)
    return magnitudes is not None and e.right.size > 1 and bool(np.isin(e.actual[e.wrong], magnitudes).all())


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


HYPOTHESES = (
    Hypothesis("floor on the stored amax", "what is stored is never less than what S_enc is computed from", _floored),
    Hypothesis("amax of a part", "the amax is that of some elements and not of all", _partial),
    Hypothesis(*OTHER_GRANULE, _elsewhere),
    Hypothesis(*OTHER_GRANULE, _any_granule),
    Hypothesis(*OTHER_GRANULE, _any_line),
    Hypothesis(*OTHER_TENSOR, _of_another_tensor),
)
