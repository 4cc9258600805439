"""Runs of cases of `swizzle` with times that were never measured, and a folder with a run and a baseline."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import timed_runs
from runs_on_disk import passed, sources
from timed_runs import evidence, of_case, times_of

from harness.cli import main
from harness.errors import Exit
from harness.gate import against_baseline
from harness.records.run_folder import RunFiles, commit
from harness.verdict import Judgement, Result, Verdict

HEADER = timed_runs.HEADER | {
    "command": "pytest suites --bench", "commit": commit(), "sources": sources()[:16],
    "machine": {
        "gpu": "NVIDIA H200", "multiprocessors": "132", "l2_bytes": "1", "power_limit_w": "700",
        "driver": "13000", "runtime": "13000", "nvrtc": "13.0",
    },
    "floors_us": {"events": 1.5},
}  # fmt: skip


CASE = "swizzle/default/16x16/normal/eager"
OTHER = "swizzle/default/16x16/normal/graph"
BENCHED = "swizzle/default/1024x2048/normal/graph"  # the suites time it, and not the two above


def record(case_id: str = CASE, us: float = 100.0, *, noise: float = 0.002, count: int = 30, seed: int = 0, **changes):
    rng = np.random.default_rng([seed, *case_id.replace("swizzle", "toy").encode()])
    samples = (us * (1 + noise * rng.gamma(1.5, size=count))).tolist()
    times = times_of(samples, **{"code": f"code {seed}"} | changes)
    if case_id in (CASE, OTHER, BENCHED):
        return passed(case_id, samples, **({"oracles": ["torch"]} if case_id == BENCHED else {})) | {
            "times": of_case(times, case_id)
        }
    result = Result(case_id, case_id.split("/")[0], Verdict.PASS, times=times, **evidence(case_id))
    return json.loads(json.dumps(result.to_record()))


def without_time(case_id: str = CASE, verdict: str = "PASS", reason: str = "") -> dict:
    if verdict == "PASS":
        return passed(case_id, [1.0]) | {"times": {}}
    result = Result(case_id, case_id.split("/")[0], Verdict(verdict), reason)
    return json.loads(json.dumps(result.to_record()))


def run_of(*records: dict, header: dict = HEADER) -> RunFiles:
    return RunFiles(Path("run"), list(records), header)


def judged(run: RunFiles, *baseline: dict, header: dict = HEADER, **options) -> list[Judgement]:
    """Judge a run by a baseline of an earlier one. header: the baseline's, but for its date"""
    return against_baseline.judge(run, header | {"date": "2025-12-31T00:00:00Z"}, baseline, **options)


def only(run: RunFiles, *baseline: dict, **options) -> Judgement:
    (judgement,) = judged(run, *baseline, **options)
    return judgement


def changed(**changes) -> dict:
    header = deepcopy(HEADER)
    for key, value in changes.items():
        (header["machine"] if key in header["machine"] else header)[key] = value
    return header


def rates(*gbps: float) -> list[dict]:
    return [{"point": "start" if i % 2 == 0 else "end", "gbps": rate, "date": ""} for i, rate in enumerate(gbps)]


class Folder:
    """A run on disk, the file of a baseline, and the command that compares them."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]):
        self.run_dir = path / "run"
        self.baseline = path / "gpu" / "bench.jsonl"
        self.capsys = capsys
        self.run_dir.mkdir()
        self.made = 0

    def holds(self, *records: dict, header: dict | None = None, **about: object) -> None:
        """Put a new run into the folder. header: that of the first is HEADER, and each after it began a second later"""
        header = header or changed(date=f"2026-01-01T00:00:{self.made:02}Z")
        self.made += 1
        lines = [{"sources": sources(), "selected": len(records)} | about, *records]
        (self.run_dir / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (self.run_dir / "bench_header.json").write_text(json.dumps(header))

    def saves(self, *records: dict, header: dict | None = None, **about: object) -> None:
        """Put a new run into the folder, and its times into the baseline."""
        self.holds(*records, header=header, **about)
        code, text = self.gate("--save")
        assert code == Exit.CLEAN, text

    def refusal(self, *options: str) -> str:
        """The error with which the gate refuses the run."""
        code, text = self.gate(*options)
        assert code == Exit.USAGE, text
        return text

    def gate(self, *options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["gate", str(self.run_dir), "--baseline", str(self.baseline), *options])
        out, error = self.capsys.readouterr()
        return ended.value.code, out or error
