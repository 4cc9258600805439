"""Delta debugging: cut off the ends, then leave out pieces, ever smaller, while the rest still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

Items = TypeVar("Items", bound=Sequence)


@dataclass
class Budget:
    """The limit of tries and seconds."""

    tries: int = 600
    seconds: float = 120
    spent: int = 0
    started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self.started

    @property
    def over(self) -> bool:
        """Whether the limit is reached."""
        return self.spent >= self.tries or self.elapsed >= self.seconds

    def __str__(self) -> str:
        """The reason why the search has ended."""
        if self.spent >= self.tries:
            return f"all {self.tries} tries are used up, so that something smaller may fail, too"
        if self.elapsed >= self.seconds:
            return f"{self.seconds:g} seconds are over, so that something smaller may fail, too"
        return "nothing smaller that was tried fails like this"


def smallest(items: Items, fails: Callable[[Items], bool], budget: Budget, most_pieces: int | None = None) -> Items:
    """The fewest of the items that still fail, at least one, in their order; none can be left out of them alone.

    items: a list or an array that fails as a whole
    most_pieces: into which they are cut at the end; all, so that each item is a piece, if it is not given
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
    """The smallest count that fails, if all from there on do; otherwise some count that does."""
    low = 1
    while low < count and not budget.over:
        middle = (low + count) // 2
        if fails(middle):
            count = middle
        else:
            low = middle + 1
    return count


def _smaller(items: Items, pieces: int, fails: Callable[[Items], bool], budget: Budget) -> tuple[Items, int] | None:
    """One of the pieces, or all but one of them, and how many pieces to cut that into; None if none fails."""
    ends = [len(items) * i // pieces for i in range(pieces + 1)]
    for first, last in zip(ends, ends[1:], strict=False):
        if budget.over:
            return None
        if fails(items[first:last]):
            return items[first:last], 2
    for first, last in zip(ends, ends[1:], strict=False):
        if budget.over or pieces == 2:  # without one half is the other one
            return None
        rest = _joined(items[:first], items[last:])
        if fails(rest):
            return rest, max(pieces - 1, 2)
    return None


def _joined(before: Items, after: Items) -> Items:
    if isinstance(before, list):
        return before + after
    import numpy as np

    return np.concatenate([before, after])
