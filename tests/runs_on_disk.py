"""Runs as they lie on a disk, with records that a real run of these cases would have written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from timed_runs import HEADER, of_case, times_of

from harness.expected.expected import fields_of
from harness.jit.compile import instantiation
from harness.suite.launch_plan import plan
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict
from harness.verify.judge import POISONS

IDS = tuple(f"swizzle/default/{shape}/normal/eager" for shape in ("16x16", "16x32", "32x16", "48x48"))
EMULATOR = {"device": "emulator", "processor": "x86_64", "nvrtc": "13.0"}
GPU = {**HEADER["machine"], "device": "cuda"}


@cache  # no test changes the sources of its own process
def sources() -> str:
    """The digest of this tree's sources; an earlier harness has it elsewhere."""
    try:
        from harness.records.seal import sources_digest
    except ImportError:
        from harness.records.journal import sources_digest
    return sources_digest()


def digest(ids: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def passed(case_id: str, times: Sequence[float] = (), **changes: Any) -> dict[str, Any]:
    """The record of a case that passed on the emulator, or with times on a GPU."""
    case = find_case(case_id)
    targets = ("sm_90a",) if times else ("sm_90a", "sm_100a")
    kernels = [instantiation(step.signature, step.flags) for step in plan(case) if not step.library]
    nbytes = sum(field.nbytes for field in fields_of(case).values())
    result = Result(
        case.id, case.recipe, Verdict.PASS, input=case.input, device="cuda" if times else "emulator", targets=targets,
        instantiations=tuple(f"{target} {kernel}" for target in targets for kernel in kernels),
        oracles=("numpy", "torch"), bytes_compared=len(POISONS) * len(targets) * nbytes, seconds=0.1,
        digests={target: {"exact": "0" * 32} for target in targets}, times=_times(case_id, times) if times else {},
    )  # fmt: skip
    return _all_fields(result) | changes


def _all_fields(result: Result) -> dict[str, Any]:
    """The record of a result, with the fields that a run leaves out where they are empty."""
    record = json.loads(json.dumps(asdict(result)))
    record.pop("findings", None)
    return record


def _times(case_id: str, samples: Sequence[float]) -> dict[str, Any]:
    try:
        return of_case(times_of(samples), case_id)
    except ImportError:
        return times_of(samples)


def excluded(case_id: str) -> dict[str, Any]:
    case = find_case(case_id)
    reason = "capability: the emulator has no CUDA graphs; mode 'graph' needs a GPU"
    result = Result(case.id, case.recipe, Verdict.EXCLUDED, reason, input=case.input, device="emulator")
    return _all_fields(result)


def mismatch(case_id: str) -> dict[str, Any]:
    case = find_case(case_id)
    result = Result(case.id, case.recipe, Verdict.MISMATCH, "bytes differ", "STORY", case.input, "emulator")
    return _all_fields(result)


def about(ids: Iterable[str], whole: Iterable[str], shard: str = "1/1", **changes: Any) -> dict[str, Any]:
    """The first line of a journal. ids: of this shard; whole: of all shards"""
    ids = list(ids)
    return {
        "sources": sources(), "sealed": {"package numpy": "2.4"}, "device": EMULATOR, "cases": digest(ids),
        "selected": len(ids), "selection": digest(whole), "set": "", "shard": shard, "timed": False,
    } | changes  # fmt: skip


def write_run(folder: Path, first: dict[str, Any], *records: dict[str, Any], header: dict | None = None) -> Path:
    """A run's folder with its journal, and with the header of its times."""
    folder.mkdir(parents=True)
    lines = (json.dumps(line) + "\n" for line in (first, *records))
    (folder / "journal.jsonl").write_text("".join(lines))
    if header:
        (folder / "bench_header.json").write_text(json.dumps(header))
    return folder


def shard(folder: Path, number: int, ids: Sequence[str], whole: Sequence[str] = IDS, count: int = 2, **changes: Any):
    """Shard `number` of `count` with a PASS for each case."""
    first = about(ids, whole, f"{number}/{count}", **changes)
    return write_run(folder / f"shard{number}", first, *map(passed, ids))


def timed_shard(folder: Path, number: int, ids: Sequence[str], count: int = 2, **header: Any) -> Path:
    """Shard `number` of `count`, from a GPU, with a PASS and times for each case."""
    device = {**header.get("machine", HEADER["machine"]), "device": "cuda"}
    first = about(ids, IDS, f"{number}/{count}", timed=True, device=device)
    records = [passed(case_id, [20.0 + i / 10 for i in range(12)]) for case_id in ids]
    return write_run(folder / f"timed{number}", first, *records, header=HEADER | {"sources": sources()[:16]} | header)
