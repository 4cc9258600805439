from __future__ import annotations

import io
import re
from pathlib import Path

import click
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from harness.commands import _shared


@click.command()
@click.argument("svg", type=_shared.FILE)
@click.option("--title", default="make verify", show_default=True, help="title of the window")
@click.option("--lines", default=40, show_default=True, help="how many lines from the end")
def command(svg: Path, title: str, lines: int) -> None:
    """Draw what a command printed, read from standard input, as an SVG for the README."""
    text = "\n".join(click.get_text_stream("stdin").read().rstrip().splitlines()[-lines:])
    printed = Text.from_ansi(text)
    width = max((len(line) for line in printed.plain.splitlines()), default=1)
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(printed)
    drawing = console.export_svg(title=title, theme=DEFAULT_TERMINAL_THEME)
    # rich names fonts on a server; the reader's own monospace font will do.
    svg.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL))
