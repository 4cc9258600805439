from __future__ import annotations

from collections.abc import Sequence

import click

from harness.check import recipe_files
from harness.commands import _shared
from harness.errors import Exit


@click.command()
@_shared.recipes
def command(recipes: Sequence[str]) -> int:
    """Check that the kernel, the oracle and the suite of each recipe agree; compiles nothing."""
    errors = recipe_files.errors(recipes)
    for error in errors:
        click.echo(error, err=True)
    return Exit.USAGE if errors else Exit.CLEAN
