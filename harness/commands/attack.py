"""`harness attack`"""

from __future__ import annotations

from pathlib import Path

import click

from harness.bench.gpu_timer import clock_of
from harness.device.emulator import EmulatorDevice
from harness.device.select import NAMES, select
from harness.errors import Exit
from harness.report.console import show
from harness.subjects.audit import self_test


@click.command()
@click.option("--device", "name", type=click.Choice(NAMES), default="auto", help="cuda adds a GPU's column")
@click.option("--into", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="write attacks.md, too")
def command(name: str, into: Path | None) -> Exit:
    """Run subjects that cheat, and show how each is rejected.

    Exits with 1 if any of them is not caught by its name.
    """
    chosen = select(name)
    found = list(self_test.attacks(EmulatorDevice()))
    if chosen.name == "cuda":
        found += self_test.attacks(chosen, clock_of(chosen))
    show(self_test.table(found), "attacks, and how each was met")
    if into:
        click.echo(self_test.write(f"harness attack --device {name} --into {into}", found, into))
    return self_test.outcome(found)
