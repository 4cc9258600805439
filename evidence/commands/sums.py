from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from evidence.matrix_sums import compare
from evidence.matrix_sums.compare import unit_of
from harness.commands import _shared
from harness.device.device import Device
from harness.device.select import select
from harness.errors import Exit
from harness.records.run_folder import shown
from harness.report.console import show


@click.command()
@click.option("--count", type=click.IntRange(1), default=1 << 20, show_default=True, help="sums of each kind")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="of the draw")
@click.option("--device", "name", type=click.Choice(["auto", "emulator", "cuda"]), default="cuda", show_default=True)
@_shared.out("write files, too")
def command(count: int, seed: int, name: str, out: Path | None) -> int:
    """Hold a published model of the order in which Hopper's matrix unit sums against the unit.

    Exits with 1 if a sum differs, and shows the simplest. The emulator has a model of its own, written apart from this
    one.
    """
    device = select(name)
    compared = list(compare.compare(unit_of(device), count, seed))
    frame = pd.DataFrame([(one.instruction, one.products, one.sums, one.differing) for one in compared])
    show(frame.set_axis(["instruction", "products", "sums", "differing"], axis=1), "sums of sixteen products")
    for one in compared:
        if one.first:
            click.echo(f"{one.instruction}, {one.products}: {one.first}")
    if out:
        for path in compare.write(_shared.made_by("out"), _named(device), compared, out):
            click.echo(shown(path))
    return Exit.BYTES_DIFFER if any(one.differing for one in compared) else Exit.CLEAN


def _named(device: Device) -> str:
    return ", ".join(f"{key} {value}" for key, value in device.identity().items())
