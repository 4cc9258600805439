"""Tables of quality, on a terminal and as Markdown and CSV in a folder, and three pictures, drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from harness.errors import UsageError
from harness.quality.compare import Map, Total
from harness.quality.measure import Quality
from harness.report import console as terminal
from harness.report.tables import markdown, plain, write_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    import pandas as pd

    return pd.DataFrame(measured, columns=[field.name for field in fields(Quality)])


def overview(measured: Sequence[Quality]) -> pd.DataFrame:
    """SNR in dB as text, a row a variant and a column a tensor."""
    table = frame(measured)
    wide = table.pivot(index="variant", columns="tensor", values="snr_db")
    wide = wide.reindex(index=table["variant"].unique(), columns=table["tensor"].unique())
    wide = wide.map(lambda value: _number(value, "snr_db")).reset_index()
    return wide.rename(columns={"variant": "SNR dB"})


def details(measured: Sequence[Quality]) -> pd.DataFrame:
    import pandas as pd

    table = frame(measured)
    text = {heading: [_number(value, name) for value in table[name]] for name, heading in _QUALITY.items()}
    return pd.DataFrame({"recipe": table["variant"], **text})


def scopes(totals: Sequence[Total]) -> pd.DataFrame:
    import pandas as pd

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


# A recipe is a colour, its variants are markers; the colours suit the colour-blind and greyscale.
_COLOURS = {"per_tensor": "#555555", "row_scaled": "#0072b2", "local_1x64": "#009e73", "four_over_six": "#d55e00"}
_OTHERS = ("#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = "osD^vPX*<>"
_LARGEST_MAP = 256  # cells per side of a heat map; a page shows fewer


def require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError(
            "pictures need matplotlib, which is not installed: `pip install matplotlib`, or ask for --no-pictures"
        ) from None


def draw(table: pd.DataFrame, tensor: str, maps: Sequence[Map], folder: Path) -> list[Path]:
    """Draw snr.svg, map4.svg if four_over_six was measured, and block_snr.png; their paths.

    table: as `tables.frame` makes it
    tensor, maps: the tensor and variants of block_snr.png, which is not drawn without maps
    """
    require_matplotlib()
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    # Text stays text in the SVG, and files do not depend on time or machine.
    look = {"svg.fonttype": "none", "svg.hashsalt": "quality", "font.size": 9, "axes.axisbelow": True}
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": "agg", **look}):
        figures = {"snr.svg": _snr(table)}
        if table["map4"].notna().any():
            figures["map4.svg"] = _map4(table.dropna(subset="map4"))
        if maps:
            figures["block_snr.png"] = _block_snr(tensor, maps)
        for name, figure in figures.items():
            metadata = {"Date": None} if name.endswith(".svg") else {"Software": None}
            figure.savefig(folder / name, metadata=metadata, dpi=110, bbox_inches="tight")
    return [folder / name for name in figures]


def _snr(table: pd.DataFrame) -> Figure:
    """A band for each tensor, a mark for each variant: left the whole tensor, right its median block.

    Left is the gain over the first variant, whose own SNR is printed beside the tensor: one large element may raise the
    SNR of every variant by 80 dB, while variants differ by 1.
    """
    whole, block = (table.pivot(index="tensor", columns="variant", values=name) for name in ("snr_db", "block_snr_db"))
    tensors, variants = table["tensor"].unique(), table["variant"].unique()
    first = whole[variants[0]].reindex(tensors)
    panels = {
        f"whole tensor: SNR over that of {variants[0]}, dB": whole.sub(first, axis=0),
        "median 16-element block: SNR, dB": block,
    }
    figure, both = _panels(2, width=10, height=1.6 + 0.55 * len(tensors))
    for axes, (title, values) in zip(both, panels.items(), strict=True):
        _bands(axes, [f"{tensor}\n{snr:.1f} dB" for tensor, snr in first.items()])
        _marks(axes, values.reindex(index=tensors, columns=variants), title)
    _legend(figure, both[0])
    return figure


def _map4(table: pd.DataFrame) -> Figure:
    """Share of blocks mapped to 4 for every tensor; the rest is mapped to 6."""
    tensors, variants = table["tensor"].unique(), table["variant"].unique()
    figure, (axes,) = _panels(1, width=7, height=1.4 + 0.4 * len(tensors))
    _bands(axes, tensors)
    shares = 100 * table.pivot(index="tensor", columns="variant", values="map4")
    shares = shares.reindex(index=tensors, columns=variants)
    _marks(axes, shares, "blocks mapped to 4, %; the others are mapped to 6")
    axes.set_xlim(0, 100)
    _legend(figure, axes)
    return figure


def _block_snr(tensor: str, maps: Sequence[Map]) -> Figure:
    """One tensor under each variant, on one scale of colours; blocks of zeros are left white."""
    figure, panels = _panels(len(maps), width=1 + 3.6 * len(maps), height=4.2)
    shown = [_reduced(one.blocks) for one in maps]
    finite = np.concatenate([cells[np.isfinite(cells)] for cells in shown])
    low, high = np.percentile(finite, [1, 99]) if len(finite) else (0, 1)
    for axes, one, cells in zip(panels, maps, shown, strict=True):
        image = axes.imshow(cells, aspect="auto", vmin=low, vmax=high, cmap="cividis", interpolation="nearest")
        axes.set_title(one.variant, fontsize=9)
        axes.set_xlabel(f"block, of {one.blocks.shape[1]} along a row")
    panels[0].set_ylabel(f"row of {tensor}")
    figure.colorbar(image, ax=panels, label="SNR of a block, dB", shrink=0.9, extend="both")
    return figure


def _panels(count: int, width: float, height: float) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, sharey=True, squeeze=False)[0]


def _bands(axes: Axes, tensors: Sequence[str]) -> None:
    for place in range(0, len(tensors), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#f3f3f3", linewidth=0)
    axes.set_yticks(range(len(tensors)), tensors)
    axes.set_ylim(len(tensors) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _marks(axes: Axes, values: pd.DataFrame, title: str) -> None:
    """A mark for each variant (column) in the band of each tensor (row), each below the variant before it."""
    for number, variant in enumerate(values):
        places = np.arange(len(values)) + ((number + 0.5) / len(values.columns) - 0.5) * 0.8
        shown = values[variant].where(np.isfinite(values[variant]))
        axes.plot(shown, places, **_mark(variant, list(values)), label=variant)
    axes.set_xlabel(title)
    axes.grid(axis="x", color="#dddddd")


def _mark(variant: str, variants: Sequence[str]) -> dict[str, object]:
    recipe = variant.partition("/")[0]
    recipes = list(dict.fromkeys(name.partition("/")[0] for name in variants))
    siblings = [name for name in variants if name.partition("/")[0] == recipe]
    others = [name for name in recipes if name not in _COLOURS]
    colour = _COLOURS.get(recipe) or _OTHERS[others.index(recipe) % len(_OTHERS)]
    marker = _MARKERS[siblings.index(variant) % len(_MARKERS)]
    return {"linestyle": "none", "marker": marker, "markersize": 4.5, "color": colour}


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2 if len(labels) > 4 else 1, frameon=False)


def _reduced(blocks: np.ndarray) -> np.ndarray:
    """At most `_LARGEST_MAP` cells a side, each the median of its blocks; NaN if all of them are NaN."""
    for axis in (0, 1):
        step = -(-blocks.shape[axis] // _LARGEST_MAP)
        cuts = range(0, blocks.shape[axis], step)
        parts = (np.take(blocks, range(cut, min(cut + step, blocks.shape[axis])), axis) for cut in cuts)
        medians = [np.ma.median(np.ma.masked_array(part, np.isnan(part)), axis) for part in parts]
        blocks = np.stack([np.ma.filled(median, np.nan) for median in medians], axis)
    return blocks
