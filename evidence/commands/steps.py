from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import Exit
from harness.files import write_text
from harness.records.run_folder import shown


@click.command()
@click.argument("runs", nargs=-1, required=True, type=_shared.PATH, metavar="RUN...")
@click.option(
    "--out",
    default=Path(),
    show_default=True,
    type=_shared.NEW_FOLDER,
    metavar="DIR",
    help="the folder of steps.md and steps.csv",
)
def command(runs: Sequence[Path], out: Path) -> int:
    """Show what a step of each recipe costs at the source's 18 shapes, from benches that were run before.

    A RUN is the folder of a bench, or its bench.jsonl. The cases are the sets `steps` of the suites gemm, forward and
    backward, and the bench sets of per_token and swizzle; of what no RUN has, the tables say so. Nothing is timed.
    """
    import pandas as pd

    from evidence.steps import tables
    from evidence.steps.runs import read
    from harness.report.tables import csv

    command = f"python -m evidence steps {' '.join(str(shown(run.absolute())) for run in runs)}"
    found = read(runs)
    write_text(out / "steps.md", tables.page(found, command))
    write_text(out / "steps.csv", csv(pd.DataFrame(tables.rows(found))))
    for name in ("steps.md", "steps.csv"):
        click.echo(shown((out / name).absolute()))
    return Exit.CLEAN
