"""`harness merge`"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from harness import report
from harness.errors import Exit, UsageError
from harness.runner.journal import FILE, Journal, Record
from harness.runner.run_files import read_run
from harness.verdict import Result


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(file_okay=False, path_type=Path))
@click.option("--into", required=True, metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="new run")
def command(runs: Sequence[Path], into: Path) -> int:
    """Make one run of several shards.

    Exits with 1 if a byte differs or two runs disagree about a case, 4 if nothing was compared.
    """
    headers = [_header(run) for run in runs]
    for key in ("sources", "subjects"):
        if len({header[key] for header in headers}) > 1:
            raise UsageError(f"{', '.join(map(str, runs))} are of different {key}, so they are not shards of one run")
    records, conflicts = join((run, record) for run in runs for record in read_run(run).records)
    journal = Journal(into, {"sources": headers[0]["sources"], "merged": [str(run) for run in runs]}, resume=False)
    for record in records:
        journal.append(record)
    journal.close()
    for line in (*conflicts, *report.write_verify(into, records)):
        click.echo(line)
    click.echo(f"{len(records)} cases of {len(runs)} runs, {len(conflicts)} conflicts")
    verdicts = {Result.from_record(record).verdict for record in records}
    if conflicts or any(verdict.exit_code for verdict in verdicts):
        return Exit.BYTES_DIFFER
    return Exit.CLEAN if any(verdict.right for verdict in verdicts) else Exit.NO_DEVICE


def join(pairs: Iterable[tuple[Path, Record]]) -> tuple[list[Record], list[str]]:
    """Each case once, in the order met, and a sentence for each case that has two verdicts."""
    first: dict[str, tuple[Path, Record]] = {}
    conflicts = []
    for run, record in pairs:
        where, held = first.setdefault(record["case_id"], (run, record))
        if held["verdict"] != record["verdict"]:
            conflicts.append(f"{record['case_id']} is {held['verdict']} in {where} and {record['verdict']} in {run}")
    return [record for _, record in first.values()], conflicts


def _header(run: Path) -> Record:
    try:
        with (run / FILE).open(encoding="utf-8") as file:
            header = json.loads(file.readline())
        return {"sources": header["sources"], "subjects": header.get("device", {}).get("subject", "")}
    except (OSError, ValueError, KeyError, AttributeError):
        raise UsageError(f"{run} holds no run: its {FILE} is missing or has no header") from None
