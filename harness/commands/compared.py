from __future__ import annotations

import click

from harness.check import compared
from harness.commands import _shared
from harness.records.run_folder import shown
from harness.suite.suite import load_suites


@click.command()
def command() -> None:
    """Write how many cases of each recipe and set each device compares, and why not all; runs nothing.

    `harness check` holds the tree to the file, suites/compared.csv, and a run of a whole set holds itself to it.
    """
    _shared.require_checkout("compared")
    click.echo(shown(compared.write(compared.counts(load_suites()))))
