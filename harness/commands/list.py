from __future__ import annotations

import difflib
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.contract.case import Case
from harness.errors import UsageError
from harness.suite.suite import Suite, load_suite, load_suites, suite_of
from harness.suite.wanted import Wanted
from harness.text import nearest


@click.command()
@_shared.with_words(click.argument("recipes", nargs=-1, metavar="[RECIPE|SUITE]..."))
@click.option("--set", "set_name", default="smoke", metavar="NAME", help="set of cases (smoke)")
@_shared.flags
@_shared.shape
@click.option("--input", "input_name", metavar="NAME", help="only cases with this input")
@click.option("-k", "part", metavar="TEXT", help="only cases whose id contains this")
@click.option(
    "--refused", is_flag=True, help="the combinations that the suites refuse, counted by reason, in place of cases"
)
@click.option("--ids", is_flag=True, help="print ids and nothing else")
@_shared.recipe_dir
def command(
    recipes: Sequence[str],
    set_name: str,
    flags: Sequence[str],
    input_name: str | None,
    shape: str | None,
    part: str | None,
    refused: bool,
    ids: bool,
) -> None:
    """List the ids of the cases of a set, one a line; on a terminal also how many combinations are refused."""
    suites = [_suite(name) for name in recipes] or load_suites()
    holders = suites if recipes else [suite for suite in suites if set_name in suite.known_sets]
    if not holders:
        raise UsageError(f"no suite has a set '{set_name}'{nearest(set_name, suites[0].known_sets)}")
    wanted = Wanted(tuple(flags), shape or "", input_name or "")
    if refused:
        if wanted or part is not None:
            raise UsageError("--refused counts what whole suites refuse; leave out --flag, --input, --shape and -k")
        _show_refused(holders, set_name)
        return
    keep = wanted.keeps(holders)
    whole = [(suite, case) for suite in holders for case in suite.cases(set_name)]
    cases = [case for suite, case in whole if keep(suite, case) and (part is None or part in case.id)]
    if not cases:
        every = [case for _, case in whole]
        absent = part is not None and not any(part in case.id for case in every)
        raise UsageError(_without_part(every, set_name, part) if absent else wanted.none_of(whole, set_name))
    click.echo("\n".join(case.id for case in cases))
    if sys.stdout.isatty() and not ids:
        excluded = sum((suite.excluded(set_name) for suite in holders), Counter())
        reasons = f", for {len(excluded)} reasons: add --refused" if excluded else ""
        click.echo(f"{len(cases):,} cases of set {set_name}; {excluded.total():,} combinations are refused{reasons}")


def _suite(name: str) -> Suite:
    return load_suite(Path(name)) if name.endswith(".yaml") else suite_of(name)


def _without_part(cases: Sequence[Case], set_name: str, part: str) -> str:
    """A sentence on a text that no id of a set contains, with words of ids that are near."""
    words = sorted({word for case in cases for word in re.split(r"[/,]", case.id)})
    close = ", ".join(difflib.get_close_matches(part, words, n=3, cutoff=0))
    there = f"none of the {len(cases):,} cases of set {set_name}"
    return f"{there} has -k {part} in its id; the nearest words of ids are {close}"


def _show_refused(holders: Sequence[Suite], set_name: str) -> None:
    refused = sum((suite.excluded(set_name) for suite in holders), Counter())
    click.echo(f"{refused.total():,} combinations are refused")
    for reason, count in refused.most_common():
        click.echo(f"  {count:,}  {reason}")
