"""The samples behind a verdict: a dot for each, in the order they were taken, over quartiles and median."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.bench.statistics import summarize
from harness.report.plots.axis import Axis, Tick

WIDTH, ROW, BOTTOM, MARGIN = 340, 52, 32, 10
FAR = 12.0  # interquartile ranges; a sample farther away is drawn at the edge, so that it does not squeeze the others


@dataclass(frozen=True)
class Band:
    """One series. top: of its band; dots: an SVG path; q1, q3, middle: where; beyond: samples drawn at the edge."""

    name: str
    top: float
    dots: str
    q1: float
    q3: float
    middle: float
    count: int
    median_us: float
    beyond: int


@dataclass(frozen=True)
class Distribution:
    """The picture of one case. height: of all of it."""

    bands: list[Band]
    ticks: list[Tick]
    height: float


def distribution(samples: dict[str, Sequence[float]]) -> Distribution | None:
    """The picture of one case from series → samples in us; None without any."""
    given = {name: list(values) for name, values in samples.items() if values}
    if not given:
        return None
    summaries = {name: summarize(values) for name, values in given.items()}
    reach = FAR * max(found.q3 - found.q1 or 0.01 * found.median for found in summaries.values())
    low = min(found.q1 for found in summaries.values()) - reach
    high = max(found.q3 for found in summaries.values()) + reach
    shown = {name: [min(max(value, low), high) for value in values] for name, values in given.items()}
    axis = Axis.over([value for values in shown.values() for value in values], MARGIN, WIDTH - MARGIN)
    bands = []
    for index, (name, values) in enumerate(shown.items()):
        top, found = index * ROW + 4.0, summaries[name]
        beyond = sum(value != drawn for value, drawn in zip(given[name], values, strict=True))
        dots, box = _dots(values, axis, top), map(axis.at, (found.q1, found.q3, found.median))
        bands.append(Band(name, top, dots, *box, len(values), found.median, beyond))
    return Distribution(bands, axis.ticks(), len(bands) * ROW + BOTTOM)


def _dots(values: Sequence[float], axis: Axis, top: float) -> str:
    # The first sample is highest, so that a drift leans and two modes stand apart.
    step = (ROW - 32) / max(len(values) - 1, 1)
    return "".join(f"M{axis.at(value):g} {top + 20 + index * step:.1f}h0" for index, value in enumerate(values))
