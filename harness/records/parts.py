"""The runs of which a file of times is made. Commit and date tell them apart, and each time names its run by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Key = tuple[str | None, str | None]


def part_of(named: Mapping[str, Any]) -> Key:
    """Commit and date of a run's header, or of the run that times name; nothing for times that name none."""
    return named.get("commit"), named.get("date")


def parts_of(header: Mapping[str, Any]) -> dict[Key, dict[str, Any]]:
    """What the header of a file of times has of each of its runs; empty if it is of one run."""
    return {part_of(part): part for part in header.get("parts", ())}


def run_of(times: Mapping[str, Any], header: Mapping[str, Any]) -> dict[str, Any] | None:
    """The header of a file as it was of the run that took these times; None if it has no such run."""
    parts, part = parts_of(header), part_of(times)
    if part in parts:
        return {**header, **parts[part]}
    return None if parts or part not in ((None, None), part_of(header)) else dict(header)
