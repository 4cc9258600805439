from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.progress import track

from evidence.products import accuracy
from harness.commands import _shared
from harness.errors import Exit
from harness.quality import measure
from harness.records.run_folder import new_folder
from harness.report.console import show


@click.command()
@_shared.out()
def command(out: Path | None) -> int:
    """Hold the accuracy that the recipes' sources claim against our oracles; 1 if a claim does not hold."""
    measure.require()
    bar = track(accuracy.load(), description="claims", transient=True, disable=not sys.stdout.isatty())
    found = [accuracy.hold(claim) for claim in bar]
    show(accuracy.table(found)[["of", "against", "error", "input", "limit", "found", "holds"]], "accuracy")
    for written in accuracy.write(_shared.made_by(), found, out or new_folder()):
        click.echo(written)
    return Exit.CLEAN if all(one.holds for one in found) else Exit.BYTES_DIFFER
