"""Bytes against GB/s of every timed case, below the copy roofline and beside the floor of the clock."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.report.plots.axis import Axis, Tick

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
