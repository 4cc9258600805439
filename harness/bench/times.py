"""The times of a case, in the form of its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.bench import statistics
from harness.bench.baseline import tflops
from harness.bench.energy import Energy
from harness.bench.rounds import Baseline, Round
from harness.contract.case import Case
from harness.suite.physics import Needs


@dataclass(frozen=True)
class Timing:
    """One case, timed.

    rounds: that were kept; dropped: how many were not, because the SM clock was low
    moved: bytes of a call; launches: in a call, 0 if not counted; method: how it was timed
    code: digest of machine code, grids, early launches and libraries
    needs: what no call can leave out; condition: power and throttle reasons of the GPU after the rounds
    energy: of a call, if it was asked for
    """

    rounds: list[Round]
    dropped: int
    moved: int
    code: str
    launches: int
    method: str
    needs: Needs = Needs()
    condition: Mapping[str, Any] = field(default_factory=dict)
    energy: Energy | None = None

    @property
    def exposed(self) -> int:
        return sum(each.exposed for each in self.rounds)

    def measured(self, mode: str, baseline: Baseline) -> str:
        """How it was measured, and its flaws."""
        notes = [mode, self.method, f"median of {len(self.rounds)}"]
        if self.dropped:
            notes.append(f"{self.dropped} more dropped for a clock below {statistics.THROTTLED:.0%} of the best")
        if self.exposed:
            notes.append(f"the GPU waited for the host in {self.exposed} of {len(self.rounds)} rounds")
        if baseline.why_not:
            notes.append(f"no ratio, because the baseline has no time: {baseline.why_not}")
        return "; ".join(notes)


def times(case: Case, timing: Timing, baseline: Baseline, baseline_name: str, roofline_gbps: float) -> dict[str, Any]:
    """`Result.times` of the case. roofline_gbps: 100 %"""
    samples = [1e6 * each.seconds for each in timing.rounds]
    found = statistics.summarize(samples)
    gbps = timing.moved / found.median / 1e3
    theirs = [each.baseline for each in timing.rounds if each.baseline is not None]
    baseline_us = statistics.summarize(theirs).median * 1e6 if theirs else None
    return {
        "median_us": round(found.median, 3),
        "q1_us": round(found.q1, 3),
        "q3_us": round(found.q3, 3),
        "min_us": round(found.smallest, 3),
        "rounds": len(samples),
        "relative_error": round(statistics.relative_error([each.seconds for each in timing.rounds]), 6),
        "exposed": timing.exposed,
        "samples_us": [round(us, 3) for us in samples],
        "samples_mhz": [round(each.mhz, 1) for each in timing.rounds],
        "mhz": round(statistics.summarize([each.mhz for each in timing.rounds]).median, 1),
        "dropped": timing.dropped,
        "launches": timing.launches,
        "bytes": timing.moved,
        "gbps": round(gbps, 1),
        "roofline_gbps": round(roofline_gbps, 1),
        "roofline_percent": round(100 * gbps / roofline_gbps, 2),
        "baseline": baseline_name,
        "baseline_us": baseline_us and round(baseline_us, 3),
        "baseline_percent": baseline_us and round(baseline.moved / baseline_us / 10 / roofline_gbps, 2),
        "baseline_ratio": baseline_us and round(baseline_us / found.median, 4),
        "code": timing.code,
        "measured": timing.measured(case.mode, baseline),
        **timing.condition,
        **(timing.energy.times() if timing.energy else {}),
    } | ({"tflops": round(tflops(case, found.median), 1)} if case.is_gemm else {})


def second_times(timing: Timing, second: Baseline, name: str) -> dict[str, Any]:
    """The fields that `Result.times` has in addition for a case with a second opponent."""
    theirs = [each.second for each in timing.rounds if each.second is not None]
    if not theirs:
        return {"second": f"{name}, which has no time: {second.why_not}"}
    us = 1e6 * statistics.summarize(theirs).median
    ours = 1e6 * statistics.summarize([each.seconds for each in timing.rounds]).median
    return {"second": name, "second_us": round(us, 3), "second_ratio": round(us / ours, 4)}
