"""The order in which the blocks of a grid and the warps of a block run.

A place counts blocks or threads in this order; their numbers are the ones that a kernel sees in special registers and
that a fault names.

In a drawn order, some lanes wait while others run ahead of them. A kernel must write the same bytes however far its
warps are apart, between two barriers. So when lanes enter a basic block together, some of them are held back until
nothing else can run: what no barrier orders after a store is then met too early or too late, whether or not a shadow
sees it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from ptx_emulator.registers import WARP

Places = TypeVar("Places", int, np.ndarray)


@dataclass(frozen=True)
class Schedule:
    """descending: the last block first, and in a block the last warp

    seed: draws the order, in which some warps also run ahead of others (`RunAhead`); None for a fixed order
    only: the clusters of a grid that run, in this order; all of them, if empty
    nearest: approximate instructions give the nearest value, whatever the order
    """

    descending: bool = False
    seed: int | None = None
    only: tuple[int, ...] = ()
    nearest: bool = False

    @property
    def name(self) -> str:
        if self.seed is not None:
            return "drawn"
        return "descending" if self.descending else "ascending"

    @property
    def stale_bits(self) -> int:
        """The 64 bits of a register that nobody wrote; they differ by kind of order, and so do results that use them.

        As floats of any width they are 0, a large number, or a negative one.
        """
        if self.seed is not None:
            return 0xC6C6_C6C6_C6C6_C6C6
        return 0x7B7B_7B7B_7B7B_7B7B if self.descending else 0

    @property
    def elects_highest(self) -> bool:
        """Whether `elect.sync` elects the highest lane instead of the lowest: PTX says only that it is always the same.

        What one lane begins and another waits for shows in the order in which they are two.
        """
        return self.descending

    @property
    def approximation(self) -> int:
        """The choice among the values that PTX leaves open for an approximate instruction: 0 takes the nearest; 1 and 2
        take one end or the other by the operands, so that no two orders agree and the error does not cancel in a
        quotient.
        """
        if self.nearest:
            return 0
        if self.seed is not None:
            return 2
        return 1 if self.descending else 0

    @property
    def clock(self) -> tuple[int, int]:
        """The time that clocks show when a launch begins, and their units in a step of time; both differ by order."""
        if self.seed is not None:
            return 0x0002_9A35_0000_0000 + (self.seed % 0x7FFF_FFFF), 2
        return (0x0005_C16B_0345_6789, 3) if self.descending else (0x0001_7E48_0012_3457, 1)

    def number(self, place: Places, count: int) -> Places:
        """The number of the block or warp that runs at a place, or at each of many places, out of `count`."""
        if self.seed is not None:
            return _drawn(self.seed, count)[place]
        return count - 1 - place if self.descending else place

    def clusters(self, place: Places, count: int) -> Places:
        """The number of the cluster at a place, or at each of many places, in a grid of `count` clusters."""
        return np.asarray(self.only)[place] if self.only else self.number(place, count)

    def threads(self, warps: int, together: int) -> np.ndarray:
        """The number of the thread at each place of a block, (32 * warps,).

        together: how many warps stay side by side, 4 for warpgroups; a smaller remainder stays last
        """
        number = np.arange(warps)
        whole = warps // together
        first = self.number(np.arange(whole), whole)[:, None] * together
        number[: whole * together] = (first + np.arange(together)).reshape(-1)
        return (number[:, None] * WARP + np.arange(WARP)).reshape(-1)


ASCENDING, DESCENDING = Schedule(), Schedule(descending=True)


def order_of_run(repeat: int, seed: int, nearest: bool = False) -> Schedule:
    """The order of a verification's run, counted from 0: ascending, descending, drawn from the seed, and so on."""
    return replace((ASCENDING, DESCENDING, Schedule(seed=seed))[repeat % 3], nearest=nearest)


@lru_cache(maxsize=16)
def _drawn(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng((seed, count)).permutation(count)


SHARE = 4  # at most one block in SHARE is split, because its instructions run twice
PAST_BARRIERS, WHOLE_BLOCKS = 0.75, 0.35  # chances
ATTEMPTS = 4  # to draw some lanes to hold back, but not all


class RunAhead:
    """Draws the lanes of one launch that are held back.

    draws: False to hold no lane back
    counts_warps: whether the kernel has a `bar.arrive`, which counts warps, so that warps stay whole
    past_barriers: whether lanes that run ahead may also pass barriers
    """

    def __init__(self, seed: int | None, counts_warps: bool):
        self.draws, self.past_barriers = seed is not None, False
        if self.draws:
            self._random = np.random.default_rng(seed)
        self._parts_warps = not counts_warps
        self._entered: Counter[int] = Counter()  # basic block → how often this batch entered it

    def held(self, number: int, lanes: np.ndarray) -> np.ndarray | None:
        """Draw which of the lanes that enter basic block `number` together are held back; None for none.

        At the k-th entry the chance is 1 in k + 1, so that a long loop takes little longer.
        """
        if not self.draws:
            return None
        blocks = np.flatnonzero(lanes.any(axis=1))
        self._entered[number] += len(blocks) / len(lanes)
        if self._random.random() * (1 + math.ceil(self._entered[number])) >= 1:
            return None
        self.past_barriers = self._random.random() < PAST_BARRIERS
        for _ in range(ATTEMPTS):
            held = lanes & self._drawn(blocks, lanes.shape)
            if held.any() and (lanes & ~held).any():
                return held
        return None

    def _drawn(self, blocks: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Draw some of these blocks, or parts of a few of them."""
        chosen = np.zeros(shape, bool)
        if len(blocks) > 1 and self._random.random() < WHOLE_BLOCKS:
            chosen[blocks] = self._coins(len(blocks), 1)
        else:
            few = self._random.permutation(blocks)[: self._random.integers(-(-len(blocks) // SHARE)) + 1]
            chosen[few] = self._parts(len(few), shape[1])
        return chosen

    def _parts(self, blocks: int, threads: int) -> np.ndarray:
        """Draw few or many warps of each block, and from some warps half the lanes."""
        warps = blocks, threads // WARP
        whole = self._random.random((*warps, 1)) < self._random.random((blocks, 1, 1))
        by_lane = self._coins(*warps, 1) & self._coins(*warps, 1) & self._parts_warps
        return np.where(by_lane, self._coins(*warps, WARP), whole).reshape(blocks, threads)

    def _coins(self, *shape: int) -> np.ndarray:
        return self._random.integers(0, 2, shape, dtype=bool)
