"""In a drawn order, some lanes wait while others run ahead of them.

A kernel must write the same bytes however far its warps are apart, between two barriers. So when lanes enter a basic
block together, some of them are held back until nothing else can run: what no barrier orders after a store is then met
too early or too late, whether or not a shadow sees it.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from ptx_emulator.registers import WARP

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
