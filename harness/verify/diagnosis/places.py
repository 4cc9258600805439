"""Hypotheses about places: extents that were exchanged, arrays that lie transposed, entries that moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from harness.contract.interval import Interval
from harness.contract.problem import Dense
from harness.expected.expected import oracle_of
from harness.verify.diagnosis.difference import compacted
from harness.verify.diagnosis.evidence import FEW, Evidence, Hypothesis

LARGEST = 1 << 20  # in `Case.work`, for the questions to the oracle
_MOST_PLACES = 1 << 21  # entries; beyond it, no places are tried
_EXTENTS = "extents swapped"
_BLOCK_BYTES = 8  # of codes
_SHIFTS = (1, 2, 4, 8, 16, 32, 64, 128)
_EXCHANGES = (1, 2, 3, 4, 7, 8, 15, 16, 32, 64)


# =====================================================================================================================
# The input was read in other places: the oracle is asked what it makes of what a kernel then has
# =====================================================================================================================


def _by_other_stride(x: np.ndarray) -> np.ndarray | None:
    """Rows read with the stride of the other extent; None where that reads beyond the end."""
    rows, cols = x.shape
    if rows >= cols:
        return None
    return x.reshape(-1)[np.arange(rows)[:, None] * rows + np.arange(cols)[None, :]]


def _down_the_columns(x: np.ndarray) -> np.ndarray:
    """Element (r, c) read at c * rows + r."""
    return np.ascontiguousarray(x.reshape(x.shape[1], x.shape[0]).T)


def _read(e: Evidence, change: Callable[[np.ndarray], np.ndarray | None]) -> bool:
    x = _matrix(e)
    other = None if x is None else change(x)
    if other is None or np.array_equal(other.view(np.uint8), x.view(np.uint8)):
        return False
    return _answers(e, e.case, {**e.tensors, "input": np.ascontiguousarray(other)})


def _called(e: Evidence) -> bool:
    """Whether the kernel was given rows for cols and cols for rows."""
    x = _matrix(e)
    if x is None or x.shape[0] == x.shape[1]:
        return False
    case = replace(e.case, problem=Dense(e.case.cols, e.case.rows), seed_of=e.case.seed_name)
    return _answers(e, case, {**e.tensors, "input": x.reshape(x.shape[::-1])})


def _matrix(e: Evidence) -> np.ndarray | None:
    x = e.tensors.get("input")
    if x is None or x.shape != (e.case.rows, e.case.cols) or not isinstance(e.case.problem, Dense):
        return None
    return x if e.case.work <= LARGEST and np.count_nonzero(e.wrong) >= FEW else None


def _answers(e: Evidence, case: object, tensors: dict[str, np.ndarray]) -> bool:
    """Whether the oracle's bytes are those of the kernel in every field, and nothing is written beyond them."""
    try:
        with np.errstate(all="ignore"):
            made = oracle_of(case.recipe).numpy_oracle(case, tensors)
    except Exception:  # a user's oracle may raise anything for a shape that it does not expect
        return False
    for name in e.of_side:
        answer, actual = made.get(name), e.actual_of(name).reshape(-1).view(np.uint8)
        if answer is None or isinstance(answer, Interval):
            return False
        answer = np.ascontiguousarray(answer).reshape(-1).view(np.uint8)
        least = min(answer.size, actual.size)
        if (answer[:least] != actual[:least]).any() or not _untouched(e, name, slice(least, None)):
            return False
    return True


def _untouched(e: Evidence, name: str, places: slice | np.ndarray) -> bool:
    """Whether some bytes of a field have the pattern from before the run."""
    rest = e.actual_of(name).reshape(-1).view(np.uint8)[places]
    return not rest.size or (bool(e.poisons) and bool((rest == e.poisons[0]).all()))


# =====================================================================================================================
# The output was written to other places
# =====================================================================================================================


def _transposed(e: Evidence) -> bool:
    turned = np.ascontiguousarray(e.right.T)
    return _is_map(e) and _is_all(e, turned.reshape(e.right.shape))


