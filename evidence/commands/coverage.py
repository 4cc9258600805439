from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from evidence import coverage
from harness.commands import _shared
from harness.report.console import show
from harness.suite.suite import load_suites, suite_of


@click.command()
@_shared.recipes
@_shared.out("write files, too")
def command(recipes: Sequence[str], out: Path | None) -> None:
    """Show which flags, shapes, inputs and groups meet in the cases of each set."""
    suites = [suite_of(name) for name in recipes] or load_suites()
    found = [each for suite in suites for each in coverage.coverage(suite)]
    show(coverage.table(found), "pairs that met, of those that could")
    if out:
        for path in coverage.write(_shared.made_by(), found, out):
            click.echo(path)
