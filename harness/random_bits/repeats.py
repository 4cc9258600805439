"""Test whether bits repeat: in one tensor at any distance, between its two directions, or between two launches.

A bit is +1 or -1, and 0 where none is known. The products of bits at one distance are again independent, within a
tensor too, because the pairs of one distance form no circle. So their sum is one of n fair signs, and lies beyond
t * sqrt(n) with a chance of at most 2 exp(-t^2 / 2), whatever n is (Hoeffding, J. Am. Stat. Assoc. 58, 1963).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

LEAST_PAIRS = 512
_POWER = 2.33  # standard deviations beyond the limit; then a share is detected with probability 0.99


@dataclass(frozen=True)
class Repeat:
    """The distance at which bits agree or disagree most.

    lag: rows and columns from the first to the second; share: of bits that agree beyond chance, negative if they differ
    strength, limit: the sum in standard deviations, and the value that chance exceeds with probability `alpha`
    seen: the smallest share that would be detected if every bit has a partner
    """

    lag: tuple[int, int]
    share: float
    strength: float
    limit: float
    seen: float

    @property
    def found(self) -> bool:
        return self.strength > self.limit


def strongest(one: np.ndarray, other: np.ndarray, alpha: float, itself: bool = False) -> Repeat:
    """The strongest repetition over all distances with LEAST_PAIRS pairs, of two (rows, cols) arrays of -1, 0 and 1.

    itself: whether they are the same array, so that distance 0 does not count
    """
    sums = _correlated(one, other)
    pairs = _pairs(np.abs(one).astype(bool).tobytes(), np.abs(other).astype(bool).tobytes(), one.shape, other.shape)
    usable = pairs >= LEAST_PAIRS
    if itself:
        usable[0, 0] = False
    strength = np.where(usable, np.abs(sums) / np.sqrt(np.maximum(pairs, 1)), 0)
    limit = math.sqrt(2 * math.log(2 * max(1, int(usable.sum())) / alpha))
    at = np.unravel_index(int(np.argmax(strength)), strength.shape)
    lag = tuple(int(i) - n * (i > n // 2) for i, n in zip(at, strength.shape, strict=True))
    seen = (limit + _POWER) / math.sqrt(max(1, int(pairs.max())))
    return Repeat((lag[0], lag[1]), float(sums[at] / max(1, pairs[at])), float(strength[at]), limit, min(1.0, seen))


@lru_cache(maxsize=4)
def _pairs(one: bytes, other: bytes, *shapes: tuple[int, int]) -> np.ndarray:
    """How many pairs there are at each distance, from the masks of known bits, which all launches share."""
    known = (np.frombuffer(mask, bool).reshape(shape) for mask, shape in zip((one, other), shapes, strict=True))
    return _correlated(*(each.astype(float) for each in known))


def _correlated(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The exact sum of products for each distance; negative distances are indexed from the end."""
    shape = [a + b for a, b in zip(one.shape, other.shape, strict=True)]
    spectrum = np.conj(np.fft.rfft2(one, shape)) * np.fft.rfft2(other, shape)
    return np.rint(np.fft.irfft2(spectrum, shape))
