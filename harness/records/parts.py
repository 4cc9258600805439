"""The runs that a file of times combines. Commit and date tell them apart, and each time names its run by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Key = tuple[str | None, str | None]


def part_of(named: Mapping[str, Any]) -> Key:
    """Commit and date in a run's header, or of the run that times name; None for both if they name none."""
    return named.get("commit"), named.get("date")


def parts_of(header: Mapping[str, Any]) -> dict[Key, dict[str, Any]]:
    """The entries for each run in the header of a file of times; empty if the file is of one run."""
    return {part_of(part): part for part in header.get("parts", ())}


def run_of(times: Mapping[str, Any], header: Mapping[str, Any]) -> dict[str, Any] | None:
    """The header of the run that took these times, taken from the file's header; None if it has no such run."""
    parts, part = parts_of(header), part_of(times)
    if part in parts:
        return {**header, **parts[part]}
    return None if parts or part not in ((None, None), part_of(header)) else dict(header)
