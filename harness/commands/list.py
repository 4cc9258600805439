from __future__ import annotations

import difflib
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.contract.case import Case
from harness.errors import UsageError
from harness.suite.shapes import canonical
from harness.suite.suite import Suite, load_suite, load_suites, suite_of
from harness.text import nearest


@click.command()
@click.argument("recipes", nargs=-1, metavar="[RECIPE|SUITE]...")
@click.option("--set", "set_name", default="smoke", metavar="NAME", help="set of cases (smoke)")
@click.option("--flag", "flags", multiple=True, metavar="K=V", help="only cases with this flag")
@click.option("--input", "input_name", metavar="NAME", help="only cases with this input")
@click.option("--shape", metavar="RxC", help="only cases of this shape, as in 48x80, 8*1024x2048 or 64x512x128")
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
    holders = suites if recipes else [suite for suite in suites if set_name in suite.sets]
    if not holders:
        raise UsageError(f"no suite has a set '{set_name}'{nearest(set_name, suites[0].sets)}")
    wanted = _flag_filter(suites, flags)
    if refused:
        if flags or input_name or shape or part is not None:
            raise UsageError("--refused counts what whole suites refuse; leave out --flag, --input, --shape and -k")
        _show_refused(holders, set_name)
        return
    spelled = shape and canonical(shape)
    cases = [
        case
        for suite in holders
        for case in suite.cases(set_name)
        if wanted(suite, case)
        and input_name in (None, case.input)
        and spelled in (None, case.shape)
        and (part is None or part in case.id)
    ]
    if not cases:
        raise UsageError(_nothing(holders, set_name, input_name, spelled, part))
    click.echo("\n".join(case.id for case in cases))
    if sys.stdout.isatty() and not ids:
        excluded = sum((suite.excluded(set_name) for suite in holders), Counter())
        reasons = f", for {len(excluded)} reasons: add --refused" if excluded else ""
        click.echo(f"{len(cases):,} cases of set {set_name}; {excluded.total():,} combinations are refused{reasons}")


def _suite(name: str) -> Suite:
    return load_suite(Path(name)) if name.endswith(".yaml") else suite_of(name)


def _flag_filter(suites: Sequence[Suite], flags: Sequence[str]) -> Callable[[Suite, Case], bool]:
    wanted = []
    for flag in flags:
        name, equals, text = flag.partition("=")
        if not equals:
            raise UsageError(f"--flag {flag} is not flag=value, as in --flag rounding=sr")
        holders = [suite for suite in suites if name in suite.file.axes] or suites[:1]
        wanted.append((name, {suite.recipe: suite.flag(name, text) for suite in holders}))

    def keep(suite: Suite, case: Case) -> bool:
        return all(suite.recipe in values and case.flags[name] == values[suite.recipe] for name, values in wanted)

    return keep


def _nothing(
    holders: Sequence[Suite], set_name: str, input_name: str | None, shape: str | None, part: str | None
) -> str:
    """Why no case is left: the first word that no case of the set has, and what is near it."""
    cases = [case for suite in holders for case in suite.cases(set_name)]
    there = f"of the {len(cases):,} cases of set {set_name}"
    for option, word, has in (("--input", input_name, "input"), ("--shape", shape, "shape")):
        known = sorted({getattr(case, has) for case in cases})
        if word is not None and word not in known:
            close = difflib.get_close_matches(word, known, n=3, cutoff=0)
            return f"none {there} has {option} {word}; the nearest are {', '.join(close)}"
    if part is not None and not any(part in case.id for case in cases):
        words = sorted({word for case in cases for word in re.split(r"[/,]", case.id)})
        close = difflib.get_close_matches(part, words, n=3, cutoff=0)
        return f"none {there} has -k {part} in its id; the nearest words of ids are {', '.join(close)}"
    return f"none {there} meets all of these options, though each of them has some; leave one out"


def _show_refused(holders: Sequence[Suite], set_name: str) -> None:
    refused = sum((suite.excluded(set_name) for suite in holders), Counter())
    click.echo(f"{refused.total():,} combinations are refused")
    for reason, count in refused.most_common():
        click.echo(f"  {count:,}  {reason}")
