"""The statistics, on synthetic samples: their false-alarm rate, their power, and the test they claim to be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.bench import statistics


def times(rng: np.random.Generator, middle: float = 100.0, noise: float = 0.01, count: int = 30) -> list[float]:
    """Skewed like a GPU's: a floor, and a tail of late rounds."""
    return (middle * (1 + noise * rng.gamma(1.5, size=count))).tolist()


def test_summary_of_known_samples():
    assert statistics.summarize([4.0, 1.0, 3.0, 2.0, 5.0]) == statistics.Summary(3.0, 2.0, 4.0, 1.0)


def test_there_is_no_summary_of_nothing():
    with pytest.raises(ValueError, match="no samples"):
        statistics.summarize([])


def test_relative_error_is_that_of_the_median():
    rng = np.random.default_rng(1)
    medians = [np.median(rng.normal(100, 2, 40)) for _ in range(2000)]
    estimates = [statistics.relative_error(rng.normal(100, 2, 40)) for _ in range(200)]
    assert np.median(estimates) == pytest.approx(np.std(medians) / 100, rel=0.1)


def test_one_outlier_leaves_the_relative_error_alone():
    samples = np.random.default_rng(2).normal(100, 1, 40).tolist()
    assert statistics.relative_error([*samples, 1e6]) == pytest.approx(statistics.relative_error(samples), rel=0.2)


def test_rounds_needed_reach_the_precision():
    rng = np.random.default_rng(3)
    needed = statistics.rounds_needed(rng.normal(100, 3, 500).tolist(), 0.005)
    assert statistics.relative_error(rng.normal(100, 3, needed).tolist()) == pytest.approx(0.005, rel=0.35)


def test_samples_without_spread_need_no_more_rounds():
    assert statistics.rounds_needed([7.0] * 10, 0.005) == 0


@pytest.mark.parametrize("shift", [1.0, 1.003, 1.006, 1.01])
def test_the_interval_is_the_mann_whitney_test(shift: float):
    from scipy.stats import mannwhitneyu  # takes a second, which the other workers need not spend

    rng = np.random.default_rng(4)
    for _ in range(30):
        ours, theirs = times(rng, 100 * shift), times(rng, count=25)
        found = statistics.time_ratio(ours, theirs)
        p = mannwhitneyu(ours, theirs, use_continuity=False, method="asymptotic").pvalue
        assert (found.low > 1 or found.high < 1) == (p < statistics.ALPHA)


def test_false_alarms_are_as_rare_as_promised():
    rng = np.random.default_rng(5)
    found = [statistics.time_ratio(times(rng), times(rng)) for _ in range(3000)]
    alarms = sum(change.low > 1 or change.high < 1 for change in found)
    assert alarms <= 15  # 6 are expected at ALPHA; 15 or more has probability 0.002


def test_a_small_change_is_found_when_the_noise_is_smaller():
    rng = np.random.default_rng(6)
    found = [statistics.time_ratio(times(rng, 102.0), times(rng, 100.0)) for _ in range(300)]
    assert sum(change.low > 1 for change in found) >= 297


def test_the_interval_holds_the_true_ratio():
    rng = np.random.default_rng(7)
    found = [statistics.time_ratio(times(rng, 150.0), times(rng, 100.0)) for _ in range(500)]
    assert sum(change.low <= 1.5 <= change.high for change in found) >= 496


def test_few_samples_admit_anything():
    assert statistics.time_ratio([2.0, 2.1, 2.2], [1.0, 1.1, 1.2]).low == 0.0
    assert statistics.time_ratio([2.0, 2.1, 2.2], [1.0, 1.1, 1.2]).high == math.inf


def test_swapping_the_sides_inverts_the_change():
    rng = np.random.default_rng(8)
    a, b = times(rng, 100), times(rng, 110)
    forth, back = statistics.time_ratio(a, b), statistics.time_ratio(b, a)
    assert (1 / back.ratio, 1 / back.high, 1 / back.low) == pytest.approx((forth.ratio, forth.low, forth.high))


@pytest.mark.parametrize("sides", [([], [1.0]), ([1.0], []), ([0.0, 1.0], [1.0])])
def test_times_must_be_there_and_positive(sides: tuple[list[float], list[float]]):
    with pytest.raises(ValueError, match="positive times"):
        statistics.time_ratio(*sides)


def test_a_round_is_measured_against_the_best_clocks_and_not_against_most():
    mhz = [1700.0] * 2 + [1850.0] * 6 + [1980.0] * 2  # the lowest is 92 % of the median and 86 % of the best
    assert statistics.steady(mhz) == list(range(2, 10))


@pytest.mark.parametrize(
    ("mhz", "sizes"),
    [
        ([1980.0] * 20 + [1755.0] * 10, (10, 20)),
        ([1755.0, 1980.0] * 15, (15, 15)),
        ([1980.0] * 27 + [1930.0] * 3, (3, 27)),
        ([1980.0] * 28 + [1755.0] * 2, None),
        ([1980.0] * 15 + [1950.0] * 15, None),
        ([1980.0] * 5 + [1755.0] * 4, None),
        (list(range(1755, 1980, 5)), None),
        ([0.0] * 30, None),
        ([], None),
    ],
)
def test_a_clock_of_two_speeds(mhz: list[float], sizes: tuple[int, int] | None):
    found = statistics.two_clocks(mhz)
    assert (found and tuple(map(len, found))) == sizes
    assert bool(statistics.describe_clocks(mhz)) == bool(sizes)
    if found:
        assert sorted(mhz) == [*found[0], *found[1]]


@pytest.mark.parametrize("count", [20, 25, 30, 50])
def test_the_slowest_fifth_begins_with_its_first_sample(count: int):
    fast, slow = [100.0] * (count - count // 5), [125.0] * (count // 5)
    assert statistics.slowest_fifth(fast + slow, [100.0] * count) == 0.25
    assert statistics.slowest_fifth([100.0] + fast + slow[1:], [100.0] * count) == 0.0
