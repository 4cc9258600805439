from __future__ import annotations

from collections.abc import Sequence

import click

from harness.check import capabilities, compared, recipe_files
from harness.commands import _shared
from harness.errors import Exit
from harness.files import RECIPE_DIRS
from harness.gate import baseline
from harness.records import seal
from harness.records.run_folder import shown
from harness.suite.suite import load_suites
from harness.suite.suite_file import suite_path


@click.command()
@_shared.recipes
@_shared.recipe_dir
@click.option("--write", is_flag=True, help="in a checkout: write suites/compared.csv and docs/capabilities.md first")
def command(recipes: Sequence[str], write: bool) -> int:
    """Check that the kernel, the oracle and the suite of each recipe agree; compiles nothing.

    Also that every device compares as many cases of each set of ours as suites/compared.csv says, and that
    docs/capabilities.md names the cases that there are.
    """
    if write:
        _shared.require_checkout("check --write")
        click.echo(shown(compared.write(compared.counts(load_suites()))))
        click.echo(shown(capabilities.write()))
    errors = [*seal.links(), *recipe_files.errors(recipes)]
    if not errors and not RECIPE_DIRS:
        now, committed = compared.counts(load_suites(map(suite_path, recipes) if recipes else None)), compared.read()
        errors = compared.errors(now, committed, recipes)
        errors += [] if recipes else capabilities.errors()
    if not recipes and not RECIPE_DIRS:
        for sentence in baseline.waiting():
            click.echo(sentence)
    for error in errors:
        click.echo(error, err=True)
    return Exit.USAGE if errors else Exit.CLEAN
