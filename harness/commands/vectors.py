from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from harness import text
from harness.commands import _shared
from harness.errors import UsageError
from harness.suite.suite import load_suites, suite_of
from harness.vectors.selection import choose
from harness.vectors.write import write


@click.command()
@_shared.recipes
@_shared.recipe_dir
@click.option("--out", type=_shared.NEW_FOLDER, required=True, metavar="DIR", help="a new or empty folder")
@click.option(
    "--provisional", is_flag=True, help="a set of the flags that the contract calls provisional, and no other"
)
def command(recipes: Sequence[str], out: Path, provisional: bool) -> None:
    """Write inputs and the bytes that both oracles expect, for test suites without this package, and two checkers.

    Of all recipes of ours, or with --recipe-dir of all of yours.

    A vector is a .safetensors, and index.json says what each holds. check.py, which needs Python alone, and check.cpp,
    C++17 in one file, compare what an implementation wrote with it.
    """
    suites = [suite_of(name) for name in recipes] or load_suites()
    chosen = {suite.recipe: choose(suite, provisional) for suite in suites}
    for name in recipes:
        if not chosen[name] and provisional:
            raise UsageError(f"{name} has no flag that is provisional")
        if not chosen[name]:
            raise UsageError(f"{name} is a pipeline, and has the vectors of the recipes that are its stages")
    if not any(chosen.values()):
        what = "flag that is provisional" if provisional else "small case that writes something"
        raise UsageError(f"there is no {what} in {', '.join(chosen)}")
    sizes = write([case for cases in chosen.values() for case in cases], out)
    table = Table("recipe", "vectors", "bytes")
    for recipe, cases in chosen.items():
        if cases:
            written = sum(size for name, size in sizes.items() if name.rpartition("-")[0] == recipe)
            table.add_row(recipe, str(len(cases)), f"{written:,}")
    text.console().print(table)
    click.echo(f"{out / 'index.json'}: {sum(map(len, chosen.values()))} vectors, {sum(sizes.values()):,} bytes in all")
