"""Wrong bytes and slowdowns as a code-quality report, each on the line of its kernel, or of its suite if that is wrong.

The format is the one GitLab takes as `artifacts:reports:codequality`: an array of issues.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import CompileError
from harness.files import KERNELS, ROOT, write_text
from harness.jit.signature import read_signatures
from harness.records.records import Record
from harness.verdict import Judgement, Performance, Verdict, failures_of

FILE = "codequality.json"


def write_code_quality(folder: Path, records: Iterable[Record], judgements: Sequence[Judgement] = ()) -> Path:
    """Write `codequality.json`, an empty array if nothing is wrong; its path."""
    path = folder / FILE
    write_text(path, json.dumps(code_quality(records, judgements), indent=1) + "\n")
    return path


def code_quality(records: Iterable[Record], judgements: Sequence[Judgement] = ()) -> list[dict[str, Any]]:
    """An issue for each record of a wrong kernel or of none that could be judged, and each judgement that is SLOWER."""
    by_id = {record["case_id"]: record for record in records}
    wrong = failures_of(by_id.values())
    slower = [judgement for judgement in judgements if judgement.verdict is Performance.SLOWER]
    return [_issue(record, record["verdict"], record["reason"], "blocker") for record in wrong] + [
        _issue(by_id[judgement.case_id], judgement.verdict, judgement.reason, "major") for judgement in slower
    ]


def owner(record: Record) -> tuple[str, int]:
    """File, from the repository's root, and line of the last kernel that a case ran; else of the first in its file.

    The last, because a recipe of several launches writes its codes in the last one.
    """
    recipe = record["recipe"]
    lines = _lines(recipe)
    if not lines:
        return f"suites/{recipe}.yaml", 1
    ran = [name.split(" ", 1)[-1].partition("<")[0] for name in record.get("instantiations", ())]
    known = [name for name in ran if name in lines]
    return (KERNELS / f"{recipe}.cu").relative_to(ROOT).as_posix(), lines[known[-1]] if known else min(lines.values())


def _issue(record: Record, verdict: str, reason: str, severity: str) -> dict[str, Any]:
    case_id = record["case_id"]
    path, line = (f"suites/{record['recipe']}.yaml", 1) if verdict == Verdict.SETUP_ERROR else owner(record)
    return {
        "description": f"{verdict} {case_id}: {reason}",
        "check_name": str(verdict),
        "fingerprint": hashlib.sha256(f"{case_id} {verdict}".encode()).hexdigest(),
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line}},
    }


@cache
def _lines(recipe: str) -> dict[str, int]:
    """Kernel → line, for a recipe's file; empty if it cannot be read."""
    try:
        return {name: signature.line for name, signature in read_signatures(recipe).items()}
    except CompileError:
        return {}
