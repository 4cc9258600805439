"""Eager beside graph: two bars for each shape of a variant, as long as their share of the longer one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bar:
    """part: percent of the longer of the two."""

    mode: str
    us: float
    part: float


def bar_groups(timed: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, list[Bar]]]]:
    """Variant → its shapes → a bar a mode, in the order of the records."""
    grouped: dict[str, dict[str, dict[str, float]]] = {}
    for record in timed:
        head, _, mode = record["case_id"].rpartition("/")
        recipe, flags, shape, input_name = head.split("/", 3)
        shapes = grouped.setdefault(f"{recipe}/{flags}/{input_name}", {})
        shapes.setdefault(shape, {})[mode] = record["times"]["median_us"]
    return {variant: [(shape, _bars(times)) for shape, times in shapes.items()] for variant, shapes in grouped.items()}


def _bars(times: Mapping[str, float]) -> list[Bar]:
    longest = max(times.values())
    return [Bar(mode, us, round(100 * us / longest, 1)) for mode, us in sorted(times.items())]
