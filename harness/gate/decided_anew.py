"""Decide a line of a gate's file again from its samples, so that no edited verdict, median or interval is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from harness.errors import UsageError
from harness.gate.decision import CHANGED, EFFECT, Decision, Samples, decide
from harness.records.run_folder import Header
from harness.verdict import Change, Performance

# Tolerances for rounding: of a change, and of the last digits of a time in us or a clock in GHz.
_ROUNDED, _LAST_DIGITS = 2e-5, 1.1e-4


def require_its_verdict(line: Mapping[str, Any], header: Header) -> None:
    """Raise UsageError unless the line has the result of `decide` on its samples, and the verdict that follows."""
    problem = _unlike_its_samples(line, header)
    if problem:
        raise UsageError(f"{line['case_id']} {problem}")


def _unlike_its_samples(line: Mapping[str, Any], header: Header) -> str:
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
    problem = _other_times(line, found)
    if problem:
        return problem
    right = found.verdict
    recurs = line.get("recurs")
    if recurs is not None:
        if right not in CHANGED or "--once" in words:
            return f"is {right} by its samples and command, so no second process was asked about it"
        if not recurs:
            told = (f"{right} in one process, and {other}" for other in ("a second found ", "no second has timed it"))
            if not line["reason"].startswith(tuple(told)):
                return f"is {right} in its own process, and its reason does not say what another found"
            right = Performance.AMBIGUOUS
    return "" if line["verdict"] == right else f"is {line['verdict']}, and its changes are {right}"


def _other_times(line: Mapping[str, Any], found: Decision) -> str:
    """The first median or change that does not follow from the samples; an empty string if all do."""
    for name in ("head_us", "base_us"):
        said, own = line[name], getattr(found, name)
        if (said is None) is not (own is None) or said and abs(said - own) > _LAST_DIGITS:
            return f"has the {name} {said}, and that of its samples is {own}"
    # Earlier gates decided before they rounded.
    near = _ROUNDED + _LAST_DIGITS / min(line["head_us"], line["base_us"]) if line["time"] else 0.0
    for name in ("time", "cycles", "floor"):
        said, own = line[name] and Change(*line[name]), getattr(found, name)
        more = 1e3 * _LAST_DIGITS / max(line["mhz"]) if name == "cycles" and own else 0.0
        if said and any(abs(a - b) > (near + more) * b for a, b in zip(astuple(said), astuple(own), strict=True)):
            return f"has the {name} {said}, and that of its samples is {own}"
    return ""
