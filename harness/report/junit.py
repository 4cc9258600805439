"""A gate as JUnit XML: a test case for each timed case and for each one with wrong bytes, named by its case id.

A slowdown and wrong bytes are failures; a missing baseline, and a case in which no kernel was judged, are errors; an
inconclusive time is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from harness.errors import Exit
from harness.ground.command_lines import Asked
from harness.records.records import Record
from harness.verdict import Judgement, Verdict, failures_of
from harness.verify.screen import screen

if TYPE_CHECKING:
    from junitparser import TestCase

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(
    records: Iterable[Record],
    judgements: Sequence[Judgement],
    rerun: Callable[[str], str],
    asked: Asked | None = None,
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
        text = f"{judgement.reason}\nreproduce {rerun(judgement.case_id)}"
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
