from __future__ import annotations

from collections.abc import Sequence

import click

from harness.commands import _shared, _suites


@click.command(context_settings={"ignore_unknown_options": True})
@_suites.words
@_suites.set_name("set of cases (bench)")
@_suites.cases
@_shared.device("where kernels run (auto); times need a GPU")
@_shared.recipe_dir
def command(words: Sequence[str], set_name: str | None, cases: Sequence[str], device_name: str) -> None:
    """Verify the bench set, then time it, eager and as CUDA graphs, against the baseline recipe.

    Options that are not listed here, such as --subject, --shard or -k, go to pytest as they are.
    """
    _suites.run([*words, "--bench"], set_name, cases, device_name, None)
