"""Statistics of samples: median and spread, how many are enough, and whether two sets differ.

Times of a GPU are skewed and sometimes bimodal, so everything here is by rank: medians, quartiles, and the confidence
interval of the Mann-Whitney test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from harness.verdict import TimeRatio

ALPHA = 0.002  # probability that the interval of two sets from one distribution leaves out 1
THROTTLED = 0.9  # share of the clock's 90th percentile: below it, a time measures the clock and not the kernel
SLOWEST = 0.8  # where the slowest fifth of the samples begins
FEWEST_SAMPLES = 10  # below this the interval is too wide at ALPHA
SLOW = 1.2  # times the median: a slow round; of 1,292 committed cases two have any at 1.3
RARE = 0.005  # share of rounds that may be slow by chance
CHANCE = 0.03  # a tail of which chance makes as many slow rounds, or more, less often is a tail
FEW_DISTINCT = 8  # below this many values of a clock, two measurements may well be alike
ROUNDED_US = 0.002  # samples of both sets are rounded to half of it
LIKE = 0.08  # share of the shortest third: sorted samples of one origin differ by less, if scaled and rounded

CLOCKS_APART = 0.02  # share of the higher clock: clocks this far apart count as two speeds
LEAST_OF_A_CLOCK = 0.1  # share of the rounds at each of two clocks; fewer move no median

# For a normal distribution: standard error of median over that of mean; interquartile range over standard deviation.
_MEDIAN_ERROR = math.sqrt(math.pi / 2)
_IQR = 2 * NormalDist().inv_cdf(0.75)


@dataclass(frozen=True)
class Samples:
    """Microseconds of each round, and the SM clock in MHz then, 0 or absent where it was not read.

    What a record says besides: its median, the clock's, the copy roofline of its run, a digest of machine code and
    grids, and whether the case is a product.
    """

    us: Sequence[float]
    mhz: Sequence[float] = ()
    median_us: float | None = None
    clock_mhz: float = 0.0
    roofline_gbps: float = 0.0
    code: str = ""
    product: bool = False

    def __add__(self, more: Samples) -> Samples:
        return Samples([*self.us, *more.us], [*self.mhz, *more.mhz])

    @property
    def median(self) -> float:
        return self.median_us or summarize(self.us).median

    @property
    def cycles(self) -> list[float]:
        return [us * mhz / 1e3 for us, mhz in zip(self.us, self.mhz, strict=True)]

    @property
    def written(self) -> Samples:
        """The samples rounded as in a file, so that reading it back gives the same decision."""
        return Samples([round(us, 4) for us in self.us], [round(mhz, 1) for mhz in self.mhz])


@dataclass(frozen=True)
class Summary:
    median: float
    q1: float
    q3: float
    smallest: float


def summarize(samples: Sequence[float]) -> Summary:
    """Median, quartiles and minimum. Raises ValueError without samples."""
    if not len(samples):
        raise ValueError("there are no samples to summarize")
    q1, middle, q3 = np.quantile(samples, (0.25, 0.5, 0.75))
    return Summary(float(middle), float(q1), float(q3), float(min(samples)))


def relative_error(samples: Sequence[float]) -> float:
    """Standard error of the median over the median; from the quartiles, so that one outlier does not count."""
    return _spread(samples) / math.sqrt(len(samples))


def rounds_needed(pilot: Sequence[float], precision: float) -> int:
    """The number of samples that brings `relative_error` down to `precision`."""
    return math.ceil((_spread(pilot) / precision) ** 2)


def steady(mhz: Sequence[float]) -> list[int]:
    """Numbers of the rounds whose clock is at least THROTTLED of the best. mhz: the lowest clock of each round

    If fewer than half would be left, all rounds with a readable clock: then the low clock is what the power limit
    allows.
    """
    read = [number for number, clock in enumerate(mhz) if clock > 0]
    if not read:
        return []
    least = THROTTLED * sorted(mhz[number] for number in read)[9 * len(read) // 10]
    kept = [number for number in read if mhz[number] >= least]
    return kept if 2 * len(kept) >= len(read) else read


def two_clocks(mhz: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """The readings of a clock at each of two speeds, lower ones first; None if it had one, or too few show another."""
    if len(mhz) < FEWEST_SAMPLES:
        return None
    ordered = np.sort(mhz)
    gaps = np.diff(ordered)
    fewest = math.ceil(LEAST_OF_A_CLOCK * len(ordered))
    split = fewest + int(np.argmax(gaps[fewest - 1 : len(gaps) - fewest + 1]))
    if ordered[split] * (1 - CLOCKS_APART) <= ordered[split - 1]:
        return None
    return list(map(float, ordered[:split])), list(map(float, ordered[split:]))


def describe_clocks(mhz: Sequence[float]) -> str:
    """`the clock had two speeds, 1,755 MHz in 12 rounds and 1,980 MHz in 18`, or an empty text."""
    found = two_clocks(mhz)
    if found is None:
        return ""
    (low, slow), (high, fast) = ((summarize(side).median, len(side)) for side in found)
    return f"the clock had two speeds, {low:,.0f} MHz in {slow} rounds and {high:,.0f} MHz in {fast}"


def time_ratio(candidate: Sequence[float], reference: Sequence[float]) -> TimeRatio:
    """The ratio of the times of a candidate to those of a reference, with its Hodges-Lehmann interval.

    Without ties the interval leaves out 1 exactly if the Mann-Whitney test (normal approximation) rejects "no change"
    at ALPHA. It is of a shift: of two sets that differ in their slowest samples alone it may hold 1. Two small sets
    have the interval (0, inf). Raises ValueError if a set is empty or holds a time that is not positive.
    """
    if not len(candidate) or not len(reference) or min(*candidate, *reference) <= 0:
        raise ValueError("two sets of positive times are needed")
    logs = np.sort(np.subtract.outer(np.log(candidate), np.log(reference)), axis=None)
    n, m = len(candidate), len(reference)
    z = NormalDist().inv_cdf(1 - ALPHA / 2)
    rank = math.floor(n * m / 2 - z * math.sqrt(n * m * (n + m + 1) / 12))
    ratio = float(np.median(candidate) / np.median(reference))
    if rank < 0:
        return TimeRatio(ratio, 0.0, math.inf)
    return TimeRatio(ratio, float(np.exp(logs[rank])), float(np.exp(logs[-1 - rank])))


def slowest_fifth(candidate: Sequence[float], reference: Sequence[float]) -> float:
    """How much later the candidate's slowest fifth begins than the reference's, relative to that.

    A median does not see a kernel that is slow in a quarter of its calls, and neither does an interval of a shift.
    """
    # "higher" is a sample of that fifth; an interpolated quantile lies mostly among the samples before it.
    begins, began = (float(np.quantile(samples, SLOWEST, method="higher")) for samples in (candidate, reference))
    return begins / began - 1


def slow_rounds(samples: Sequence[float]) -> int:
    """How many samples take at least SLOW times their median."""
    return int(np.count_nonzero(np.asarray(samples) >= SLOW * np.median(samples)))


def tail(candidate: Sequence[float], reference: Sequence[float]) -> str:
    """`9 of 60 rounds take at least 1.2 times the median, and 0 of 30 of the base`, or an empty string without a tail.

    Where the reference has slow rounds, by Fisher's exact test, one-sided; else by a binomial test against RARE.
    """
    slow, before, n, m = slow_rounds(candidate), slow_rounds(reference), len(candidate), len(reference)
    if before:
        ways = sum(math.comb(n, k) * math.comb(m, slow + before - k) for k in range(slow, min(n, slow + before) + 1))
        chance = ways / math.comb(n + m, slow + before)
    else:
        chance = 1 - sum(math.comb(n, k) * RARE**k * (1 - RARE) ** (n - k) for k in range(slow))
    if not slow or chance > CHANCE:
        return ""
    return f"{slow} of {n} rounds take at least {SLOW} times the median, and {before} of {m} of the base"


def same_origin(candidate: Sequence[float], reference: Sequence[float]) -> bool:
    """Whether one set is the other scaled, shifted, reordered or rounded, which two measurements never are.

    False for sets of other lengths, and for those of too few values to tell.
    """
    if len(candidate) != len(reference) or min(len(set(candidate)), len(set(reference))) < FEW_DISTINCT:
        return False
    a, b = np.sort(candidate), np.sort(reference)
    third = len(a) // 3
    # The shortest range that holds a third of the samples has no tail in it, and no second speed of a clock.
    least = LIKE * np.min(a[third:] - a[:-third])
    if least < ROUNDED_US:  # rounding makes two measurements so narrow alike, so nothing may be scaled
        return bool(np.ptp(np.round(a - b, 4)) == 0)
    slope, offset = np.polyfit(b, a, 1)
    return bool(np.max(np.abs(a - slope * b - offset)) <= least)


def _spread(samples: Sequence[float]) -> float:
    found = summarize(samples)
    return _MEDIAN_ERROR * (found.q3 - found.q1) / _IQR / found.median
