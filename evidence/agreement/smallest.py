"""The smallest input that shows a difference: one block, with as few values as do, and an amax beside it if needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.problem import Dense
from harness.expected.expected import Expected, expect_on, oracle_of
from harness.oracles import layout

MOST = 64  # at most this many blocks of a case are tried

# What a case and its expected bytes show of the difference in question; None if they do not show it.
Shown = Callable[[Case, Expected], str | None]


def smallest(case: Case, expected: Expected, written: Mapping[str, np.ndarray], shown: Shown) -> str:
    """A sentence with the values and what is wrong, or an empty one if no block of the case shows it by itself.

    The block begins the first line of a tensor with two blocks in a line, and the amax ends that line; all else is 0.
    """
    for direction, values, amax in _blocks(case, expected, written):
        at = np.append(values, amax)
        said = shown(*_tensor(case, expected, direction, at))
        if not said:
            continue
        for index in (at.size - 1, *range(at.size - 1)):
            kept, at[index] = at[index], 0
            less = shown(*_tensor(case, expected, direction, at))
            if less:
                said = less
            else:
                at[index] = kept
        return f"{_described(at[:-1])}{f' beside an amax of {at[-1]:.9g}' if at[-1] else ''}: {said}"
    return ""


def _described(block: np.ndarray) -> str:
    """The values of a block: `16 values, 1.25 at 3, 0.5 at 9, else 0`."""
    same = {f"{value:.9g}" for value in block}
    if len(same) == 1:
        return f"{block.size} values, all {same.pop()}"
    kept = ", ".join(f"{value:.9g} at {index}" for index, value in enumerate(block) if value)
    return f"{block.size} values, {kept}, else 0"


def _tensor(case: Case, expected: Expected, direction: layout.Direction, at: np.ndarray) -> tuple[Case, Expected]:
    """The case of a tensor with one block and one value behind it, and what must be written."""
    block = at.size - 1
    x = np.zeros((block, 2 * block), expected.inputs["input"].dtype)
    x[0, :block], x[0, -1] = at[:-1], at[-1]
    x = np.ascontiguousarray(x.T) if direction.transposed else x
    small = replace(case, problem=Dense(*x.shape), seed_of=case.seed_name)
    return small, expect_on(small, oracle_of(case.recipe).inputs(small, x=x))


def _blocks(case: Case, expected: Expected, written: Mapping) -> Iterator[tuple[layout.Direction, np.ndarray, float]]:
    """The blocks that differ, those with NaN or inf first: direction, float64 values, and the amax of their granule."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        x = expected.inputs["input"].astype(np.float32).astype(np.float64)
    for direction in layout.DIRECTIONS.values():
        data, scales = f"{direction.name}_data", f"{direction.name}_scale_inv"
        if data not in expected.fields or case.flags.get("rht"):
            continue
        bytes_of = [_lines(expected.fields[scales], direction, part[scales]) for part in (expected.values, written)]
        shape = bytes_of[0].shape  # lines, blocks of one
        codes = [_lines(expected.fields[data], direction, part[data]) for part in (expected.values, written)]
        ours, theirs = (part.reshape(*shape, -1) for part in codes)
        other = (ours != theirs).any(axis=2) | (bytes_of[0] != bytes_of[1])
        blocks = (x.T if direction.transposed else x).reshape(*shape, -1)
        amax = {**expected.values, **expected.inputs}.get(f"{direction.name}_amax")
        by_line = amax is not None and amax.size == shape[0]
        found = sorted(np.argwhere(other).tolist(), key=lambda at: bool(np.isfinite(blocks[tuple(at)]).all()))
        for line, block in found[:MOST]:
            granule = blocks[line] if by_line else blocks
            yield direction, blocks[line, block], float(np.fmax.reduce(np.abs(granule), axis=None))


def _lines(field: Field, direction: layout.Direction, array: np.ndarray) -> np.ndarray:
    """A field without its padding, a row for each line of its direction."""
    compact = layout.gather(array, field.valid or field.shape, "swizzled" if field.swizzled else "compact")
    return np.ascontiguousarray(compact.T if direction.transposed and not field.transposed else compact)
