"""Delta debugging: cut off the ends, then leave out smaller and smaller pieces while the rest still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

Items = TypeVar("Items", bound=Sequence)


@dataclass
class Budget:
    """How many tries and seconds a search may take, and has taken."""

    tries: int = 600
    seconds: float = 120
    spent: int = 0
    started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    @property
    def over(self) -> bool:
        return self.spent >= self.tries or self.elapsed >= self.seconds

    def __str__(self) -> str:
        """Why the search ended."""
        if self.spent >= self.tries:
            return f"all {self.tries} tries are used up, so that something smaller may fail, too"
        if self.elapsed >= self.seconds:
            return f"{self.seconds:g} seconds are over, so that something smaller may fail, too"
        return "nothing smaller that was tried fails like this"


def smallest(items: Items, fails: Callable[[Items], bool], budget: Budget, most_pieces: int | None = None) -> Items:
    """Find few items that still fail, at least one, in their order; without any single one of them the rest passes.

    items: a list or an array that fails as a whole
    most_pieces: how many pieces the items are cut into at the most; without it, one for each item
    """
    items = items[: _fewest(len(items), lambda count: fails(items[:count]), budget)]
    whole = len(items)
    items = items[whole - _fewest(whole, lambda count: fails(items[whole - count :]), budget) :]
    pieces = 2
    while len(items) > 1 and not budget.over:
        found = _smaller(items, min(pieces, len(items)), fails, budget)
        if found is not None:
            items, pieces = found
        elif pieces >= min(len(items), most_pieces or len(items)):
            break
        else:
            pieces *= 2
    return items


def _fewest(count: int, fails: Callable[[int], bool], budget: Budget) -> int:
    """The smallest count that fails, if every larger one fails, too; otherwise some count that fails."""
    low = 1
    while low < count and not budget.over:
        middle = (low + count) // 2
        if fails(middle):
            count = middle
        else:
            low = middle + 1
    return count


def _smaller(items: Items, pieces: int, fails: Callable[[Items], bool], budget: Budget) -> tuple[Items, int] | None:
    """A failing piece, or all pieces but one if they fail, and how many pieces to cut it into next; else None."""
    ends = [len(items) * i // pieces for i in range(pieces + 1)]
    for first, last in zip(ends, ends[1:], strict=False):
        if budget.over:
            return None
        if fails(items[first:last]):
            return items[first:last], 2
    for first, last in zip(ends, ends[1:], strict=False):
        if budget.over or pieces == 2:  # leaving out one half is the same as keeping the other
            return None
        before, after = items[:first], items[last:]
        rest = before + after if isinstance(before, list) else np.concatenate([before, after])
        if fails(rest):
            return rest, max(pieces - 1, 2)
    return None
