"""The table of times as text, for a terminal or a log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.records.records import Record
from harness.records.run_folder import Header
from harness.report.pages import number
from harness.report.tables import RATE, facts_of, pair_table

if TYPE_CHECKING:
    import pandas as pd

_LEGEND = "rate: % of the copy, or TFLOP/s of a product; x: times as fast as the baseline; all else is in bench.html"


def render(header: Header, timed: Sequence[Record]) -> str:
    """One line per problem below the measuring conditions, with its id last so that it is never broken.

    Rate and ratio are the graph's, if there is one.
    """
    pairs = pair_table(timed)
    columns = [[name, *(number(value, name) for value in pairs[name])] for name in ("eager us", "graph us")]
    percent, flops, ratio = (_of_graph(pairs, unit) for unit in ("%", RATE, "x"))
    rates = [
        f"{number(share, '%')} %" if rate != rate else f"{number(rate, '%')} TF"
        for share, rate in zip(percent, flops, strict=True)
    ]
    columns += [["rate", *rates], ["x", *(number(value, "x") for value in ratio)]]
    problems = pairs[["recipe", "flags", "shape", "input"]].agg("/".join, axis=1)
    wide = [max(map(len, column)) for column in columns]
    rows = zip(*columns, ["case", *problems], strict=True)
    lines = ["  ".join([*map(str.rjust, figures, wide), case]) for *figures, case in rows]
    facts = list(facts_of(header).items())[: 4 if header["machine"].get("subject") else 3]
    return "\n".join([*(f"{name}: {value}" for name, value in facts), *lines, _LEGEND])


def _of_graph(pairs: pd.DataFrame, unit: str) -> pd.Series:
    """A problem's value as a graph, or the eager one if there is none; NaN if neither was measured."""
    if f"graph {unit}" not in pairs:
        return pairs["MB"] * math.nan
    return pairs[f"graph {unit}"].fillna(pairs[f"eager {unit}"])
