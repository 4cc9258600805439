"""`harness attack`"""

from __future__ import annotations

from pathlib import Path

import click

from harness.clock import clock_of
from harness.device.emulator import EmulatorDevice
from harness.device.select import NAMES, select
from harness.errors import Exit
from harness.tables import show
from harness.trial import attack


@click.command()
@click.option("--device", "name", type=click.Choice(NAMES), default="auto", help="cuda adds a GPU's column")
@click.option("--into", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="write attacks.md, too")
def command(name: str, into: Path | None) -> Exit:
    """Run subjects that cheat, and show how each is rejected.

    Exits with 1 if any of them is not caught by its name.
    """
    chosen = select(name)
    found = list(attack.attacks(EmulatorDevice()))
    if chosen.name == "cuda":
        found += attack.attacks(chosen, clock_of(chosen))
    show(attack.table(found), "attacks, and how each was met")
    if into:
        click.echo(attack.write(f"harness attack --device {name} --into {into}", found, into))
    return attack.outcome(found)
