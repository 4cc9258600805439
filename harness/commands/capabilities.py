from __future__ import annotations

import click

from harness.check import capabilities
from harness.commands import _shared
from harness.records.run_folder import shown


@click.command()
def command() -> None:
    """Write which case shows each capability of the recipes' sources, docs/capabilities.md; runs nothing."""
    _shared.require_checkout("capabilities")
    click.echo(shown(capabilities.write()))
