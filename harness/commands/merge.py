from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.records.journal import Journal
from harness.records.records import Record
from harness.records.run_folder import RunFiles, read_run
from harness.report import tables
from harness.verdict import Result


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=_shared.FOLDER)
@click.option("--into", required=True, metavar="DIR", type=_shared.FOLDER, help="new run")
def command(runs: Sequence[Path], into: Path) -> int:
    """Make one run of several shards.

    Exits with 1 if a byte differs or two runs disagree about a case, 4 if nothing was compared.
    """
    found = [read_run(run) for run in runs]
    for key, values in {
        "sources": {run.about["sources"] for run in found},
        "subjects": {run.about.get("device", {}).get("subject", "") for run in found},
    }.items():
        if len(values) > 1:
            raise UsageError(f"{', '.join(map(str, runs))} are of different {key}, so they are not shards of one run")
    unfinished = [sentence for run in found if (sentence := _unfinished(run))]
    if unfinished:
        raise UsageError("; ".join(unfinished))
    records, conflicts = join((run.path, record) for run in found for record in run.records)
    about = {"sources": found[0].about["sources"], "merged": [str(run) for run in runs]}
    journal = Journal(into, about, resume=False)
    for record in records:
        journal.append(record)
    journal.close()
    for line in (*conflicts, *tables.write_verify(into, records)):
        click.echo(line)
    click.echo(f"{len(records)} cases of {len(runs)} runs, {len(conflicts)} conflicts")
    verdicts = {Result.from_record(record).verdict for record in records}
    if conflicts or any(verdict.exit_code for verdict in verdicts):
        return Exit.BYTES_DIFFER
    return Exit.CLEAN if any(verdict.right for verdict in verdicts) else Exit.NO_DEVICE


def join(pairs: Iterable[tuple[Path, Record]]) -> tuple[list[Record], list[str]]:
    """Each case once, in the order found, and a sentence for each case that has two verdicts."""
    first: dict[str, tuple[Path, Record]] = {}
    conflicts = []
    for run, record in pairs:
        where, earlier = first.setdefault(record["case_id"], (run, record))
        if earlier["verdict"] != record["verdict"]:
            conflicts.append(f"{record['case_id']} is {earlier['verdict']} in {where} and {record['verdict']} in {run}")
    return [record for _, record in first.values()], conflicts


def _unfinished(run: RunFiles) -> str:
    """Why the run is no whole shard, or an empty string: a missing case would look like a right one."""
    selected = run.about.get("selected")
    if selected is None or selected == len(run.records):
        return ""
    return f"{run.path} holds {len(run.records)} of its {selected} cases; finish it with --resume before it is merged"
