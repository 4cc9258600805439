"""Other splits of an allocation: how a group may change on the device between two replays of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.contract.case import Case
from harness.contract.group_shape import VARYING_MULTIPLE_OF
from harness.contract.problem import Extents, Grouped, GroupedGemm, Problem


def other_splits(case: Case) -> tuple[Case, ...]:
    """The case with its allocation split in other ways, which its seed decides; none if it has no capacity.

    All in one tensor; every second tensor empty, the first and the last too if there are more than two; a drawn split
    of a part of the allocation; and no rows at all. One that is the case's own, or another's, is left out.
    """
    if case.problem.capacity is None:
        return ()
    rng = np.random.default_rng(case.seed)
    count = len(case.problem.tensors)
    whole = case.problem.lines[_by_k(case.problem)] // VARYING_MULTIPLE_OF
    chosen = int(rng.integers(count))
    full = range(1, count - 1, 2) if count > 2 else range(count - 1, count)
    chunks = (
        [whole * (g == chosen) for g in range(count)],
        _shared(whole, [int(g in full) for g in range(count)]),
        _shared(int(rng.integers(whole + 1)), rng.integers(0, 4, count).tolist()),
        [0] * count,
    )
    splits = dict.fromkeys(_split(case.problem, each, rng) for each in chunks)
    return tuple(replace(case, problem=split) for split in splits if split != case.problem)


def _shared(total: int, weights: Sequence[int]) -> list[int]:
    """Split a total into integer parts, roughly in proportion to the weights."""
    ends = np.cumsum(weights) * total // max(1, sum(weights))
    return np.diff(ends, prepend=0).tolist()


def _by_k(problem: Problem) -> bool:
    return isinstance(problem, GroupedGemm) and problem.by_k


def _split(problem: Grouped | GroupedGemm, chunks: Sequence[int], rng: np.random.Generator) -> Grouped | GroupedGemm:
    """Give each tensor its number of chunks. A chunk is 128 rows, 128 of K in a wgrad, or 128x128 elements if both
    extents vary.
    """
    if _by_k(problem):
        return replace(problem, tensors=tuple((problem.m, VARYING_MULTIPLE_OF * count) for count in chunks))
    if problem.rows != 1:
        return replace(problem, tensors=tuple((VARYING_MULTIPLE_OF * count, problem.cols) for count in chunks))
    tensors: list[Extents] = []
    spare = problem.lines[0] - VARYING_MULTIPLE_OF * sum(chunks)  # cols that are left for empty tensors
    for count in chunks:
        across = int(rng.choice([i for i in range(1, count + 1) if count % i == 0])) if count else min(1, spare)
        spare -= 0 if count else VARYING_MULTIPLE_OF * across
        tensors.append((VARYING_MULTIPLE_OF * (count // max(1, across)), VARYING_MULTIPLE_OF * across))
    return replace(problem, tensors=tuple(tensors))
