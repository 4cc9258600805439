from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from evidence.thresholds import run
from evidence.thresholds.outcomes import OUTCOMES
from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.records.run_folder import shown
from harness.report.tables import markdown, write_table
from harness.suite.suite import load_suites, suite_of

STEM = "thresholds"


@click.command()
@_shared.recipes
@click.option("--set", "set_name", default="smoke", metavar="NAME", help="the set whose cases are run (smoke)")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="processes at a time")
@click.option("--check", is_flag=True, help="exit with 1 if one has neither a case nor a reason in one_sided.yaml")
@_shared.out("write files, too")
def command(recipes: Sequence[str], set_name: str, jobs: int, check: bool, out: Path | None) -> int:
    """Find the comparisons with constants, in kernels and oracles, that the smoke sets see on one side only."""
    if check and recipes:
        raise UsageError("--check takes no recipe: the cases of all recipes together see the sides of a comparison")
    suites = [suite_of(name) for name in recipes] or load_suites()
    cases = run.cases_of(suites, set_name)
    full = [] if recipes or set_name != "smoke" else run.full_cases()
    done = run.study(cases, full, jobs, lambda number: click.echo(f"\r{number} cases", nl=False, err=True))
    counts = Counter(each.what for each in done.found)
    because = run.reasons()
    table = run.table(done.found, because)
    summary = (
        f"{len(OUTCOMES.united())} comparisons of {len(cases)} cases and {len(full)} of full sets; {len(done.by_set)} "
        f"are seen on one side only by the former, and {len(done.found)} by all, {(table['because'] == '').sum()} of "
        f"them for no reason that is known; never reached {counts['reached']}, never true {counts['true']}, "
        f"never false {counts['false']}, never at the edge {counts['edge']}"
    )
    click.echo(f"\n{summary}")
    if out:
        text = ["# Comparisons that the cases see on one side only", f"`{_shared.made_by()}`", _NOTES, summary]
        for path in write_table(out, STEM, table, [*text, markdown(table)]):
            click.echo(shown(path))
    wrong = run.unexplained(done, because) if check else []
    for sentence in wrong:
        click.echo(sentence)
    return Exit.BYTES_DIFFER if wrong else Exit.CLEAN


_NOTES = (
    "Every `setp`, `min` and `max` of the kernels' PTX with a constant, or with a value that is the same for the whole "
    "grid, and every comparison of numbers in an oracle and clamp to a constant there, by its line of source, over all "
    "its instantiations for sm_90a and sm_100a. missing: `reached`, no case comes there; `true` and `false`, the "
    "comparison (of a clamp, the first or the second side) never has this outcome; `edge`, both outcomes are seen and "
    "never two equal values, nor, of integers, the next one. `<` stands for `>=`, too, which a compiler may "
    "write instead, and an index that moves in steps may never meet its bound. Left out is what constants and the "
    "index of a thread in its block decide, as no case can change it. because: why no legal case shows it, "
    "from [one_sided.yaml](../evidence/thresholds/one_sided.yaml), which also names the cases of full sets that "
    "are run after those of the smoke sets."
)
