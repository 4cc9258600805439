"""Fields with an interval as contract: the values to compare with, and how far outside an entry is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.contract.interval import Interval, order
from harness.verify.diagnosis.difference import compare
from harness.verify.expected import Expected

Arrays = Mapping[str, np.ndarray]


def resolved(expected: Expected, runs: Sequence[Arrays]) -> tuple[int, dict[str, np.ndarray]]:
    """Choose the run to explain, and the bytes it should have had.

    This is the first wrong run; for an interval, the right value is the permitted one nearest to the actual value.
    If no run is outside, it is the first run that differs from run 0, compared with run 0's bytes.
    """
    for number, run in enumerate(runs):
        values = {
            name: value.nearest(run[name]) if isinstance(value, Interval) and comparable(value, run[name]) else value
            for name, value in expected.values.items()
        }
        values = {name: value.low if isinstance(value, Interval) else value for name, value in values.items()}
        if _differs(expected, values, run):
            return number, values
    bounded = {name: runs[0][name] for name, value in expected.values.items() if isinstance(value, Interval)}
    values = {**expected.values, **bounded}
    return next((i for i, run in enumerate(runs) if _differs(expected, values, run)), 0), values


def comparable(interval: Interval, actual: np.ndarray) -> bool:
    return actual.dtype == interval.dtype and actual.shape == interval.shape


def beyond(interval: Interval, actual: np.ndarray, first: tuple[int, ...]) -> tuple[str, str]:
    """Text on how far one entry is outside, and on the entry that is furthest outside if that is another one."""
    low, high, value = (array.astype(np.float64) for array in (interval.low, interval.high, actual))
    keys, nearest = (order(array).astype(np.int64) for array in (actual, interval.nearest(actual)))
    with np.errstate(invalid="ignore"):
        # A wrong NaN, or a number in place of a NaN, counts as the furthest.
        off = np.where(keys < nearest, low - value, np.where(keys > nearest, value - high, 0))
    off = np.where((keys != nearest) & np.isnan(off), np.inf, off)

    def describe(at: tuple[int, ...]) -> str:
        if np.isnan(value[at]):
            return "a NaN where there may be none" if not np.isnan(low[at]) else "a NaN with other bits"
        if np.isnan(low[at]):
            return "no NaN where there must be one"
        return f"{off[at]:.4g} {'below the lowest' if keys[at] < nearest[at] else 'above the highest'}"

    steps, wide = int(abs(keys[first] - nearest[first])), high[first] - low[first]
    text = f"{describe(first)}, {steps} {'step' if steps == 1 else 'steps'} of {actual.dtype.name}"
    if 0 < wide < np.inf and off[first] < np.inf:
        text += f", {off[first] / wide:.3g} times the interval"
    furthest = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    return text, "" if furthest == first else f"{list(furthest)}, {describe(furthest)}"


def _differs(expected: Expected, values: Arrays, run: Arrays) -> bool:
    return any(compare(name, field, values[name], run[name]) for name, field in expected.fields.items())
