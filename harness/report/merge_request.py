"""What a merge request reads of a gate: JUnit XML, OpenMetrics text, and code quality.

JUnit has a test case for each timed case and for each one with wrong bytes, named by its case id. A slowdown and wrong
bytes are failures; a missing baseline, and a case in which no kernel was judged, are errors; an inconclusive time is
skipped.

Metrics are compared line by line, as strings, so noise must not change one: a verdict is an integer, a ratio has two
significant digits, and the ratios from `harness.gate.report` change only with a significant change.

Code quality, which GitLab takes as `artifacts:reports:codequality`, is an array of issues: wrong bytes and slowdowns,
each on the line of its kernel, or of its suite if that is wrong.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import CompileError, Exit
from harness.files import KERNELS, ROOT, write_text
from harness.ground.command_lines import Asked
from harness.jit.signature import read_signatures
from harness.records.records import Record
from harness.verdict import Judgement, Performance, Verdict, failures_of, labelled
from harness.verify.screen import screen

if TYPE_CHECKING:
    from junitparser import TestCase

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(
    records: Iterable[Record], judgements: Sequence[Judgement], rerun: Callable[[str], str], asked: Asked | None = None
) -> bytes:
    """The XML. A case with wrong bytes appears once, as a failure, whatever its time.

    rerun: makes of a case id the command that repeats it; asked: who asked for the run with wrong bytes
    """
    from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

    kinds = {Exit.SLOWER: Failure, Exit.NO_BASELINE: Error, Exit.NOISY: Skipped}
    wrong = failures_of(records)
    failed = {record["case_id"] for record in wrong}
    cases = []
    for record in wrong:
        kind = Failure if Verdict(record["verdict"]).judges else Error
        cases.append(_case(record["case_id"], None, kind, record["verdict"], record["reason"], screen(record, asked)))
    for judgement in judgements:
        if judgement.case_id in failed:
            continue
        kind = kinds.get(judgement.verdict.exit_code)
        text = f"{judgement.reason}\n{labelled('reproduce', rerun(judgement.case_id))}"
        cases.append(_case(judgement.case_id, judgement.candidate_us, kind, judgement.verdict, judgement.reason, text))
    suite, root = TestSuite("gate"), JUnitXml()
    suite.add_testcases(cases)
    root.add_testsuite(suite)
    return root.tostring()


def _case(case_id: str, us: float | None, kind: type | None, verdict: str, reason: str, text: str) -> TestCase:
    """A test case. kind: the element for its result, None if it passed; us: its median time"""
    from junitparser import Attr, TestCase

    class Case(TestCase):
        file = Attr()

    case = Case(_clean(case_id), "gate", (us or 0) / 1e6)
    case.file = f"suites/{case_id.partition('/')[0]}.yaml"
    message = _clean(f"{verdict}: {reason}")
    if kind is None:
        case.system_out = message
        return case
    result = kind(message, str(verdict))
    result.text = _clean(text)
    case.result = result
    return case


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)


FASTER = -1


def metrics(records: Iterable[Record], judgements: Sequence[Judgement], ratios: Mapping[str, float]) -> str:
    """The text: cases by verdict, then the verdict of each case, then its ratio, sorted by case id.

    ratios: case id → times as fast as what the case is compared with
    """
    red = {record["case_id"]: Verdict(record["verdict"]) for record in failures_of(records)}
    wrong = sum(verdict.judges for verdict in red.values())
    verdicts = {judgement.case_id: code_of(judgement.verdict) for judgement in judgements}
    verdicts |= {case_id: int(verdict.exit_code) for case_id, verdict in red.items()}
    counts = Counter(str(judgement.verdict) for judgement in judgements)
    lines = [
        *_head("nvfp4_wrong", "Cases with a wrong byte."),
        f"nvfp4_wrong {wrong}",
        *_head("nvfp4_not_judged", "Cases in which no kernel was judged."),
        f"nvfp4_not_judged {len(red) - wrong}",
        *_head("nvfp4_cases", "Judged cases of each verdict."),
        *(f'nvfp4_cases{{verdict="{verdict}"}} {counts[verdict]}' for verdict in Performance),
        *_head(
            "nvfp4_verdict",
            "-1 faster, 0 same, 1 wrong bytes, 2 slower, 3 not told, 5 no baseline, 4 and 64 not judged.",
        ),
        *(f"nvfp4_verdict{_label(name)} {verdicts[name]}" for name in sorted(verdicts)),
        *_head("nvfp4_ratio", "Times as fast as what it is held against, two digits."),
        *(f"nvfp4_ratio{_label(name)} {two_digits(ratios[name])}" for name in sorted(ratios)),
        "# EOF",
    ]
    return "\n".join(lines) + "\n"


def code_of(verdict: Performance) -> int:
    """The exit code of a verdict, but -1 for FASTER, whose exit code is that of SAME."""
    return FASTER if verdict is Performance.FASTER else int(verdict.exit_code)


def two_digits(value: float) -> str:
    """Two significant digits, never with an exponent: 0.72, 1.3, 4.0, 12."""
    rounded = float(f"{value:.1e}")
    decimals = max(0, 1 - int(f"{rounded:e}".partition("e")[2]))
    return f"{rounded:.{decimals}f}"


def _head(name: str, help_text: str) -> list[str]:
    return [f"# TYPE {name} gauge", f"# HELP {name} {help_text}"]


def _label(case_id: str) -> str:
    escaped = case_id.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{case="{escaped}"}}'


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
