"""Axes: from a value to a place in a picture, and the values worth a tick."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


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
