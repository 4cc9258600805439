"""Test whether probabilities are right: exact binomial tests, and the smallest shift that they would detect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
