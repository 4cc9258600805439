"""`harness gate`"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Column, Table

from harness import gate
from harness.errors import Exit
from harness.gate import Judgement
from harness.runner.run_files import RunFiles, latest_bench, read_bench, read_run
from harness.suite import ROOT
from harness.verdict import Performance, Verdict

LOG_WIDTH = 200


@click.command()
@click.argument("run_dir", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--baseline", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="times to compare with"
)
@click.option(
    "--effect", type=click.FloatRange(0, min_open=True), default=gate.EFFECT, help="smallest change that counts (0.03)"
)
@click.option("--recipe", "-R", "recipes", multiple=True, metavar="NAME", help="judge only the cases of this recipe")
@click.option("--save", is_flag=True, help="make this run the baseline instead of judging it")
def command(run_dir: Path | None, baseline: Path | None, effect: float, recipes: Sequence[str], save: bool) -> int:
    """Compare the times of a run (the newest, if none is named) with the baseline of its GPU.

    Exits with 1 if a byte differs, 2 if a case is slower, 3 if it cannot be told, 5 without a baseline.
    """
    run = read_run(run_dir or latest_bench(ROOT / "results" / "runs"))
    path = baseline or gate.baseline_path(run.header)
    header, held = read_bench(path) if path.exists() else ({}, [])
    if save:
        for written in gate.save(run, path, held):
            click.echo(written)
        return Exit.CLEAN
    judgements = gate.judge(run, header, held, effect, recipes)
    code = gate.outcome(run, judgements)
    _show(run, path, judgements, code)
    return code


def _show(run: RunFiles, path: Path, judgements: Sequence[Judgement], code: Exit) -> None:
    # A log has no width, and a case id that is cut off is no case id.
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else LOG_WIDTH)
    wrong = [record for record in run.records if Verdict(record["verdict"]).exit_code is not Exit.CLEAN]
    table = Table("verdict", Column("case", overflow="fold"), "then us", "now us", "because")
    for record in wrong:
        table.add_row(record["verdict"], record["case_id"], "", "", record["reason"])
    for judgement in judgements:
        if judgement.verdict is not Performance.SAME:
            times = (f"{value:,.2f}" if value else "" for value in (judgement.theirs_us, judgement.ours_us))
            table.add_row(judgement.verdict, judgement.case_id, *times, judgement.reason)
    if table.row_count:
        console.print(table)
    if not path.exists():
        console.print(f"there is no baseline at {path}; `harness gate --save` makes this run one")
    counts = Counter(judgement.verdict for judgement in judgements)
    told = [f"{counts[verdict]} {verdict}" for verdict in Performance if counts[verdict]] or ["nothing was measured"]
    told += [f"{len(wrong)} wrong"] if wrong else []
    console.print(f"{', '.join(told)}: exit {int(code)} ({code.name.lower().replace('_', ' ')})")
