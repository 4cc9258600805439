"""What chance explains: exact binomial tests of probabilities, and a test whether bits repeat, each with its power.

Bits may repeat in one tensor at any distance, between its two directions, or between two launches. A bit is +1 or -1,
and 0 where none is known. The products of bits at one distance are again independent, within a tensor too, because the
pairs of one distance form no circle. So their sum is one of n fair signs, and lies beyond t * sqrt(n) with a chance of
at most 2 exp(-t^2 / 2), whatever n is (Hoeffding, J. Am. Stat. Assoc. 58, 1963).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

POWER = 0.99
_STEPS = 50  # bisection steps for a probability


@dataclass(frozen=True)
class Count:
    """How many of n elements were rounded up (`ups`), each of which should be with probability `fraction`."""

    ups: int
    n: int
    fraction: float


@dataclass(frozen=True)
class Test:
    """A test's result. p: probability of the finding if chances are right; bias: found minus expected, per element

    seen: the smallest bias in either direction that would be detected with probability POWER; NaN if none would
    """

    n: int
    bias: float
    p: float
    seen: float


def exact(count: Count, alpha: float) -> Test:
    """The exact binomial test with equal tails."""
    bias = count.ups / count.n - count.fraction if count.n else 0.0
    return Test(count.n, bias, chance(count), _smallest(count.n, count.fraction, alpha))


def chance(count: Count) -> float:
    """The two-sided p-value, twice the smaller tail probability, if chances are right.

    A fraction of 0 allows no ups.
    """
    from scipy.stats import binom

    tails = binom.cdf(count.ups, count.n, count.fraction), binom.sf(count.ups - 1, count.n, count.fraction)
    return min(1.0, 2 * float(min(tails))) if count.n else 1.0


def pooled(counts: Sequence[Count], alpha: float) -> Test:
    """The test for the sum of several counts.

    Exact if they share a fraction, else by the normal approximation, close for fractions on both sides of 1/2.
    """
    from scipy.stats import norm

    n = sum(count.n for count in counts)
    if len({count.fraction for count in counts}) == 1 or not n:
        return exact(Count(sum(count.ups for count in counts), n, counts[0].fraction), alpha)
    variance = sum(count.n * count.fraction * (1 - count.fraction) for count in counts)
    excess = sum(count.ups - count.n * count.fraction for count in counts)
    deviation = math.sqrt(variance)
    seen = (norm.isf(alpha / 2) + norm.isf(1 - POWER)) * deviation / n
    return Test(n, excess / n, float(2 * norm.sf(abs(excess) / deviation)), float(seen))


def _smallest(n: int, fraction: float, alpha: float) -> float:
    from scipy.stats import binom

    if not n:
        return math.nan
    low, high = binom.ppf(alpha / 2, n, fraction), binom.isf(alpha / 2, n, fraction)
    up = _first(lambda shift: binom.sf(high, n, fraction + shift) >= POWER, 1 - fraction)
    down = _first(lambda shift: binom.cdf(low - 1, n, fraction - shift) >= POWER, fraction)
    found = [shift for shift in (up, down) if not math.isnan(shift)]
    return max(found) if found else math.nan


def _first(seen: Callable[[float], bool], most: float) -> float:
    """The smallest detected shift, by bisection; NaN if not even the largest is detected."""
    if most <= 0 or not seen(most):
        return math.nan
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


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
