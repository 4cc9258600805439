from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import Exit
from harness.files import RESULTS
from harness.records.run_folder import shown
from harness.report.tables import markdown, write_table
from harness.studies.thresholds import run
from harness.studies.thresholds.outcomes import OUTCOMES
from harness.suite.suite import load_suites, suite_of

STEM = "thresholds"


@click.command()
@_shared.recipes
@click.option("--set", "set_name", default="smoke", metavar="NAME", help="the set whose cases are run (smoke)")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="processes at a time")
@click.option("--check", is_flag=True, help="compare with results/thresholds.csv; exit with 1 if more is missing")
@_shared.out("write files, too")
def command(recipes: Sequence[str], set_name: str, jobs: int, check: bool, out: Path | None) -> int:
    """Find the comparisons with constants, in kernels and oracles, that the smoke sets see on one side only."""
    suites = [suite_of(name) for name in recipes] or load_suites()
    for done in run.watch(suites, set_name, jobs):
        click.echo(f"\r{done} cases", nl=False, err=True)
    found = OUTCOMES.missing()
    counts = Counter(each.what for each in found)
    table = run.table(found)
    summary = (
        f"{len(OUTCOMES.seen)} comparisons, {len(found)} seen on one side only, {(table['because'] == '').sum()} of "
        f"them for no reason that is known; never reached {counts['reached']}, never true {counts['true']}, "
        f"never false {counts['false']}, never at the edge {counts['edge']}"
    )
    click.echo(f"\n{summary}")
    if out:
        text = ["# Comparisons that the cases see on one side only", f"`{_shared.made_by()}`", _NOTES, summary]
        for path in write_table(out, STEM, table, [*text, markdown(table)]):
            click.echo(shown(path))
    more = run.grown(found, run.read(RESULTS / f"{STEM}.csv")) if check else []
    for sentence in more:
        click.echo(sentence)
    return Exit.BYTES_DIFFER if more else Exit.CLEAN


_NOTES = (
    "Every `setp`, `min` and `max` of the kernels' PTX with a constant, or with a value that is the same for the whole "
    "grid, and every comparison of numbers in an oracle and clamp to a constant there, by its line of source, over all "
    "its instantiations for sm_90a and sm_100a. missing: `reached`, no case comes there; `true` and `false`, the "
    "comparison (of a clamp, the first or the second side) never has this outcome; `edge`, both outcomes are seen and "
    "never two equal values, nor, of integers, the next one. `<` stands for `>=`, too, which a compiler may "
    "write instead, and an index that moves in steps may never meet its bound. because: why no legal case shows it, "
    "from [one_sided.yaml](../harness/studies/thresholds/one_sided.yaml)."
)
