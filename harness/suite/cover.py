"""Which combinations of values to try: all of them, every pair, or one change at a time. Order is fixed by the axes.

A combination is a tuple with one index per axis. `refused` may be asked about a partial combination, axes not chosen
yet being None, and must say no only if no completion of it is legal for a reason already visible.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Sequence

Row = tuple[int, ...]
Partial = tuple[int | None, ...]
Pair = tuple[tuple[int, int], tuple[int, int]]  # (axis, value) twice, the lower axis first
Refused = Callable[[Partial], bool]


def product(sizes: Sequence[int]) -> Iterator[Row]:
    """Every combination, the last axis fastest; refused ones too, so that they can be counted."""
    return itertools.product(*map(range, sizes))


def each(sizes: Sequence[int]) -> Iterator[Row]:
    """The first value of every axis, then every other value of one axis at a time; refused ones too."""
    first = (0,) * len(sizes)
    yield first
    for axis, size in enumerate(sizes):
        for value in range(1, size):
            yield (*first[:axis], value, *first[axis + 1 :])


def pairs(sizes: Sequence[int]) -> Iterator[Pair]:
    """Every pair of values of two axes."""
    for a, b in itertools.combinations(range(len(sizes)), 2):
        for i, j in itertools.product(range(sizes[a]), range(sizes[b])):
            yield (a, i), (b, j)


def partial(pair: Pair, width: int) -> Partial:
    """A pair as a combination of `width` axes, all others open."""
    chosen = dict(pair)
    return tuple(chosen.get(axis) for axis in range(width))


def pairwise(sizes: Sequence[int], refused: Refused) -> list[Row]:
    """Few combinations in which every pair that any legal combination contains is contained.

    Greedy: each combination starts from the first pair still missing and takes, axis by axis, the value that adds most
    missing pairs. A greedy choice that ends in refusals only is taken back, so no legal pair is ever given up.
    """
    width = len(sizes)
    missing = dict.fromkeys(pairs(sizes))
    rows: list[Row] = []
    while missing:
        pair = next(iter(missing))
        row = _complete(partial(pair, width), sizes, refused, missing)
        if row is None:
            del missing[pair]
            continue
        for covered in itertools.combinations(enumerate(row), 2):
            missing.pop(covered, None)
        rows.append(row)
    return rows


def legal(row: Partial, sizes: Sequence[int], refused: Refused) -> bool:
    """Whether some combination with these values is not refused."""
    return _complete(row, sizes, refused, ()) is not None


def _complete(row: Partial, sizes: Sequence[int], refused: Refused, missing: Container[Pair]) -> Row | None:
    if refused(row):
        return None
    if None not in row:
        return tuple(value for value in row if value is not None)
    axis = row.index(None)
    chosen = [(other, value) for other, value in enumerate(row) if value is not None]

    def gain(value: int) -> int:
        new = axis, value
        return sum(((old, new) if old < new else (new, old)) in missing for old in chosen)

    for value in sorted(range(sizes[axis]), key=gain, reverse=True):
        complete = _complete((*row[:axis], value, *row[axis + 1 :]), sizes, refused, missing)
        if complete is not None:
            return complete
    return None
