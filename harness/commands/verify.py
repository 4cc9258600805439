from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.files import INSTALLED, RESULTS, SUITES, WORKDIR
from harness.records.run_folder import shown
from harness.runner.supervisor import leave, supervise
from harness.suite.suite_file import suite_path

# What pyproject.toml sets in a checkout.
_SETTINGS = ("--rootdir", str(WORKDIR), "-o", "junit_family=xunit1")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[RECIPE]... [OPTION OF PYTEST]...")
@click.option("--set", "set_name", metavar="NAME", help="set of cases (smoke; bench with --bench)")
@click.option("--case", "cases", multiple=True, metavar="ID", help="only this case, even if no set has it")
@_shared.device("where kernels run (auto)")
@click.option("--jobs", metavar="N", help="processes side by side, or auto (auto; 0 with --case)")
def command(
    words: Sequence[str], set_name: str | None, cases: Sequence[str], device_name: str, jobs: str | None
) -> None:
    """Run every kernel of the suites and compare every byte with two oracles.

    Options that are not listed here, such as --bench, --subject or -k, go to pytest as they are.
    """
    recipes = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    suites = [shown(suite_path(name)) for name in recipes] or [shown(SUITES)]
    chosen = [*(("--set", set_name) if set_name else ()), *(word for case in cases for word in ("--case", case))]
    ours = [*chosen, "--device", device_name, "-n", jobs or ("0" if cases else "auto")]
    settings = _SETTINGS if INSTALLED else ()
    # Cases run side by side; threads of their own would only get in each other's way.
    os.environ.update({name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")})
    leave(supervise([*suites, *settings, *ours, *words[len(recipes) :]], Path.cwd(), WORKDIR, RESULTS / "runs"))
