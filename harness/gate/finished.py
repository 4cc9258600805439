"""Check that a gate's file has all chosen cases, and that a gate could have timed each of them."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.bench.cold_copies import copies_for
from harness.contract.case import Case
from harness.errors import HarnessError, UsageError
from harness.records.possible_times import memory_bytes, too_short
from harness.records.run_folder import Header
from harness.records.seal import sources_digest
from harness.suite.suite import find_case

MOST_MOVED = 2.0  # largest ratio of copy rooflines within a gate; it times both sides in turns, so it may be large
Line = Mapping[str, Any]


def flaw(header: Header, lines: Sequence[Line]) -> str:
    """Why a gate may not be called clean although its cases are, or an empty string.

    Raises UsageError for a case that there is not or that was not chosen, for a finished gate that lacks one, and for
    memory or times that the case cannot have.
    """
    found = [line for line in lines if "case_id" in line]
    here = header.get("sources") == sources_digest()[:16]
    chosen = _chosen(header, found, here)
    for line in found:
        problem = _impossible(line, header, here)
        if problem:
            raise UsageError(f"{line['case_id']} is not what a gate writes: {problem}")
    ends = [line["end"]["gbps"] for line in lines if "end" in line]
    if not ends:
        of = f" of {chosen:,}" if chosen else ""
        return f"unfinished, {len(found):,}{of} cases"
    if chosen is not None and len(found) != chosen:
        raise UsageError(f"the gate came to its end with {len(found):,} cases, and {chosen:,} were chosen")
    rates = [rate["gbps"] for rate in (header.get("roofline") or [])] + ends
    if max(rates) > MOST_MOVED * min(rates):
        return f"the copy roofline moved from {min(rates):,.0f} to {max(rates):,.0f} GB/s"
    return ""


def _chosen(header: Header, found: Sequence[Line], here: bool) -> int | None:
    """How many cases were chosen; None for an earlier gate that did not record it. here: whether this tree made it"""
    chosen = header.get("chosen")
    if chosen is None and here:
        raise UsageError("the header of the gate does not say how many cases were chosen, as a gate of this tree does")
    if chosen is not None and len(found) > chosen:
        raise UsageError(f"the gate has {len(found):,} cases, and {chosen:,} were chosen")
    named = _named(header.get("command", ""))
    ids = {_graph_id(case_id) for case_id in named.case}
    for line in found:
        recipe = line["case_id"].partition("/")[0]
        if ids and line["case_id"] not in ids or named.recipe and recipe not in named.recipe:
            raise UsageError(f"{line['case_id']} is not among the cases that the gate's command names")
    if ids and chosen not in (None, len(ids)):
        raise UsageError(f"the gate's header has {chosen:,} cases chosen, and its command names {len(ids):,}")
    return len(ids) if ids else chosen


def _named(command: str) -> argparse.Namespace:
    """The cases and recipes that a command names; none if the shell could not parse it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--recipe", "-R", action="append", default=[])
    try:
        return parser.parse_known_args(shlex.split(command))[0]
    except (ValueError, argparse.ArgumentError):
        return parser.parse_args([])


def _graph_id(case_id: str) -> str:
    """The id under which a gate times a case that its command names."""
    try:
        return replace(find_case(case_id), mode="graph").id
    except HarnessError:
        return case_id  # a case of another tree; it is refused as unknown later


def _impossible(line: Line, header: Header, here: bool) -> str:
    try:
        case = find_case(line["case_id"])
    except HarnessError as error:
        return str(error)
    if case.id != line["case_id"]:
        return f"that case is called {case.id}"
    if not line["samples_us"]:
        return ""
    machine = header.get("machine", {})
    if here and (problem := _other_memory(line, case, machine)):
        return problem
    copy_gbps = min(rate["gbps"] for rate in header["roofline"])
    for us in (line["head_us"], line["base_us"]):
        if us and (why := next(too_short(case, "", us, copy_gbps, machine, calls=line["calls"]), "")):
            return why
    return ""


def _other_memory(line: Line, case: Case, machine: Mapping[str, str]) -> str:
    """How the line's copies differ from the ones that this tree would time the case on, or an empty string."""
    right = memory_bytes(case)
    if right is not None and line["bytes"] != right:
        return f"bytes is {line['bytes']}, and a copy of its memory has {right}"
    l2_bytes = machine.get("l2_bytes", "")
    if l2_bytes.isdecimal() and line["copies"] != (copies := copies_for(line["bytes"], int(l2_bytes))):
        return f"copies is {line['copies']}, and {copies} of it fill the L2 as often as is needed"
    return ""