def _stride(e: Evidence) -> str:
    """The stride that lines were written with, if it was not theirs.

    Two lines may then write to one byte, and either may be the last.
    """
    if not _is_map(e) or e.field.swizzled:
        return ""
    lines, length = e.field.valid or e.field.shape
    block = e.field.block[0 if e.field.transposed else 1]
    other = e.case.cols if e.field.transposed else e.case.rows
    size, actual = e.right.size, e.actual.reshape(-1)
    for stride in dict.fromkeys((other // block, -(-(other // block) // 4) * 4, length, 2 * length, length // 2)):
        if stride in (0, e.right.shape[1]):
            continue
        to = (np.arange(lines)[:, None] * stride + np.arange(length)[None, :]).reshape(-1)
        inside = to < size
        source, to = e.right[:lines, :length].reshape(-1)[inside], to[inside]
        covered, met = np.zeros(size, bool), np.zeros(size, bool)
        covered[to] = True
        met[to[source == actual[to]]] = True
        rest = ~covered if e.kind == "data" else ~covered & (actual != 0)
        moved_there = np.count_nonzero(covered & (actual != e.right.reshape(-1)) & (actual != 0))
        if moved_there >= FEW and (met == covered).all() and _untouched(e, e.root, rest.nonzero()[0]):
            return f"lines of {e.right.shape[1]} entries were written {stride} entries apart"
    return ""


def _moved(e: Evidence) -> str:
    """A displacement of the root where nothing later of the side is wrong, or where its codes moved with its scales."""
    found, data = moved(e), f"{e.side}_data"
    if not found or e.kind != "scale_inv" or data not in e.differences:
        return found
    blocks = [array.reshape(len(array), -1, _BLOCK_BYTES) for array in (e.expected[data], e.actual_of(data))]
    return found if found in _displacements(*blocks) else ""


def moved(e: Evidence) -> str:
    """The one displacement, or exchange, that explains every entry whose source is in the array."""
    if not _is_map(e):
        return ""
    extent = e.field.valid or e.field.shape
    found = next(_displacements(e.right[: extent[0], : extent[1]], e.actual[: extent[0], : extent[1]]), "")
    if not found and e.field.swizzled:
        found = next(_displacements(e.expected[e.root], e.actual_of(e.root)), "")
        return f"{found} of the tiles" if found else ""
    return found


def _displacements(right: np.ndarray, actual: np.ndarray) -> Iterator[str]:
    for axis, called in enumerate(("rows", "columns")):
        places = np.arange(right.shape[axis])
        for source, what in _sources(places, called):
            inside = (source >= 0) & (source < places.size)
            if 2 * inside.sum() <= places.size:
                continue
            kept, there = np.compress(inside, actual, axis), np.take(right, source[inside], axis)
            changed = there != np.compress(inside, right, axis)
            if np.count_nonzero(changed) >= FEW and (kept == there).all():
                yield what


def _sources(places: np.ndarray, called: str) -> Iterator[tuple[np.ndarray, str]]:
    for distance in _SHIFTS:
        for apart in (distance, -distance):
            where = called if distance > 1 else called.removesuffix("s")
            yield places + apart, f"each entry is that of {distance} {where} {'later' if apart > 0 else 'earlier'}"
    for apart in _EXCHANGES:
        yield places ^ apart, f"{called} whose numbers differ by xor {apart} have changed places"


def _is_map(e: Evidence) -> bool:
    return e.right.ndim == 2 and e.right.size <= _MOST_PLACES and np.count_nonzero(e.wrong & e.valued) >= FEW


def _is_all(e: Evidence, predicted: np.ndarray) -> bool:
    """Whether the root is what is predicted, which is not the right one."""
    return bool((predicted != e.right).any()) and bool((predicted == compacted(e.field, e.actual_of(e.root))).all())


OF_INPUTS = (
    Hypothesis(_EXTENTS, "rows of the input were read with the stride of its other extent",
               partial(_read, change=_by_other_stride)),
    Hypothesis(_EXTENTS, "element (r, c) of the input was read at c * rows + r",
               partial(_read, change=_down_the_columns)),
    Hypothesis(_EXTENTS, "the kernel took rows for cols and cols for rows", _called),
)  # fmt: skip
OF_OUTPUTS = (
    Hypothesis("output transposed", "the right bytes lie in the order of the transposed array", _transposed),
    Hypothesis("stride of an output", "", _stride),
    Hypothesis("wrong place", "", _moved),
)  # fmt: skip
