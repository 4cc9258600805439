"""Ratios over shapes: a table M x K for each variant of a recipe, and how strongly each cell is coloured."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STRONGEST = 2.5  # ratios from this one up, and from its inverse down, have the full colour


@dataclass(frozen=True)
class Cell:
    """ratio: times as fast as the baseline; strength: 0 to 100, of the colour for faster, or for slower."""

    ratio: float
    faster: bool
    strength: int


@dataclass(frozen=True)
class HeatMap:
    """One variant in one mode; a cell is None where nothing was timed.

    Shapes that are scattered, as those of products are, have a row each and one column.
    """

    variant: str
    mode: str
    columns: list[str]
    rows: list[tuple[str, list[Cell | None]]]


def heat_maps(timed: Sequence[Mapping[str, Any]], strongest: float = STRONGEST) -> list[HeatMap]:
    """A map for each recipe, flags, input and mode with ratios on two shapes or more."""
    grouped: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for record in timed:
        ratio = record["times"].get("baseline_ratio")
        head, _, mode = record["case_id"].rpartition("/")
        recipe, flags, shape, input_name = head.split("/", 3)
        rows, _, columns = shape.partition("x")
        if ratio:
            grouped.setdefault((f"{recipe}/{flags}/{input_name}", mode), {})[rows, columns] = ratio
    return [_map(variant, mode, ratios, strongest) for (variant, mode), ratios in grouped.items() if len(ratios) > 1]


def cell(ratio: float, strongest: float = STRONGEST) -> Cell:
    """A ratio with its colour, by its logarithm: twice as fast is as strong as half as fast."""
    strength = min(abs(math.log(ratio)) / math.log(strongest), 1.0)
    return Cell(ratio, ratio >= 1, round(100 * strength))


def _map(variant: str, mode: str, ratios: Mapping[tuple[str, str], float], strongest: float) -> HeatMap:
    rows, columns = (sorted({key[side] for key in ratios}, key=_extent) for side in (0, 1))
    cells = {place: cell(ratio, strongest) for place, ratio in ratios.items()}
    if 2 * len(cells) < len(rows) * len(columns):
        places = sorted(cells, key=lambda place: [_extent(extent) for extent in place])
        return HeatMap(variant, mode, ["x"], [("x".join(place), [cells[place]]) for place in places])
    return HeatMap(variant, mode, columns, [(row, [cells.get((row, column)) for column in columns]) for row in rows])


def _extent(spelled: str) -> tuple[float, str]:
    """Sort key of an extent, spelled 4096, 8*512, 128+0+256 or KxN."""
    terms = [math.prod(int(factor) for factor in re.findall(r"\d+", term)) for term in spelled.split("+")]
    return sum(terms), spelled
