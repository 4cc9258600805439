from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.files import write_text
from harness.ground.command_lines import Asked
from harness.records import shards
from harness.records.journal import Journal, refuse_begun
from harness.records.run_folder import BENCH_HEADER, read_run
from harness.report import tables
from harness.runner.outcome import last_line, meaning, outcome
from harness.verdict import Result
from harness.verify import not_run


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=_shared.FOLDER)
@click.option("--into", required=True, metavar="DIR", type=_shared.NEW_FOLDER, help="new run")
@_shared.subject
@_shared.recipe_dir
@_shared.include
def command(runs: Sequence[Path], into: Path, subject: str) -> int:
    """Make one run of all shards of a run, with their times if they have any.

    Exits as the run would have: with 1 if a kernel is wrong, 64 if a suite, recipe, oracle or card is, 4 if the device
    lacks something or too little was compared. 64, too, if a shard is missing, unfinished, there twice, or of another
    selection, tree or kind of machine.
    """
    refuse_begun(into, "merging makes a new one, so name another --into")
    whole = shards.join([read_run(run) for run in runs], into)
    shards.require_of_this_tree(whole)
    journal = Journal(into, whole.about, resume=False)
    for record in whole.records:
        journal.append(record)
    journal.close()
    written = tables.write_verify(into, whole.records, Asked.from_header(whole.about, into, subject), whole.about)
    if whole.header:
        write_text(into / BENCH_HEADER, json.dumps(whole.header, indent=2) + "\n")
        written += tables.write_bench(into, whole.header, whole.records)
    for path in written:
        click.echo(path)
    for line in not_run.lines(whole.records):
        click.echo(line)
    click.echo(f"{len(whole.records)} cases of {len(runs)} runs")
    results = [Result.from_record(record) for record in whole.records]
    selected = [result.case_id for result in results]
    code, sentence = outcome(selected, len(selected), results)
    if sentence:
        click.echo(f"error: {sentence}", err=True)
    click.echo(
        last_line(selected, results) + (f"; exit {int(code)} ({meaning(code, selected, results)})" if code else "")
    )
    return code
