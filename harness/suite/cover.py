"""Which combinations of values to try: all of them, every pair, or one change at a time. Order is fixed by the axes.

A combination is a tuple with one index per axis, None for an axis that is not chosen yet. `refused` says whether a
combination, complete or not, has values that exclude each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Container, Hashable, Iterator, Sequence

Combination = tuple[int, ...]
Partial = tuple[int | None, ...]
Pair = tuple[tuple[int, int], tuple[int, int]]  # (axis, value) twice, the lower axis first
Refused = Callable[[Partial], bool]

MOST_ROWS = 20_000  # combinations of a block, or pairs of values; four times those of the largest block here
MOST_CALLS = 100_000  # calls of `refused` for one cover; the hardest one here takes 30,400


class TooManyError(Exception):
    """There are too many combinations, or finding those that are legal takes too long."""


def product(sizes: Sequence[int]) -> Iterator[Combination]:
    """Every combination, the last axis fastest; excluded ones too, so that they can be counted."""
    return itertools.product(*map(range, sizes))


def each(sizes: Sequence[int]) -> Iterator[Combination]:
    """The first value of every axis, then every other value of one axis at a time; excluded ones too."""
    first = (0,) * len(sizes)
    yield first
    for axis, size in enumerate(sizes):
        for value in range(1, size):
            yield (*first[:axis], value, *first[axis + 1 :])


def few(features: Sequence[Collection[Hashable]], kinds: Sequence[Hashable]) -> list[int]:
    """The places of few items that together have every feature of all items, in order.

    Greedy: the first item with most features that are still missing, of a kind that is not there yet if possible.
    """
    missing = {feature for item in features for feature in item}
    chosen: list[int] = []
    while missing:
        there = {kinds[i] for i in chosen}
        best = max(range(len(features)), key=lambda i: (len(missing.intersection(features[i])), kinds[i] not in there))
        missing.difference_update(features[best])
        chosen.append(best)
    return sorted(chosen)


def pairs(sizes: Sequence[int]) -> Iterator[Pair]:
    """Every pair of values of two axes."""
    for a, b in itertools.combinations(range(len(sizes)), 2):
        for i, j in itertools.product(range(sizes[a]), range(sizes[b])):
            yield (a, i), (b, j)


def partial(some: Sequence[tuple[int, int]], width: int) -> Partial:
    """A few (axis, value) as a combination of `width` axes, with all other axes open."""
    chosen = dict(some)
    return tuple(chosen.get(axis) for axis in range(width))


def pairwise(sizes: Sequence[int], refused: Refused, fixed: frozenset[int] = frozenset()) -> list[Combination]:
    """Few combinations that hold every pair of values which some legal combination holds. Raises TooManyError.

    Greedy, with backtracking: each combination starts from the first pair still missing and takes, axis by axis, the
    value that adds most missing pairs. fixed: axes with one legal value, whose pairs do not count
    """
    width = len(sizes)
    require_few(sum(one * other for one, other in itertools.combinations(sizes, 2)))
    missing = {pair: None for pair in pairs(sizes) if fixed.isdisjoint(axis for axis, _ in pair)}
    refused = _limited(refused)
    rows: list[Combination] = []
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


def require_few(rows: int) -> None:
    """Raise TooManyError for more than MOST_ROWS combinations or pairs."""
    if rows > MOST_ROWS:
        raise TooManyError(f"these are {rows} combinations; at most {MOST_ROWS} can be tried")


def _limited(refused: Refused) -> Refused:
    # Backtracking can take exponentially long.
    calls = itertools.count(1)

    def call(row: Partial) -> bool:
        if next(calls) > MOST_CALLS:
            raise TooManyError(
                f"no cover of these axes is found in {MOST_CALLS} attempts; name first the axes that exclusions "
                "are about, or name fewer values"
            )
        return refused(row)

    return call


def legal(row: Partial, sizes: Sequence[int], refused: Refused) -> bool:
    """Whether some combination with these values is not refused."""
    return _complete(row, sizes, refused, ()) is not None


def _complete(row: Partial, sizes: Sequence[int], refused: Refused, missing: Container[Pair]) -> Combination | None:
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
