"""Every case of a gate against a base revision: fetch it, time it, keep each line the moment it is known."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import roofline
from harness.bench.gpu_timer import GpuClock, clock_of
from harness.case import Case
from harness.duel import match, revision
from harness.duel.match import Arena, Match
from harness.errors import UsageError
from harness.gate import Judgement
from harness.runner.run_files import Record, new_header, now
from harness.suite import ROOT, find_case, load_suites, suite_of
from harness.verdict import Verdict

FILE = "gate.jsonl"


def cases(recipes: Sequence[str], ids: Sequence[str]) -> list[Case]:
    """What a gate times: the given ids, or the bench sets of these recipes, or of all; each problem once, as a graph.

    Raises UsageError for a recipe or a case that there is not.
    """
    if ids:
        found: Iterable[Case] = map(find_case, ids)
    else:
        suites = [suite_of(name) for name in recipes] or load_suites()
        found = (case for suite in suites for case in suite.cases("bench"))
    return list(dict.fromkeys(replace(case, mode="graph") for case in found))


def run(
    base: str,
    chosen: Sequence[Case],
    command: str,
    effect: float,
    again: bool = False,
    folder: Path | None = None,
    tell: Callable[[Match], None] = lambda match: None,
) -> tuple[Path, list[Match]]:
    """Time the cases against the revision `base`; the file that was written, and what became of each case.

    folder: for the file; a new one under `results/runs` if none is named. tell: called with each match
    Raises UsageError for a bad revision, DeviceUnavailable without a GPU.
    """
    from harness.device.cuda import CudaDevice

    with tempfile.TemporaryDirectory(prefix="nvfp4-base-") as beside:
        theirs = revision.fetch(base, Path(beside))
        head = CudaDevice()
        arena = Arena(head, CudaDevice(kernels=theirs.kernels, suites=theirs.suites), clock_of(head), effect, again)
        header = new_header(command, head.identity(), match.METHOD, arena.clock.words) | {
            "base": base, "base_commit": theirs.commit, "effect": effect,
        }  # fmt: skip
        header["roofline"].append(_roofline(arena.clock, "start"))
        path = (folder or ROOT / "results" / "runs" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")) / FILE
        if path.exists():
            raise UsageError(f"{path} is there already; nothing is overwritten, so name another folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        done = []
        with path.open("w", encoding="utf-8") as file:
            _write(file, header)
            for case in chosen:
                done.append(arena.match(case))
                _write(file, record(done[-1]))
                tell(done[-1])
                head.release()
            _write(file, {"end": _roofline(arena.clock, "end")})
        return path, done


def record(found: Match) -> Record:
    """A match as a line of the file."""
    finding = found.finding
    changes = {name: getattr(finding, name) for name in ("time", "cycles", "floor")}
    return {
        "case_id": found.case.id,
        "recipe": found.case.recipe,
        "verified": str(found.verified.verdict),
        "verdict": str(finding.verdict),
        "reason": finding.reason,
        "head_us": _rounded(finding.head_us),
        "base_us": _rounded(finding.base_us),
        **{
            name: change and [round(x, 5) for x in (change.ratio, change.low, change.high)]
            for name, change in changes.items()
        },
        "dropped": finding.dropped,
        "copies": found.copies,
        "calls": found.calls,
        "bytes": found.memory,
        "memory": found.cold,
        "samples_us": {name: [round(us, 4) for us in samples.us] for name, samples in found.samples.items()},
        "mhz": [round(mhz, 1) for mhz in found.samples["head"].mhz] if found.samples else [],
    }


def judgement(found: Match) -> Judgement:
    """A match as the gate shows it."""
    finding = found.finding
    return Judgement(found.case.id, finding.verdict, finding.reason, finding.head_us, finding.base_us, finding.time)


def wrong(done: Iterable[Match]) -> list[Record]:
    """The verified results of the cases that are not right, as records."""
    return [m.verified.to_record() for m in done if m.verified.verdict not in (Verdict.PASS, Verdict.EXCLUDED)]


def _roofline(clock: GpuClock, point: str) -> Record:
    return {"point": point, "date": now(), "gbps": round(roofline.copy_gbps(clock), 1)}


def _rounded(us: float | None) -> float | None:
    return us and round(us, 4)


def _write(file: Any, line: Record) -> None:
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    file.flush()
