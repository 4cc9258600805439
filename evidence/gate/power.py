"""How often the gates find a made-up slowdown, in rounds drawn from committed samples.

A round is drawn as a whole, with its clock and what head, head again and base took in it, so that noise which they
share stays shared. Against the stored baseline each process is off by APART besides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from harness.bench import statistics
from harness.bench.statistics import Samples
from harness.files import RESULTS
from harness.gate.against_baseline import EFFECT
from harness.gate.decision import CHANGED, decide, samples_of
from harness.gate.revision_bench import FEWEST, rounds_for
from harness.gate.second_process import APART, recurring
from harness.records.run_folder import read_bench_or_gate
from harness.verdict import Judgement, Performance

TIMES_US = (5.0, 20.0, 100.0, 1000.0)
NEAREST = 5  # committed cases of about such a time, from which rounds are drawn in turn
CASES = 40  # of a clean gate
TAIL = 1.3  # times the median, in the slow rounds of a made-up tail
REVISION, BASELINE = "another revision", "the stored baseline"


@dataclass(frozen=True)
class Slowed:
    """A slowdown: of every round by `percent`, and of a share of them to TAIL times as long."""

    percent: float = 0.0
    tail: float = 0.0

    def of(self, us: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return us * (1 + self.percent / 100) * np.where(rng.random(len(us)) < self.tail, TAIL, 1.0)

    def __str__(self) -> str:
        if self.tail:
            return f"{self.tail:.0%} of the rounds {TAIL} times as long"
        return f"{self.percent:g} %" if self.percent else "none"


SLOWDOWNS = (*(Slowed(percent) for percent in (0, 1, 2, 3, 5)), Slowed(tail=0.05), Slowed(tail=0.15))


def power(
    gates: int,
    times: Sequence[float] = TIMES_US,
    slowdowns: Sequence[Slowed] = SLOWDOWNS,
    against: Sequence[str] = (REVISION, BASELINE),
) -> pd.DataFrame:
    """How many of so many gates gave each verdict, after a second process, by gate, time and slowdown."""
    rows = []
    for name in against:
        judged = {REVISION: _by_revision, BASELINE: _by_baseline}[name]
        for us in times:
            for slowed in slowdowns:
                rng = np.random.default_rng([int(us), int(10 * slowed.percent), int(100 * slowed.tail)])
                counts = Counter(judged(us, number, slowed, rng) for number in range(gates))
                rows.append({"against": name, "us": us, "slowdown": str(slowed)} | _columns(counts))
    return pd.DataFrame(rows)


def clean_gates(gates: int, cases: int = CASES) -> int:
    """How many of so many clean gates against the stored baseline have a case that is SLOWER."""
    rng = np.random.default_rng(0)
    records = _stored()
    found = 0
    for _ in range(gates):
        drawn = rng.choice(len(records), cases, replace=False)
        found += any(_twice(records[n]["times"], Slowed(), rng) is Performance.SLOWER for n in drawn)
    return found


def _columns(counts: Counter[Performance]) -> dict[str, int]:
    shown = (Performance.SLOWER, Performance.AMBIGUOUS, Performance.SAME, Performance.FASTER)
    return {str(verdict): counts[verdict] for verdict in shown}


def _by_revision(us: float, number: int, slowed: Slowed, rng: np.random.Generator) -> Performance:
    line = _near([each for each in _lines() if each["head_us"]], us, lambda each: each["head_us"], number)
    first = _decided(line, slowed, rng)
    return first if first not in CHANGED or _decided(line, slowed, rng) is first else Performance.AMBIGUOUS


def _decided(line: dict[str, Any], slowed: Slowed, rng: np.random.Generator) -> Performance:
    series: dict[str, list[float]] = {"head": [], "again": [], "base": []}
    mhz: list[float] = []
    while True:
        drawn = rng.integers(0, len(line["mhz"]), FEWEST)
        for name, us in series.items():
            taken = np.array(line["samples_us"][name])[drawn]
            us += list(taken if name == "base" else slowed.of(taken, rng))
        mhz += [line["mhz"][n] for n in drawn]
        verdict = decide(*(Samples(us, mhz) for us in series.values())).verdict
        if len(mhz) >= rounds_for(verdict):
            return verdict


def _by_baseline(us: float, number: int, slowed: Slowed, rng: np.random.Generator) -> Performance:
    return _twice(_near(_stored(), us, lambda each: each["times"]["median_us"], number)["times"], slowed, rng)


def _twice(times: dict[str, Any], slowed: Slowed, rng: np.random.Generator) -> Performance:
    then = _process(times, Slowed(), rng)
    first = _judged(_process(times, slowed, rng) | {"code": "of the head"}, then)
    if first.verdict not in CHANGED and not first.ask_again:
        return first.verdict
    return recurring([first], [_judged(_process(times, slowed, rng) | {"code": "of the head"}, then)])[0].verdict


def _judged(now: dict[str, Any], then: dict[str, Any]) -> Judgement:
    return decide(samples_of(now), None, samples_of(then), EFFECT)


def _process(times: dict[str, Any], slowed: Slowed, rng: np.random.Generator) -> dict[str, Any]:
    """The times of a process of its own."""
    drawn = rng.integers(0, len(times["samples_us"]), len(times["samples_us"]))
    us = slowed.of(np.array(times["samples_us"])[drawn] * (1 + APART * rng.normal()), rng)
    mhz = [times["samples_mhz"][n] for n in drawn]
    median_us = statistics.summarize(us).median
    return times | {"samples_us": us.tolist(), "samples_mhz": mhz, "median_us": median_us}


def _near(found: Sequence[dict], us: float, time: Any, number: int) -> dict[str, Any]:
    nearest = sorted(found, key=lambda each: abs(np.log(time(each) / us)))[:NEAREST]
    return nearest[number % len(nearest)]


@lru_cache
def _lines() -> list[dict[str, Any]]:
    lines = read_bench_or_gate(RESULTS / "gate" / "clean" / "gate.jsonl")[1]
    return [line for line in lines if line.get("samples_us")]


@lru_cache
def _stored() -> list[dict[str, Any]]:
    lines: Iterator[dict] = iter(read_bench_or_gate(RESULTS / "baselines" / "nvidia-h200" / "bench.jsonl")[1])
    return [line for line in lines if line["case_id"].endswith("/graph") and line["times"]]
