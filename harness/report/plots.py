"""The pictures of the pages: geometry as plain numbers here, shapes in `templates/plots.html.j2`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.bench.statistics import summarize
from harness.contract.case import id_parts


@dataclass(frozen=True)
class Tick:
    """at: coordinate in the picture; label: the text beside it."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """From `low` at `start` to `high` at `end`; logarithmic or linear."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float, logarithmic: bool = False) -> Axis:
        """An axis on which all `values` lie, with a margin. Raises ValueError if there are none."""
        values = list(values)
        low, high = min(values), max(values)
        if logarithmic:
            return cls(low / 1.3, high * 1.3, start, end, True)
        margin = 0.04 * (high - low) or 0.04 * abs(high) or 1.0
        return cls(low - margin, high + margin, start, end)

    def at(self, value: float) -> float:
        low, high, value = (math.log(x) if self.logarithmic else x for x in (self.low, self.high, value))
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self) -> list[Tick]:
        """Round values along the axis: 1, 2, 5 of each decade, or only powers of ten where those would be too many."""
        values = self._decades() if self.logarithmic else self._steps()
        return [Tick(self.at(value), label(value)) for value in values]

    def _decades(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        factors = (1, 2, 5) if last - first <= 4 else (1,)
        values = [factor * 10.0**exponent for exponent in range(first, last + 1) for factor in factors]
        return [value for value in values if self.low <= value <= self.high]

    def _steps(self) -> list[float]:
        rough = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [index * step for index in range(first, last + 1)]


def label(value: float) -> str:
    """A value as an axis shows it: six digits at most, no trailing zeros."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.6g}"


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
        variant, shape, mode = _parts(record)
        shapes = grouped.setdefault(variant, {})
        shapes.setdefault(shape, {})[mode] = record["times"]["median_us"]
    return {variant: [(shape, _bars(times)) for shape, times in shapes.items()] for variant, shapes in grouped.items()}


def _parts(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """Variant, shape and mode of a record's case."""
    recipe, flags, shape, input_name, mode = id_parts(record["case_id"])
    return f"{recipe}/{flags}/{input_name}", shape, mode


def _bars(times: Mapping[str, float]) -> list[Bar]:
    longest = max(times.values())
    return [Bar(mode, us, round(100 * us / longest, 1)) for mode, us in sorted(times.items())]


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
        variant, shape, mode = _parts(record)
        rows, _, columns = shape.partition("x")
        if ratio:
            grouped.setdefault((variant, mode), {})[rows, columns] = ratio
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


WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 44


@dataclass(frozen=True)
class Point:
    """series: which colour, of six, and marker; hollow: eager; label: the text shown on hover."""

    x: float
    y: float
    series: int
    hollow: bool
    label: str


@dataclass(frozen=True)
class Line:
    """A straight line between two corners, and its label."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str

    @property
    def degrees(self) -> float:
        """The slope, as a text along the line is turned."""
        return round(math.degrees(math.atan2(self.y2 - self.y1, self.x2 - self.x1)), 1)


@dataclass(frozen=True)
class Plot:
    """The whole picture; `series` are the recipes in the order of their colours."""

    points: list[Point]
    series: list[str]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    roof: Line | None
    floor: Line | None


def roofline_plot(header: Mapping[str, Any], timed: Sequence[Mapping[str, Any]]) -> Plot | None:
    """The plot of records with times, or None if none of them has bytes and a time."""
    drawable = [record for record in timed if record["times"].get("bytes") and record["times"].get("gbps")]
    if not drawable:
        return None
    roof = median(entry["gbps"] for entry in header["roofline"]) if header.get("roofline") else None
    rates = [record["times"]["gbps"] for record in drawable]
    x = Axis.over([record["times"]["bytes"] / 1e6 for record in drawable], LEFT, WIDTH - RIGHT, logarithmic=True)
    y = Axis.over([*rates, roof or rates[0]], HEIGHT - BOTTOM, TOP, logarithmic=True)
    series = list(dict.fromkeys(record["recipe"] for record in drawable))
    points = []
    for record, rate in zip(drawable, rates, strict=True):
        place = x.at(record["times"]["bytes"] / 1e6), y.at(rate)
        eager = record["case_id"].endswith("/eager")
        points.append(Point(*place, series.index(record["recipe"]), eager, _hover_text(record)))
    line = roof and Line(LEFT, y.at(roof), WIDTH - RIGHT, y.at(roof), f"copy roofline {roof:,.0f} GB/s")
    return Plot(points, series, x.ticks(), y.ticks(), line or None, _floor(header, x, y))


def _hover_text(record: Mapping[str, Any]) -> str:
    times = record["times"]
    share = times.get("roofline_percent")
    text = f"{record['case_id']}, {times['median_us']:,.2f} us, {times['gbps']:,.0f} GB/s"
    return f"{text}, {share:.1f} % of the copy" if share else text


def _floor(header: Mapping[str, Any], x: Axis, y: Axis) -> Line | None:
    # An empty launch takes this long, so no point can lie left of and above this line.
    floor_us = (header.get("floors_us") or {}).get("graph")
    if not floor_us:
        return None
    # MB over us is 1000 GB/s.
    low, high = max(x.low, y.low * floor_us / 1e3), min(x.high, y.high * floor_us / 1e3)
    if low >= high:
        return None
    ends = [(x.at(mb), y.at(1e3 * mb / floor_us)) for mb in (low, high)]
    return Line(*ends[0], *ends[1], f"floor of the clock {floor_us:.2f} us")


BANDS_WIDTH, BAND, BELOW_BANDS, MARGIN = 340, 52, 32, 10
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
    axis = Axis.over([value for values in shown.values() for value in values], MARGIN, BANDS_WIDTH - MARGIN)
    bands = []
    for index, (name, values) in enumerate(shown.items()):
        top, found = index * BAND + 4.0, summaries[name]
        beyond = sum(value != drawn for value, drawn in zip(given[name], values, strict=True))
        dots, box = _dots(values, axis, top), map(axis.at, (found.q1, found.q3, found.median))
        bands.append(Band(name, top, dots, *box, len(values), found.median, beyond))
    return Distribution(bands, axis.ticks(), len(bands) * BAND + BELOW_BANDS)


def _dots(values: Sequence[float], axis: Axis, top: float) -> str:
    # The first sample is highest, so that a drift leans and two modes stand apart.
    step = (BAND - 32) / max(len(values) - 1, 1)
    return "".join(f"M{axis.at(value):g} {top + 20 + index * step:.1f}h0" for index, value in enumerate(values))
