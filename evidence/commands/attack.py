from __future__ import annotations

from pathlib import Path

import click

from evidence.cheating import attacks
from harness.bench.gpu_timer import clock_of
from harness.commands import _shared
from harness.device.emulator import EmulatorDevice
from harness.device.select import select
from harness.errors import Exit
from harness.report.console import show


@click.command()
@_shared.device("cuda adds a GPU's column")
@_shared.out("write attacks.md, too", "--into")
def command(device_name: str, into: Path | None) -> Exit:
    """Run subjects that cheat, and show how each is rejected.

    Exits with 1 if one is not rejected, or not by its name.
    """
    chosen = select(device_name)
    found = list(attacks.attacks(EmulatorDevice()))
    if chosen.name == "cuda":
        found += attacks.attacks(chosen, clock_of(chosen))
    show(attacks.table(found), "attacks, and what each was called")
    if into:
        click.echo(attacks.write(_shared.made_by(), found, into))
    return attacks.outcome(found)
