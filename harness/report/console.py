"""A pandas table on a terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from functools import partial

import pandas as pd
from rich.console import Console
from rich.table import Table

from harness import text

_WIDTH_OF_A_LOG = 200
_NARROWEST = 30  # of a column of sentences, on however narrow a terminal
_UNBOUNDED = 1 << 16


def log_console() -> Console:
    """As wide as the terminal; wide where there is none, because a case id that is cut off is no case id."""
    return text.console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_LOG)


def show(frame: pd.DataFrame, title: str, console: Console | None = None) -> None:
    """Print a frame; columns of numbers stand right. Sentences take several lines, and a word, as an id is, never."""
    console = console or log_console()
    table = Table(title=title, title_justify="left")
    for name in frame.columns:
        right = pd.api.types.is_numeric_dtype(frame[name])
        table.add_column(str(name), justify="right" if right else "left", no_wrap=True)
    columns = [[text.one_line(str(value)) for value in frame[name]] for name in frame.columns]
    for row in zip(*_wrapped(columns, [str(name) for name in frame.columns], console.width), strict=True):
        table.add_row(*row)
    width = console.width
    console.width = _UNBOUNDED  # else rich cuts what it may not wrap
    try:
        console.print(table)
    finally:
        console.width = width


def _wrapped(columns: Sequence[Sequence[str]], heads: Sequence[str], width: int) -> list[list[str]]:
    """The columns, those of sentences as narrow as the width asks, the others as they are."""
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
