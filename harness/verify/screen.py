"""The screen of a wrong result: its story, and below it the commands that trace and repeat it.

Below here a verdict is data, with a `Story`; it becomes text when it becomes a `Result`. Commands are added where it is
known who asked and from which folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from harness.device.select import gpu_is_there
from harness.ground.command_lines import Asked, handshake_command, trace_command, verify_command
from harness.verdict import Result, labelled
from harness.verify.not_run import played

# The options of a record's trace; a record of somebody else's may have others, which a shell would be given.
_TRACE = re.compile(r"(?:(?:^| )--(?:tensor|field|at|target) [\w.][\w.,/\[\]-]*)*", re.ASCII)
_COUNTS = re.compile(r"(?<![\w:.])(?:0x[0-9A-Fa-f]+|\d[\d.,]*)", re.ASCII)  # not the line of a file, nor sm_90a
_ROW = re.compile(r"^([a-z]+) {2,}", re.MULTILINE)
_TEMPLATE = re.compile(r"<[^<>]*>")


def said(story: str, label: str) -> str:
    """The text beside a label of a result's story, as in `cause`; empty if the story lacks the label."""
    found = re.search(rf"^{label} +(.+)$", story, re.MULTILINE)
    return found[1].strip() if found else ""


def screen(found: Result | Mapping[str, Any], asked: Asked | None) -> str:
    """The story of a wrong result, or its reason, with its commands; an empty text if nothing was wrong.

    found: a result, or its record; asked: who asked for it; None if its commands would see other bytes, or if its story
    has them, as those of earlier journals do
    """
    record = found.to_record() if isinstance(found, Result) else found
    text = str(record["story"] or record["reason"])
    if text:
        text = "\n".join([text, *(labelled("library", each) for each in played(record.get("notes", ())))])
    return "\n".join([text, *commands(record, asked)]) if text and asked else text


def alike(records: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group the records of wrong cases by how they fail; groups and records keep their order.

    Cases fail alike if recipe, verdict, reason, wrong field, cause and what the story tells of the first difference are
    the same but for counts, coordinates and template arguments. Where no cause is known, the first differences must
    also be in the same of the decoded values.
    """
    groups: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(_kind(record), []).append(record)
    return list(groups.values())


def _kind(record: Mapping[str, Any]) -> tuple[object, ...]:
    story = str(record["story"])
    labels = tuple(_ROW.findall(story))
    cause = said(story, "cause")
    told = (record["reason"], said(story, "field"), cause) if labels else (record["reason"], story)
    differing: tuple[bool, ...] = ()
    if cause.startswith("not known"):
        sides = (said(story, name).split() for name in ("expected", "actual"))
        differing = tuple(mine != theirs for mine, theirs in zip(*sides, strict=False))
    counted = tuple(_uncounted(text.replace(record["case_id"], "")) for text in told)
    return record["recipe"], record["verdict"], *counted, labels, differing


def _uncounted(text: str) -> str:
    """A text without its counts, coordinates and template arguments, which differ between cases that fail alike."""
    while (shorter := _TEMPLATE.sub("", text)) != text:
        text = shorter
    return _COUNTS.sub("#", text)


def commands(record: Mapping[str, Any], asked: Asked) -> list[str]:
    """The labelled commands for a wrong case: what traces it, if kernels of a recipe ran, and what repeats it."""
    case_id, device, lines = record["case_id"], chosen(record.get("device", "")), []
    if record.get("trace") and not asked.subject and _TRACE.fullmatch(" ".join(record["trace"])):
        lines.append(labelled("trace", trace_command(case_id, record["trace"], asked, device)))
    verb = "bench" if record.get("while_timed") else "verify"
    return [*lines, labelled("reproduce", verify_command(case_id, verb, asked, device))]


def screen_of_pair(story: str, pair: str, name: str, device: str) -> str:
    """The story of a wrong handshake, with the command that repeats it. pair: as it was spelled; name: SHAPE/INPUT"""
    return f"{story}\n{labelled('reproduce', handshake_command(pair, name, chosen(device)))}"


def chosen(device: str) -> str:
    """The device that a command has to name to run there: none if `auto` is this one. device: a result's, or empty"""
    ran = "cuda" if device == "cuda" else "emulator"  # a function on the CPU is asked for as the emulator is
    auto = "cuda" if gpu_is_there() else "emulator"
    return ran if device and ran != auto else ""
