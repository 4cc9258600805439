"""A gate as JUnit XML: a test case for each timed case and for each one with wrong bytes, named by its case id.

A slowdown and wrong bytes are failures, a missing baseline is an error; an inconclusive time is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from harness.errors import Exit
from harness.records.records import Record
from harness.suite.own_recipes import verify_command
from harness.verdict import Judgement, failures_of

_KINDS = {Exit.CLEAN: "", Exit.SLOWER: "failure", Exit.NO_BASELINE: "error", Exit.NOISY: "skipped"}
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(records: Iterable[Record], judgements: Sequence[Judgement], rerun: str) -> bytes:
    """The XML. A case with wrong bytes appears once, as a failure, whatever its time.

    rerun: the command that repeats one case, `{case}` for its id
    """
    wrong = failures_of(records)
    failed = {record["case_id"] for record in wrong}
    suite = ElementTree.Element("testsuite", name="gate")
    for record in wrong:
        text = record["story"] or f"{record['reason']}\nreproduce {verify_command(record['case_id'])}"
        _outcome(_case(suite, record["case_id"], None), "failure", record["verdict"], record["reason"], text)
    for judgement in judgements:
        if judgement.case_id in failed:
            continue
        case = _case(suite, judgement.case_id, judgement.now_us)
        kind = _KINDS[judgement.verdict.exit_code]
        if kind:
            text = f"{judgement.reason}\nreproduce {rerun.replace('{case}', judgement.case_id)}"
            _outcome(case, kind, judgement.verdict, judgement.reason, text)
        else:
            ElementTree.SubElement(case, "system-out").text = _clean(f"{judgement.verdict}: {judgement.reason}")
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite)))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _case(suite: ElementTree.Element, case_id: str, us: float | None) -> ElementTree.Element:
    file = f"suites/{case_id.partition('/')[0]}.yaml"
    attributes = {"classname": "gate", "name": _clean(case_id), "file": file, "time": f"{(us or 0) / 1e6:.9f}"}
    return ElementTree.SubElement(suite, "testcase", attributes)


def _outcome(case: ElementTree.Element, kind: str, verdict: str, reason: str, text: str) -> None:
    message = _clean(f"{verdict}: {reason}")
    ElementTree.SubElement(case, kind, type=str(verdict), message=message).text = _clean(text)


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
