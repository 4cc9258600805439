"""A gate against a base revision: fetch it, compare every case, write each line as soon as it is known."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.bench import roofline
from harness.bench.ahead import Ahead, processes
from harness.bench.baseline import baseline_first
from harness.bench.gpu_timer import GpuClock, clock_of
from harness.contract.case import Case
from harness.device.cuda import CudaDevice
from harness.errors import UsageError
from harness.files import write_text
from harness.gate import revision_bench
from harness.gate.revision import compile_changed, fetch
from harness.gate.revision_bench import Comparison, RevisionBench
from harness.records.records import Record
from harness.records.run_folder import new_folder, new_header, now
from harness.suite.suite import find_case, load_suites, suite_of

FILE = "gate.jsonl"


def cases(recipes: Sequence[str], ids: Sequence[str]) -> list[Case]:
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
    unchanged_too: bool = False,
    folder: Path | None = None,
    done_with: Callable[[Comparison], None] = lambda comparison: None,
) -> tuple[Path, list[Comparison]]:
    """Time the cases against the revision `base`; return the file that was written and every comparison.

    folder: for the file, a new one under `results/runs` by default; done_with: called after each case
    Raises UsageError for a bad revision, DeviceUnavailable without a GPU.
    """
    with (
        tempfile.TemporaryDirectory(prefix="nvfp4-base-") as beside,
        closing(Ahead(chosen, processes(), opponents=False)) as ahead,
    ):
        revision = fetch(base, Path(beside))
        head = CudaDevice()
        bench = RevisionBench(
            head, CudaDevice(kernels=revision.kernels, suites=revision.suites), clock_of(head), effect, unchanged_too
        )
        header = new_header(command, head.identity(), revision_bench.METHOD, bench.clock.method)
        header |= {"base": base, "base_commit": revision.commit, "effect": effect, "chosen": len(chosen)}
        header["roofline"].append(_roofline(bench.clock, "start"))
        bench.roofline_gbps = header["roofline"][0]["gbps"]
        path = (folder or new_folder()) / FILE
        if path.exists():
            raise UsageError(f"{path} is there already; nothing is overwritten, so name another folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        done = []
        with path.open("w", encoding="utf-8") as file:
            _write(file, header)
            compile_changed(chosen, head, bench.base)
            ahead.begin(head.targets[0], [case.id for case in chosen if bench.same(case)])
            for case in sorted(chosen, key=baseline_first):  # in which order they are prepared
                done.append(bench.compare(case))
                _write(file, record(done[-1]))
                done_with(done[-1])
                head.release()
            _write(file, {"end": _roofline(bench.clock, "end")})
        return path, done


def rewrite(path: Path, done: Sequence[Comparison]) -> None:
    """Write these comparisons in place of those of the file, between its first and its last line."""
    header, *_, end = path.read_text(encoding="utf-8").splitlines()
    lines = [header, *(json.dumps(record(one), ensure_ascii=False) for one in done), end]
    write_text(path, "\n".join(lines) + "\n")


def record(found: Comparison) -> Record:
    judgement = found.judgement
    changes = {name: getattr(judgement, name) for name in ("time", "cycles", "floor")}
    return {
        "case_id": found.case.id,
        "recipe": found.case.recipe,
        "verified": found.verified and str(found.verified.verdict),
        "verdict": str(judgement.verdict),
        "reason": judgement.reason,
        "head_us": judgement.candidate_us and round(judgement.candidate_us, 4),
        "base_us": judgement.reference_us and round(judgement.reference_us, 4),
        **{
            name: change and [round(x, 5) for x in (change.ratio, change.low, change.high)]
            for name, change in changes.items()
        },
        "recurs": found.recurs,
        "dropped": judgement.dropped,
        "copies": found.copies,
        "calls": found.calls,
        "bytes": found.memory,
        "memory": found.cold,
        "samples_us": {name: [round(us, 4) for us in samples.us] for name, samples in found.samples.items()},
        "mhz": [round(mhz, 1) for mhz in found.samples["head"].mhz] if found.samples else [],
    }


def _roofline(clock: GpuClock, point: str) -> Record:
    return {"point": point, "date": now(), "gbps": round(roofline.copy_gbps(clock), 1)}


def _write(file: Any, line: Record) -> None:
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    file.flush()
