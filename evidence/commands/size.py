from __future__ import annotations

import statistics
from pathlib import Path

import click
from rich.table import Table

from harness import text
from harness.commands import _shared
from harness.files import ROOT

# Most lines of a file before its commit should say why; the first pattern that fits a file counts.
BUDGETS = {
    "harness/kernels/*.cu": 500,
    "harness/kernels/*/*.cuh": 450,
    "harness/oracles/*.py": 250,
    "harness/**/*.py": 300,
    "ptx_emulator/**/*.py": 300,
    "evidence/**/*.py": 300,
    "tests/**/*.py": 300,
    "suites/*.yaml": 120,
}


@click.command()
def command() -> None:
    """Show how many lines the files have, and which are over their budget."""
    _shared.require_checkout("size")
    table = Table("files", "count", "lines", "median", "longest", "budget")
    for column in table.columns[1:]:
        column.justify = "right"
    seen: set[Path] = set()
    over = []
    for pattern, budget in BUDGETS.items():
        lines = {path: path.read_text().count("\n") for path in sorted(ROOT.glob(pattern)) if path not in seen}
        seen |= set(lines)
        over += [(path, count, budget) for path, count in lines.items() if count > budget]
        if lines:
            counts = lines.values()
            numbers = len(lines), sum(counts), round(statistics.median(counts)), max(counts), budget
            table.add_row(pattern, *(f"{number:,}" for number in numbers))
    console = text.console()
    console.print(table)
    for path, count, budget in over:
        console.print(f"over budget: {path.relative_to(ROOT)} has {count} lines, {count - budget} more than {budget}")
