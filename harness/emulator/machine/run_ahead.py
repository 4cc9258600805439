"""Which lanes wait while others run ahead of them, when the order is drawn.

A kernel must write the same bytes however far its warps are apart, between two barriers. So when lanes enter a basic
block together, some of them are held back until nothing else can run: what no barrier orders after a store is then met
too early or too late, whether or not a shadow sees it.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from harness.emulator.registers import WARP

SHARE = 4  # one block in so many is parted; the others run, or are held, as a whole, which costs little time


class RunAhead:
    """The draws of one launch. seed: None to hold no lane back"""

    def __init__(self, seed: int | None):
        self.draws = seed is not None
        self._random = np.random.default_rng(seed or 0)
        self._entered: Counter[int] = Counter()  # basic block → how often, of a batch

    def held(self, number: int, lanes: np.ndarray) -> np.ndarray | None:
        """The lanes to hold back of those that enter basic block `number` together; None for none.

        The k-th time with a chance of 1 in k + 1, so that a long loop takes little longer.
        """
        if not self.draws:
            return None
        blocks = np.flatnonzero(lanes.any(axis=1))
        self._entered[number] += len(blocks) / len(lanes)
        if self._random.random() * (1 + math.ceil(self._entered[number])) >= 1:
            return None
        held = lanes.copy()
        held[blocks] &= self._drawn(len(blocks), lanes.shape[1])
        return held if held.any() and (lanes & ~held).any() else None

    def _drawn(self, blocks: int, threads: int) -> np.ndarray:
        """Whole blocks; of some blocks, whole warps; of some warps, lanes."""
        chosen = np.repeat(self._coins(blocks, 1), threads, axis=1)
        parted = self._random.permutation(blocks)[: -(-blocks // SHARE)]
        warps = len(parted), threads // WARP
        by_lane = self._coins(*warps, 1) & self._coins(*warps, 1)
        lanes = np.where(by_lane, self._coins(*warps, WARP), self._coins(*warps, 1))
        chosen[parted] = lanes.reshape(len(parted), threads)
        return chosen

    def _coins(self, *shape: int) -> np.ndarray:
        return self._random.integers(0, 2, shape, dtype=bool)
