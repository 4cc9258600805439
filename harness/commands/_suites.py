"""What `verify` and `bench` share: the words of pytest for some recipes, and the run below a supervisor."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NoReturn

import click

from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.files import RECIPE_DIRS, RESULTS, SUITES, WORKDIR
from harness.ground.command_lines import include_options, recipe_dir_options, this_harness
from harness.ground.strictness import strict_option
from harness.records.run_folder import shown
from harness.runner.below_supervisor import no_such_option, refused_by_pytest, settings
from harness.runner.request import OPTIONS, configuring, left_to_pytest
from harness.runner.supervisor import leave, supervise
from harness.suite.suite_file import suite_path
from harness.suite.wanted import Wanted

LONGEST = 120.0  # seconds in which pytest's plugins are loaded
_TAKE_NOTHING = ("-x", "-v", "-vv", "-q", "-s", "-l", "--lf", "--ff", "--resume", "--bench", "--exitfirst")


class ForPytest(click.Command):
    """A command that hands words on to pytest."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Have -h mean help only as a word of its own, not as a letter of `-kgraph`; only alone help ends with 0."""
        context.help_option_names = ["--help"]
        if not {"-h", "--help"}.isdisjoint(args):
            click.echo(context.get_help())
            context.exit(Exit.CLEAN if len(args) == 1 else Exit.USAGE)
        return super().parse_args(context, args)


words = _shared.with_words(
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[RECIPE]... [OPTION OF PYTEST]...")
)


def set_name(text: str) -> Callable:
    """--set NAME."""
    return click.option("--set", "set_name", metavar="NAME", help=text)


def choice(text: str) -> Callable:
    """The options that choose cases: --set, --case, --flag and --shape. text: help of --set"""

    def decorated(command: Callable) -> Callable:
        case = click.option(
            "--case", "cases", multiple=True, metavar="ID", help="only this case, even if no set has it"
        )
        return set_name(text)(_shared.flags(_shared.shape(case(command))))

    return decorated


def chosen(set_name: str | None, cases: Sequence[str], wanted: Wanted, device_name: str) -> list[str]:
    """The options of pytest for a set, cases, a device, the recipes of one's own and what cards may include."""
    return [
        *(("--set", set_name) if set_name is not None else ()),
        *(word for case in cases for word in ("--case", case)),
        *(f"--flag={each}" for each in wanted.flags),
        *([f"--shape={wanted.shape}"] if wanted.shape else []),
        *recipe_dir_options(),
        *include_options(),
        *strict_option("--strict-ptx"),
        "--device",
        device_name,
    ]


def run(
    words: Sequence[str], set_name: str | None, cases: Sequence[str], wanted: Wanted, device_name: str, jobs: str | None
) -> NoReturn:
    """Run suites and end this process with the code of the table.

    words: recipes, then options of pytest; jobs: processes side by side, a number or `auto`
    """
    if jobs not in (None, "auto", "logical") and not re.fullmatch(r"\d+", jobs, re.ASCII):
        raise UsageError(f"--jobs {jobs} is no number of processes; give one, as in --jobs 4, or auto")
    recipes = recipes_of(words)
    late = next((word for before, word in pairwise(words[len(recipes) :]) if _is_late(before, word)), None)
    if late:
        raise UsageError(f"the recipe '{late}' comes behind an option of pytest; name recipes before all options")
    for word in configuring(words[len(recipes) :]):
        raise UsageError(f"'{word}' has pytest read what may choose something else; leave it out, or run pytest itself")
    if left_to_pytest(words[len(recipes) :]):
        _require_options_of_pytest(words[len(recipes) :])
    suites = suites_of(words)
    if RECIPE_DIRS:
        from harness.check import recipe_files

        for error in recipe_files.errors():
            raise UsageError(error)
    ours = [*chosen(set_name, cases, wanted, device_name), *(("-n", jobs) if jobs is not None else ())]
    # Cases run side by side; threads of their own would only get in each other's way.
    os.environ.update({name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")})
    below = [*suites, *settings(), *ours, *words[len(recipes) :]]
    leave(supervise(below, Path.cwd(), WORKDIR, RESULTS / "runs", typed()))


def _require_options_of_pytest(words: Sequence[str]) -> None:
    """Raise UsageError for an option or a value that pytest does not have, before a process loads what verifies."""
    from harness.ground.side_by_side import each_alone

    for _, found in each_alone(refused_by_pytest, [words], 1, LONGEST):
        option, sentence = found or ("", "")
        if sentence:
            raise UsageError(f"pytest refuses the command line: {sentence}")
        if option:
            ours = {name for each in click.get_current_context().command.params for name in each.opts}
            raise UsageError(no_such_option(option, {*OPTIONS, *ours}))


def typed() -> list[str]:
    """The running command as it may be typed again."""
    _, *words = shlex.split(_shared.made_by())
    return [*this_harness(Path.cwd()), *words]


def suites_of(words: Sequence[str]) -> list[str]:
    """The files of the suites that words name before all options, or else the folder of all. Raises UsageError."""
    return [shown(suite_path(name)) for name in recipes_of(words) or sorted(RECIPE_DIRS)] or [shown(SUITES)]


def recipes_of(words: Sequence[str]) -> list[str]:
    """The words before all options."""
    return list(takewhile(lambda word: not word.startswith("-"), words))


def _is_late(before: str, word: str) -> bool:
    """Whether a word that follows options is a recipe and not an option's value. before: the word before it"""
    is_recipe = word in RECIPE_DIRS or (SUITES / f"{word}.yaml").is_file()
    return is_recipe and (not before.startswith("-") or before in _TAKE_NOTHING)
