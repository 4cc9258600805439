from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from harness.report.console import show
from harness.studies import coverage
from harness.suite.suite import load_suites, suite_of


@click.command()
@click.argument("recipes", nargs=-1, metavar="[RECIPE]...")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="write files, too")
def command(recipes: Sequence[str], out: Path | None) -> None:
    """Show which flags, shapes, inputs and groups meet in the cases of each set."""
    suites = [suite_of(name) for name in recipes] or load_suites()
    found = [each for suite in suites for each in coverage.coverage(suite)]
    show(coverage.table(found), "pairs that met, of those that could")
    if out:
        for path in coverage.write(shlex.join(["harness", "coverage", *recipes, "--out", str(out)]), found, out):
            click.echo(path)
