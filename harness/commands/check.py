from __future__ import annotations

from collections.abc import Sequence

import click

from harness.commands import _shared
from harness.errors import Exit
from harness.suite import recipe_files


@click.command()
@_shared.recipes
def command(recipes: Sequence[str]) -> int:
    """Check that the kernel, the oracle and the suite of each recipe agree; compiles nothing."""
    problems = recipe_files.problems(recipes)
    for problem in problems:
        click.echo(problem, err=True)
    return Exit.USAGE if problems else Exit.CLEAN
