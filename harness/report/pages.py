"""HTML pages from Jinja templates. A page is one file that loads nothing from the network."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment

LAUNCHES = "launches"  # the only column that holds counts


def page(template: str, **content: Any) -> str:
    return _environment().get_template(template).render(content)


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows for a template, with None for missing values."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def number(value: float | None, column: str) -> str:
    """A number as tables show it: shares with one decimal, others with two, or one from 100 on; a dash if missing."""
    if value is None or value != value:
        return "-"
    if column == LAUNCHES:
        return f"{value:.0f}"
    if column.endswith("%"):
        return f"{value:.1f}"
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.1f}"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = number
    return environment
