"""The times of a record are of the median of its rounds."""

from __future__ import annotations

from harness.bench.rounds import Baseline, Round
from harness.bench.times import Timing, times
from harness.suite.suite import find_case


def test_bytes_a_second_are_those_of_the_median():
    rounds = [Round(1e-6 * us, 1980.0, False, 2e-6 * us) for us in (100.0, 150.0, 200.0, 250.0, 400.0)]
    found = times(
        find_case("swizzle/default/128x64/normal/graph"), Timing(rounds, 0, 400_000_000, "code", 1, "so"),
        Baseline(moved=100_000_000), "b", 4000.0,
    )  # fmt: skip
    assert (found["min_us"], found["median_us"]) == (100.0, 200.0)
    assert (found["gbps"], found["roofline_percent"]) == (2000.0, 50.0)
    assert (found["baseline_us"], found["baseline_percent"], found["baseline_ratio"]) == (400.0, 6.25, 2.0)
