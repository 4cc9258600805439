from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from evidence.targets import TargetResult, reached
from harness.bench.standings import furthest
from harness.bench.targets import Targets, load
from harness.commands import _shared, _suites
from harness.errors import Exit, UsageError, worst
from harness.files import SUITES, WORKDIR, in_workdir, write_text
from harness.records.run_folder import Header, new_folder, read_bench, read_run, shown
from harness.report.console import show
from harness.report.tables import facts_of, markdown
from harness.runner.below_supervisor import settings
from harness.runner.supervisor import supervise
from harness.verdict import Verdict, failures_of

FACTS = ("GPU", "copy roofline (read + written)", "method", "compile flags", "date", "commit")


@click.command()
@click.option("--run-dir", type=_shared.PATH, metavar="DIR", help="a new folder for the times")
@click.option("--times", type=_shared.PATH, metavar="FILE", help="time nothing; read a bench.jsonl")
@click.option("--energy", is_flag=True, help="measure the energy of each kernel, too")
@click.option("--into", type=_shared.PATH, metavar="FILE", help="write the table to FILE, as Markdown")
def command(run_dir: Path | None, times: Path | None, energy: bool, into: Path | None) -> int:
    """Time every kernel that has a figure to reach, and compare it with that figure.

    The figures are in harness/bench/targets.yaml. Bytes are verified first, as in every bench. Below are the ten cases
    of the run that are furthest from their targets, those by rule included. Exits with 1 if bytes differ, 2 if a figure
    of a line is missed, 3 if none is but a kernel has no time that counts.
    """
    targets = load()
    if times and (run_dir or energy):
        raise UsageError("--times reads a file and times nothing; leave out --run-dir and --energy")
    if times:
        header, records = read_bench(times)
    else:
        folder = run_dir or new_folder("roofline-")
        status = _time(targets, folder, energy)
        if status not in (Exit.CLEAN, Exit.BYTES_DIFFER):
            return status
        run = read_run(folder)
        header, records = run.header, run.records
    found = list(reached(targets, header, records))
    show(_frame(found), f"what the kernels reach on one {header['machine'].get('gpu')}")
    last = pd.DataFrame(one.row() for one in furthest(header, records, targets=targets))
    if len(last):
        show(last, "furthest from their targets, by what part of it they reach")
    if into:
        write_text(into, _markdown(header, found, last))
        click.echo(shown(into))
    if failures := failures_of(records):
        return worst(Verdict(record["verdict"]).exit_code for record in failures)
    if any(one.measured is not None and not one.holds for one in found):
        return Exit.SLOWER
    return Exit.CLEAN if all(one.holds for one in found) else Exit.NOISY


def _time(targets: Targets, folder: Path, energy: bool) -> int:
    """Bench every case of the table, also of lines for other GPUs; the exit code of the run."""
    case_ids = dict.fromkeys(case_id for line in targets.lines for case_id in targets.case_ids(line))
    words = [word for case_id in case_ids for word in ("--case", case_id)]
    recipes = sorted({case_id.partition("/")[0] for case_id in case_ids})
    suites = [str(in_workdir(SUITES / f"{name}.yaml")) for name in recipes]
    words += ["--energy"] if energy else []
    words = [*suites, *settings(), "--bench", "--run-dir", str(in_workdir(folder)), *words]
    return supervise(words, WORKDIR, WORKDIR, folder, _suites.typed())


def _frame(found: list[TargetResult]) -> pd.DataFrame:
    rows = [
        (one.line.kernel, one.case_id, _us(one), one.required, one.reached, one.verdict, one.energy) for one in found
    ]
    table = pd.DataFrame(rows, columns=["kernel", "case", "us", "must", "is", "", "nJ an element"])
    return table if any(one.energy for one in found) else table.drop(columns="nJ an element")


def _us(one: TargetResult) -> str:
    return "" if one.microseconds is None else f"{one.microseconds:,.1f}"


def _markdown(header: Header, found: list[TargetResult], last: pd.DataFrame) -> str:
    kept = {name: value for name, value in facts_of(header).items() if name in FACTS}
    facts = "\n".join(f"- {name}: {value}" for name, value in kept.items())
    right = sum(one.holds for one in found)
    return (
        f"# Figures to reach\n\n`make roofline` made this table: {right} of {len(found)} cases reach theirs. They "
        f"stand in `harness/bench/targets.yaml`; percent are of the copy in the same run.\n\n{facts}\n\n"
        f"{markdown(_frame(found))}\n" + (f"\n## Furthest from theirs\n\n{markdown(last)}\n" if len(last) else "")
    )
