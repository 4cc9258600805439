"""`harness report`"""

from __future__ import annotations

from pathlib import Path

import click

from harness import report
from harness.runner.run_files import read_run


@click.command()
@click.argument("run_dir", type=click.Path(file_okay=False, path_type=Path))
def command(run_dir: Path) -> None:
    """Write the tables and pages of a run again from its journal; the run may be unfinished."""
    run = read_run(run_dir)
    paths = report.write_verify(run_dir, run.records)
    if run.header:
        paths += report.write_bench(run_dir, run.header, run.records)
    for path in paths:
        click.echo(path)
