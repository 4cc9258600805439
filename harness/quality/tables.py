"""Tables of quality: on a terminal, and as Markdown and CSV in a folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from harness.quality.measure import Quality
from harness.quality.scope import Total
from harness.report import console as terminal
from harness.report.tables import markdown, plain, write_table

NOTES = """\
SNR: signal over error of the whole tensor. Block SNR: the same of the median 16-element block that is not zero; a
block of which nothing is left has 0 dB. Errors are in the unit of the tensor. Saturated: elements that the largest
code does not reach. Zeroed: non-zero elements that decode to zero. Map-4: blocks that four_over_six maps to 4. With
rht, shares count rotated elements, and errors are taken after rotating back.
"""

_QUALITY = {
    "snr_db": "SNR dB",
    "block_snr_db": "block SNR dB",
    "max_error": "max error",
    "mean_error": "mean error",
    "saturated": "saturated %",
    "zeroed": "zeroed %",
    "map4": "map-4 %",
}
_TOTAL = {
    "scope": "scope",
    "tensors": "tensors",
    "inside": "in four_over_six",
    "elements": "their elements %",
    "snr_db": "mean SNR dB",
    "lowest_db": "lowest SNR dB",
    "lowest": "of",
    "saturated": "saturated %",
    "zeroed": "zeroed %",
}


@dataclass(frozen=True)
class Results:
    """The results of one run; `notes` and `left_out` are sentences about tensors and variants."""

    command: str
    measured: Sequence[Quality]
    totals: Sequence[Total] = ()
    notes: Sequence[str] = ()
    left_out: Sequence[str] = ()

    @property
    def tensors(self) -> list[str]:
        return list(dict.fromkeys(quality.tensor for quality in self.measured))


def frame(measured: Sequence[Quality]) -> pd.DataFrame:
    return pd.DataFrame(measured, columns=[field.name for field in fields(Quality)])


def overview(measured: Sequence[Quality]) -> pd.DataFrame:
    """SNR in dB as text, a row a variant and a column a tensor."""
    table = frame(measured)
    wide = table.pivot(index="variant", columns="tensor", values="snr_db")
    wide = wide.reindex(index=table["variant"].unique(), columns=table["tensor"].unique())
    wide = wide.map(lambda value: _number(value, "snr_db")).reset_index()
    return wide.rename(columns={"variant": "SNR dB"})


def details(measured: Sequence[Quality]) -> pd.DataFrame:
    table = frame(measured)
    text = {heading: [_number(value, name) for value in table[name]] for name, heading in _QUALITY.items()}
    return pd.DataFrame({"recipe": table["variant"], **text})


def scopes(totals: Sequence[Total]) -> pd.DataFrame:
    return pd.DataFrame(
        {heading: [_number(getattr(total, name), name) for total in totals] for name, heading in _TOTAL.items()}
    )


def show(results: Results, console: Console) -> None:
    table = Table("tensor", "recipe", *_QUALITY.values())
    for column in table.columns[2:]:
        column.justify = "right"
    for tensor in results.tensors:
        here = [quality for quality in results.measured if quality.tensor == tensor]
        for position, row in enumerate(details(here).itertuples(index=False)):
            table.add_row({0: tensor, 1: f"{here[0].rows}x{here[0].cols}"}.get(position, ""), *row)
        table.add_section()
    console.print(table)
    if results.totals:
        terminal.show(scopes(results.totals), "", console)
    for sentence in (*results.notes, *results.left_out):
        console.print(sentence)


def write(results: Results, folder: Path, pictures: Sequence[Path]) -> list[Path]:
    """Write quality.md, which shows the pictures that lie beside it, and quality.csv; their paths."""
    text = ["# Quality", f"`{results.command}`", NOTES.strip(), markdown(overview(results.measured))]
    text += [f"![{path.stem}]({path.name})" for path in pictures]
    if results.totals:
        text += ["## Scopes of four_over_six", markdown(scopes(results.totals))]
    for tensor in results.tensors:
        here = [quality for quality in results.measured if quality.tensor == tensor]
        text += [f"## {plain(tensor)}, {here[0].rows}x{here[0].cols}", markdown(details(here))]
    if results.notes or results.left_out:
        text += ["## Notes", "\n".join(f"- {plain(sentence)}" for sentence in (*results.notes, *results.left_out))]
    return write_table(folder, "quality", frame(results.measured), text)


def _number(value: object, name: str) -> str:
    """A value in its column's format; a dash if it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if name in ("saturated", "zeroed", "map4", "elements"):
        return f"{100 * value:.2f}"
    if name.endswith("db"):
        return f"{value:.2f}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
