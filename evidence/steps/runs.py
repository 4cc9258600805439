"""Times of several benches, looked up so that compared figures come from one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records.run_folder import BENCH, Header, read_bench, read_run
from harness.suite.launch_plan import plan
from harness.suite.suite import find_case

Times = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One bench: what it was measured with, and its records by case id."""

    name: str
    header: Header
    records: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Found:
    """The times of some cases, all from one run. run: its number, from 1"""

    run: int
    times: tuple[Times, ...]

    def us(self, name: str = "median_us") -> list[float]:
        return [times[name] for times in self.times]


class Runs:
    """Benches in the order in which they are asked; the first that has all cases of a figure gives it."""

    def __init__(self, runs: Iterable[Run]):
        self.runs = tuple(runs)

    def find(self, *case_ids: str) -> Found | None:
        """The times of all these cases from one run, or None if no run has all of them."""
        for number, run in enumerate(self.runs, 1):
            if all(case_id in run.records for case_id in case_ids):
                return Found(number, tuple(run.records[case_id]["times"] for case_id in case_ids))
        return None

    def bytes_compared(self, found: Found, case_id: str) -> int:
        """Bytes of a case that were compared before it was timed."""
        return self.runs[found.run - 1].records[case_id]["bytes_compared"]


def read(paths: Iterable[Path]) -> Runs:
    """Runs from folders of benches and from `bench.jsonl` files. Raises UsageError for one that has no times."""
    found = []
    for path in paths:
        if path.is_dir() and not (path / BENCH).exists():
            run = read_run(path)  # the bench is still running, or was cut off
            header, records = run.header, run.timed
        else:
            header, records = read_bench(path / BENCH if path.is_dir() else path)
        if not records:
            raise UsageError(f"{path} has no times; name the folder of a bench, or its {BENCH}")
        found.append(Run(path.stem, header, {record["case_id"]: record for record in records if record.get("times")}))
    return Runs(found)


@cache
def launches(case_id: str) -> int:
    """Kernels and library calls of a case, by its suite; of a product of cuBLAS, one."""
    return 1 if case_id.startswith("cublas/") else len(plan(find_case(case_id)))
