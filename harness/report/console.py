"""A pandas table on a terminal."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.table import Table

from harness import text


def show(frame: pd.DataFrame, title: str, console: Console | None = None) -> None:
    """Print a frame; columns of numbers stand right."""
    table = Table(title=title, title_justify="left")
    for name in frame.columns:
        table.add_column(str(name), justify="right" if pd.api.types.is_numeric_dtype(frame[name]) else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*(str(value) for value in row))
    (console or text.console()).print(table)
