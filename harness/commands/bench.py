from __future__ import annotations

from collections.abc import Sequence

import click

from harness.commands import _shared, _suites
from harness.errors import Exit
from harness.files import RESULTS


@click.command(cls=_suites.ForPytest, context_settings={"ignore_unknown_options": True})
@_suites.words
@_suites.set_name("set of cases (bench)")
@_suites.cases
@_shared.device("where kernels run (auto); times need a GPU")
@_shared.recipe_dir
@_shared.include
@click.option("--gpus", metavar="N", help="share the run among N GPUs of this host, or all; their times become one run")
def command(
    words: Sequence[str], set_name: str | None, cases: Sequence[str], device_name: str, gpus: str | None
) -> Exit:
    """Verify the bench set, then time it, eager and as CUDA graphs, against the baseline recipe.

    Options that are not listed here, such as --subject, --shard or -k, go to pytest as they are.
    """
    if gpus is None:
        _suites.run([*words, "--bench"], set_name, cases, device_name, None)
    from harness.runner import several_gpus

    count = several_gpus.count_of(gpus)
    if count == 1:
        _suites.run([*words, "--bench"], set_name, cases, device_name, None)
    chosen = [*words, *_suites.chosen(set_name, cases, device_name)]
    return several_gpus.bench(chosen, _suites.suites_of(words), count, RESULTS / "runs")
