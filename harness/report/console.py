"""A pandas table on a terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from harness import text

if TYPE_CHECKING:
    import pandas as pd

_WIDTH_OF_A_LOG = 200
_NARROWEST = 30  # columns; the least width of a column of sentences on a narrow terminal
_UNBOUNDED = 1 << 16


def log_console() -> Console:
    """A console as wide as the terminal; without a terminal it is wide, because a truncated case id is useless."""
    return text.console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_LOG)


def show(frame: pd.DataFrame, title: str, console: Console | None = None) -> None:
    """Print a frame, with numbers aligned right. Sentences may wrap, but a single word such as an id never does."""
    from pandas.api.types import is_numeric_dtype

    console = console or log_console()
    table = Table(title=title, title_justify="left")
    for name in frame.columns:
        right = is_numeric_dtype(frame[name])
        table.add_column(str(name), justify="right" if right else "left", no_wrap=True)
    columns = [[text.one_line(str(value)) for value in frame[name]] for name in frame.columns]
    for row in zip(*_wrapped(columns, [str(name) for name in frame.columns], console.width), strict=True):
        table.add_row(*row)
    width = console.width
    console.width = _UNBOUNDED  # otherwise rich cuts off text that it may not wrap
    try:
        console.print(table)
    finally:
        console.width = width


def _wrapped(columns: Sequence[Sequence[str]], heads: Sequence[str], width: int) -> list[list[str]]:
    """The columns, with sentences as narrow as the width requires and all others unchanged."""
    natural = [max(map(len, (head, *cells))) for head, cells in zip(heads, columns, strict=True)]
    sentences = [number for number, cells in enumerate(columns) if any(" " in cell for cell in cells)]
    room = width - sum(natural) - 3 * len(columns) - 1 + sum(natural[number] for number in sentences)
    found = [list(cells) for cells in columns]
    ordered = sorted(sentences, key=lambda number: natural[number])
    for place, number in enumerate(ordered):
        fits = min(natural[number], max(_NARROWEST, room // (len(ordered) - place)))
        room -= fits
        wrap = partial(textwrap.wrap, width=fits, break_long_words=False, break_on_hyphens=False)
        found[number] = ["\n".join(wrap(cell)) for cell in found[number]]
    return found
