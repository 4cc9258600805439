"""Check a gate's file: each verdict is recomputed from its samples, and all chosen cases are there and possible.

So no edited verdict, median or interval is shown.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from harness.bench.cold_copies import copies_for
from harness.bench.statistics import Samples
from harness.contract.case import Case
from harness.errors import HarnessError, UsageError
from harness.gate.decision import CHANGED, EFFECT, decide
from harness.records.possible import memory_bytes, too_short
from harness.records.run_folder import Header
from harness.records.seal import sources_digest
from harness.suite.suite import find_case
from harness.suite.suite_file import is_recipe
from harness.verdict import Judgement, Performance, TimeRatio

# Tolerances for rounding: of a change, and of the last digits of a time in us or a clock in GHz.
_ROUNDED, _LAST_DIGITS = 2e-5, 1.1e-4
MOST_MOVED = 2.0  # largest ratio of copy rooflines within a gate; it times both sides in turns, so it may be large
Line = Mapping[str, Any]


def require_its_verdict(line: Line, header: Header) -> None:
    """Raise UsageError unless the line has the result of `decide` on its samples, and the verdict that follows."""
    if problem := _unlike_its_samples(line, header):
        raise UsageError(f"{line['case_id']} {problem}")


def _unlike_its_samples(line: Line, header: Header) -> str:
    words = header.get("command", "").split()
    if line["verified"] is None and "--all" in words:
        return "was not timed, by a gate that times all cases (--all)"
    if not line["samples_us"] or line["verdict"] == Performance.INVALID:
        return ""  # times of a graph that wrote wrong bytes prove nothing
    found = decide(
        *(Samples(line["samples_us"][name], line["mhz"]) for name in ("head", "again", "base")),
        header.get("effect", EFFECT),
    )
    if line["dropped"] != found.dropped:
        return f"has dropped {line['dropped']} rounds, and by its clocks {found.dropped} are to be dropped"
    if problem := _other_times(line, found):
        return problem
    right = found.verdict
    recurs = line.get("recurs")
    if recurs is not None:
        if right not in CHANGED or "--once" in words:
            return f"is {right} by its samples and command, so no second process was asked about it"
        if not recurs:
            beginnings = (
                f"{right} in one process, and {other}" for other in ("a second found ", "no second has timed it")
            )
            if not line["reason"].startswith(tuple(beginnings)):
                return f"is {right} in its own process, and its reason does not say what another found"
            right = Performance.AMBIGUOUS
    return "" if line["verdict"] == right else f"is {line['verdict']}, and its changes are {right}"


def _other_times(line: Line, found: Judgement) -> str:
    """The first median or change that does not follow from the samples; an empty string if all do."""
    for name, own in (("head_us", found.candidate_us), ("base_us", found.reference_us)):
        said = line[name]
        if (said is None) is not (own is None) or said and abs(said - own) > _LAST_DIGITS:
            return f"has the {name} {said}, and that of its samples is {own}"
    # Earlier gates decided before they rounded.
    near = _ROUNDED + _LAST_DIGITS / min(line["head_us"], line["base_us"]) if line["time"] else 0.0
    for name in ("time", "cycles", "floor"):
        said, own = line[name] and TimeRatio(*line[name]), getattr(found, name)
        more = 1e3 * _LAST_DIGITS / max(line["mhz"]) if name == "cycles" and own else 0.0
        if said and any(abs(a - b) > (near + more) * b for a, b in zip(astuple(said), astuple(own), strict=True)):
            return f"has the {name} {said}, and that of its samples is {own}"
    return ""


def flaw(header: Header, lines: Sequence[Line]) -> str:
    """Why a gate may not be called clean although its cases are, or an empty string.

    Raises UsageError for a case that there is not or that was not chosen, for a finished gate that lacks one, and for
    memory or times that the case cannot have.
    """
    found = [line for line in lines if "case_id" in line]
    here = header.get("sources") == sources_digest()[:16]
    chosen = _chosen(header, found, here)
    for line in found:
        if problem := _impossible(line, header, here):
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
    parser.add_argument("--recipe", "-R", action="append", default=[])  # as earlier gates spelled what is a word now
    parser.add_argument("--base")
    try:
        named, others = parser.parse_known_args(shlex.split(command))
    except (ValueError, argparse.ArgumentError):
        return parser.parse_args([])
    named.recipe += filter(is_recipe, others)
    return named


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
