"""The committed times that pages show, by kind of GPU and by case, and where two kinds differ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from math import log
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import UsageError
from harness.files import RESULTS, ROOT
from harness.records.run_folder import read_bench
from harness.report.tables import plain

GPU = "nvidia-h200"  # shown first, and alone where a page is of one kind of GPU
_TIMES = ("peers", "roofline", "per_token_and_grouped", "gemm", "end_to_end")
_SHOWN = (*(f"{stem}.jsonl" for stem in _TIMES), "emulator.md")  # what pages show of every kind
_APART = 0.1  # of a figure; where two kinds of GPU differ by more, a sentence says why


def chips() -> list[str]:
    """The kinds of GPU that have all tables which pages show of each, as folders are named: `nvidia-h200`."""
    found = sorted(path.parent.name for path in (RESULTS / "tables").glob(f"*/{_SHOWN[0]}"))
    whole = [gpu for gpu in found if all((RESULTS / "tables" / gpu / name).exists() for name in _SHOWN)]
    return sorted(whole, key=lambda gpu: gpu != GPU)


class Times:
    """A table of `results/tables/<gpu>/`: its header and its records by case id."""

    def __init__(self, stem: str, gpu: str = GPU):
        self.path = RESULTS / "tables" / gpu / f"{stem}.jsonl"
        self.header, self.records = read_bench(self.path)
        self._by_id = {record["case_id"]: record for record in self.records}

    def __getitem__(self, case_id: str) -> Mapping[str, Any]:
        """The times of a case. Raises UsageError if the table lacks it."""
        if case_id not in self._by_id:
            raise UsageError(f"{self.path.relative_to(ROOT)} has no {case_id}, which a page shows")
        return self._by_id[case_id]["times"]


class Peers:
    """`peers.jsonl`: a record for each side of each case; `case` is an id without its mode."""

    def __init__(self, gpu: str = GPU) -> None:
        self.path = RESULTS / "tables" / gpu / "peers.jsonl"
        self.header, *lines = map(json.loads, self.path.read_text(encoding="utf-8").splitlines())
        self.records = [line for line in lines if "case_id" in line]
        self.header["roofline"] += [line["end"] for line in lines if "end" in line]

    def side(self, case: str, side: str) -> Mapping[str, Any]:
        found = [record for record in self.records if (record["case_id"], record["side"]) == (case, side)]
        if len(found) != 1:
            raise UsageError(f"{self.path.relative_to(ROOT)} has {len(found)} records of {side} on {case}, not one")
        return found[0]

    def fastest(self, case: str, mode: str) -> Mapping[str, Any]:
        """The record of the peer that takes the least time."""
        timed = [
            record
            for record in self.records
            if record["case_id"] == case and record["side"] != "ours" and mode in record["us"]
        ]
        if not timed:
            raise UsageError(f"{self.path.relative_to(ROOT)} has no peer's time of {case}")
        return min(timed, key=lambda record: record["us"][mode])


times = cache(Times)
peers = cache(Peers)


def conditions(header: Mapping[str, Any]) -> str:
    """GPU, commit, day and copy rate of a run, as one clause."""
    rates = [entry["gbps"] for entry in header["roofline"]]
    many = f"{min(rates):,.0f} to {max(rates):,.0f}" if len(rates) > 2 else ""  # of a run on several GPUs, or resumed
    shown = many or " and ".join(f"{rate:,.0f}" for rate in rates)
    gpu = f"one {header['machine']['gpu']}, driver {header['machine']['driver']}, NVRTC {header['machine']['nvrtc']}"
    return f"{gpu}, commit {header['commit'][:7]}, {header['date'][:10]}, a device copy at {shown} GB/s in the same run"


def name_of(header: Mapping[str, Any]) -> str:
    """The GPU of a run, short: `H200`."""
    return re.sub(r"^NVIDIA |( \d+GB)? (HBM3e?|PCIe)$", "", header["machine"]["gpu"])


class Figure(NamedTuple):
    """A case on one GPU. share: percent of what it is held against there, which takes other_us; us: its own time"""

    share: float
    us: float
    other_us: float


def apart(named: Mapping[str, Mapping[str, Figure]], against: str) -> Iterator[str]:
    """A sentence for each case whose share differs between two GPUs by more than a tenth, with the reason.

    named: GPU → case → figure; against: what the shares are of, such as `the copy`

    A share is one time divided by another, so the two ratios of times between the GPUs tell which of both changed.
    """
    for one, other in combinations(named, 2):
        for case, here in named[one].items():
            there = named[other].get(case)
            if there is None or abs(there.share / here.share - 1) <= _APART:
                continue
            own, others = there.us / here.us, there.other_us / here.other_us
            depends = "less" if abs(log(own)) < abs(log(others)) else "more"
            yield (
                f"- {case}: {here.share:.0f} % of {against} on the {one}, {there.share:.0f} % on the {other}, where it "
                f"takes {own:.2f} times as long and {against} {others:.2f} times: it depends {depends} on what the two "
                f"GPUs differ in than {against} does."
            )


def us(value: float) -> str:
    """Microseconds with three digits, or with all digits before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def table(columns: list[str], rows: list[list[str]], texts: int = 1) -> str:
    """A table in Markdown; the first `texts` columns are text, the others are numbers. Cells may be links."""
    ruler = ["---"] * texts + ["--:"] * (len(columns) - texts)
    return "\n".join("| " + " | ".join(line) + " |" for line in (columns, ruler, *rows))


def sentence(path: Path, beginning: str) -> str:
    """The sentence of a committed page with this beginning, as Markdown. Raises UsageError if it is gone."""
    text = " ".join(path.read_text(encoding="utf-8").split())
    start = text.find(beginning)
    end = text.find(". ", start)
    if start < 0 or end < 0:
        raise UsageError(f"{path.relative_to(ROOT)} has no sentence that begins with {beginning!r}")
    return plain(text[start : end + 1])
