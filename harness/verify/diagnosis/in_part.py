"""Whether a mistake was made in a part of a tensor: everywhere in some lines, blocks or tiles, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.verify.diagnosis.casts import BLOCK, unpacked
from harness.verify.diagnosis.evidence import FEW, Evidence


def part_of(e: Evidence, predicted: np.ndarray, chosen: np.ndarray | slice = slice(None)) -> str:
    """In which part of the root a mistake was made, as a phrase; empty if it was not.

    Wherever a cell has a wrong entry, all entries of that cell must be those that the mistake gives. Each of them
    beyond a cell's first could have contradicted, and so many must not have.

    predicted: the root with the mistake made everywhere, compact; chosen: the lines of the root that it has
    """
    if e.kind == "amax":
        same = predicted.shape == e.actual.shape and np.array_equal(predicted, e.actual, equal_nan=True)
        return "as far as the amaxes show" if same else ""
    right, actual = e.right[chosen], e.actual[chosen]
    if predicted.ndim != 2 or predicted.shape[0] != right.shape[0] or predicted.shape[1] > right.shape[1]:
        return ""
    right, actual = right[:, : predicted.shape[1]], actual[:, : predicted.shape[1]]
    width = 1
    if e.kind == "data":
        right, actual, predicted, width = unpacked(right), unpacked(actual), unpacked(predicted), BLOCK
    bits = f"u{right.dtype.itemsize}"
    right, actual, predicted = (np.ascontiguousarray(array).view(bits) for array in (right, actual, predicted))
    wrong, changed = right != actual, right != predicted
    if not wrong.any() or (wrong & (actual != predicted)).any():
        return ""
    numbers = np.arange(e.right.shape[0])[chosen]
    for called, cells in _partitions(numbers, right.shape[1], width):
        flat = np.broadcast_to(cells, right.shape).reshape(-1)
        made, could = (np.bincount(flat[mask.reshape(-1)], minlength=flat.max() + 1) for mask in (wrong, changed))
        hit = made > 0
        if hit.sum() == np.count_nonzero(could):
            continue  # made everywhere, which other fields of the side deny
        if (made[hit] == could[hit]).all() and (could[hit] - 1).sum() >= FEW:
            return f"in {np.count_nonzero(hit)} of {np.count_nonzero(could)} {called}"
    return ""


def _partitions(lines: np.ndarray, length: int, width: int) -> Iterator[tuple[str, np.ndarray]]:
    """Ways to part a root into cells, each with the number of every entry's cell. width: entries of a block"""
    columns = np.arange(length)
    if width > 1:
        yield "positions of blocks", (columns % width)[None, :]
    yield "lines", lines[:, None] - lines[0]
    yield "columns of blocks", (columns // width)[None, :]
    yield "lines of 16", lines[:, None] % BLOCK
    yield "tiles of 16 lines by a block", (lines[:, None] - lines[0]) // BLOCK * length + columns[None, :] // width
