"""The committed times that pages show, by case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.files import ROOT
from harness.records.run_folder import read_bench
from harness.report.tables import plain

RESULTS = ROOT / "results"
GPU = "nvidia-h200"


class Times:
    """A table of `results/tables/<gpu>/`: its header and its records by case id."""

    def __init__(self, stem: str):
        self.path = RESULTS / "tables" / GPU / f"{stem}.jsonl"
        self.header, self.records = read_bench(self.path)
        self._by_id = {record["case_id"]: record for record in self.records}

    def __getitem__(self, case_id: str) -> Mapping[str, Any]:
        """The times of a case. Raises UsageError if the table lacks it."""
        if case_id not in self._by_id:
            raise UsageError(f"{self.path.relative_to(ROOT)} has no {case_id}, which a page shows")
        return self._by_id[case_id]["times"]

    def us(self, case_id: str) -> float:
        return self[case_id]["median_us"]


class Peers:
    """`peers.jsonl`: a record for each side of each case; `case` is an id without its mode."""

    def __init__(self) -> None:
        self.path = RESULTS / "tables" / GPU / "peers.jsonl"
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
    rates = " and ".join(f"{entry['gbps']:,.0f}" for entry in header["roofline"])
    gpu = f"one {header['machine']['gpu']}, driver {header['machine']['driver']}, NVRTC {header['machine']['nvrtc']}"
    return f"{gpu}, commit {header['commit'][:7]}, {header['date'][:10]}, a device copy at {rates} GB/s in the same run"


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
