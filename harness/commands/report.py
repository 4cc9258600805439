from __future__ import annotations

from pathlib import Path

import click

from harness.commands import _shared
from harness.gate.against_baseline import exit_code
from harness.gate.report import from_lines, write_pages
from harness.ground.command_lines import Asked
from harness.records.lines import is_gate
from harness.records.possible import require_possible_here
from harness.records.run_folder import RUNS, newest_run, read_bench_or_gate, read_run
from harness.report import tables


@click.command()
@click.argument("run", required=False, type=_shared.PATH)
@_shared.subject
@_shared.recipe_dir
@_shared.include
def command(run: Path | None, subject: str) -> None:
    """Write the tables and pages of a run (the newest, if none is named) again from its journal; it may be unfinished.

    RUN is a run's folder, or a file of times or of a gate such as results/tables/GPU/NAME.jsonl, whose pages are
    written beside it. The commands on them that repeat a case have a subject and folders of recipes only if they are
    named here, too.
    """
    run = newest_run(RUNS) if run is None else run
    if run.suffix == ".jsonl":
        header, lines = read_bench_or_gate(run)
        if is_gate(header):
            gated = from_lines(header, lines)
            paths = write_pages(run.parent, run.stem, gated, exit_code(gated.records, gated.judgements))
        else:
            require_possible_here(run, header, lines)
            paths = tables.write_times(run.parent, run.stem, header, lines)
    else:
        found = read_run(run)
        require_possible_here(run, found.header, found.records, found.about)
        paths = tables.write_verify(run, found.records, Asked.from_header(found.about, run, subject), found.about)
        if found.header:
            paths += tables.write_bench(run, found.header, found.records)
    for path in paths:
        click.echo(path)
