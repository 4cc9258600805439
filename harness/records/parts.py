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
