from __future__ import annotations

from collections.abc import Sequence

import click

from harness.commands import _shared, _suites
from harness.contract.case import Case
from harness.device.select import require_clock, select
from harness.errors import Exit, UsageError
from harness.files import RESULTS
from harness.suite.suite import suite_of
from harness.suite.wanted import Wanted, pairs


@click.command(cls=_suites.ForPytest, context_settings={"ignore_unknown_options": True})
@_suites.words
@_suites.choice("set of cases (bench)")
@_shared.device("where kernels run (auto); times need a GPU")
@_shared.recipe_dir
@_shared.include
@click.option("--gpus", metavar="N", help="share the run among N GPUs of this host, or all; their times become one run")
@click.option("--function", metavar="MODULE:NAME", help="time this at once on one --shape, and verify nothing")
def command(
    words: Sequence[str],
    set_name: str | None,
    cases: Sequence[str],
    flags: Sequence[str],
    shape: str | None,
    device_name: str,
    gpus: str | None,
    function: str | None,
) -> Exit:
    """Verify the bench set, then time it, eager and as CUDA graphs, against the baseline recipe.

    Options that are not listed here, such as --subject, --shard or -k, go to pytest as they are.

    With --function, time a function of yours on normal data of the --shape, for the recipe that is named (per_tensor)
    and each --flag. Nothing is verified and no time is kept, and it exits with 4, because nothing was compared;
    --subject verifies and then times.
    """
    wanted = Wanted(tuple(flags), shape or "")
    if function is not None:
        given = {"--set": set_name, "--case": cases, "--gpus": gpus}
        return _at_once(function, words, wanted, device_name, [name for name, value in given.items() if value])
    if gpus is None:
        _suites.run([*words, "--bench"], set_name, cases, wanted, device_name, None)
    from harness.runner import several_gpus

    count = several_gpus.count_of(gpus)
    if count == 1:
        _suites.run([*words, "--bench"], set_name, cases, wanted, device_name, None)
    chosen = [*words, *_suites.chosen(set_name, cases, wanted, device_name)]
    return several_gpus.bench(chosen, _suites.suites_of(words), count, RESULTS / "runs")


def _at_once(function: str, words: Sequence[str], wanted: Wanted, device_name: str, given: Sequence[str]) -> Exit:
    """Time a function on one case and verify nothing. given: options that do not go with that"""
    recipes = _suites.recipes_of(words)
    if others := [*given, *words[len(recipes) :]]:
        raise UsageError(f"--function times one case; leave out {others[0]}, or verify and time a set with --subject")
    if len(recipes) > 1:
        raise UsageError(f"--function times one case of one recipe, and {' and '.join(recipes)} are named")
    if not wanted.shape:
        raise UsageError("--function times one case at once; give its extents, as in --shape 8192x8192")
    recipe = recipes[0] if recipes else "per_tensor"
    case = _case(function, recipe, wanted)
    require_clock(device_name)
    import pandas as pd

    from harness.bench.gpu_timer import clock_of
    from harness.bench.roofline import copy_gbps
    from harness.report.console import show
    from harness.subjects.at_once import time_at_once
    from harness.subjects.subject import load

    click.echo(
        f"nothing is verified: nobody compares what {function} writes, and these times are kept nowhere; "
        f"`harness bench {recipe} --subject {function}` verifies it and then times it"
    )
    subject, device = load(function), select("cuda")
    clock = clock_of(device)
    rows = list(time_at_once(subject, case, device, clock, copy_gbps(clock)))
    show(pd.DataFrame(rows), f"{subject.label}, not verified")
    click.echo(f"{len(rows)} timed, 0 compared; exit {int(Exit.NO_DEVICE)} (nothing was compared)")
    return Exit.NO_DEVICE


def _case(function: str, recipe: str, wanted: Wanted) -> Case:
    """The case of a recipe on normal data, with the flags that are wanted, or else those that the module declares."""
    from harness.api.cases import make_case
    from harness.subjects.declared_flags import declared_flags

    suite = suite_of(recipe)
    flags = {name: values[0] for name, values in declared_flags(function).items() if name in suite.file.axes}
    flags |= {name: suite.flag(name, value) for name, value in pairs(wanted.flags).items()}
    return make_case(recipe, wanted.shape, **flags)
