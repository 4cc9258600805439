"""The screen of a wrong result: its story, and below it the commands that trace and repeat it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness.device.select import gpu_is_there
from harness.ground.command_lines import Asked, trace_command, verify_command
from harness.verdict import Result

# The options of a record's trace; a record of somebody else's may have others, which a shell would be given.
_TRACE = re.compile(r"(?:(?:^| )--(?:tensor|field|at|target) [\w.][\w.,/\[\]-]*)*", re.ASCII)
_LABEL = 10  # columns, as in the story above


def screen(found: Result | Mapping[str, Any], asked: Asked | None) -> str:
    """The story of a wrong result, or its reason, with its commands; an empty text if nothing was wrong.

    found: a result, or its record; asked: who asked for it; None if its commands would see other bytes, or if its story
    has them, as those of earlier journals do
    """
    record = found.to_record() if isinstance(found, Result) else found
    told = str(record["story"] or record["reason"])
    return "\n".join([told, *commands(record, asked)]) if told and asked else told


def commands(record: Mapping[str, Any], asked: Asked) -> list[str]:
    """The labelled commands for a wrong case: what traces it, if kernels of a recipe ran, and what repeats it."""
    case_id, device, lines = record["case_id"], chosen(record.get("device", "")), []
    if record.get("trace") and not asked.subject and _TRACE.fullmatch(" ".join(record["trace"])):
        lines.append(f"{'trace':<{_LABEL}}{trace_command(case_id, record['trace'], asked, device)}")
    verb = "bench" if record.get("while_timed") else "verify"
    return [*lines, f"{'reproduce':<{_LABEL}}{verify_command(case_id, verb, asked, device)}"]


def chosen(device: str) -> str:
    """The device that a command has to name to run there: none if `auto` is this one. device: a result's, or empty"""
    ran = "cuda" if device == "cuda" else "emulator"  # a function on the CPU is asked for as the emulator is
    auto = "cuda" if gpu_is_there() else "emulator"
    return ran if device and ran != auto else ""
