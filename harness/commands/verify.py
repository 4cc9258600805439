from __future__ import annotations

from collections.abc import Sequence

import click

from harness.commands import _shared, _suites
from harness.ground.strictness import use_strict
from harness.suite.wanted import Wanted


@click.command(cls=_suites.ForPytest, context_settings={"ignore_unknown_options": True})
@_suites.words
@_suites.choice("set of cases (smoke; bench with --bench)")
@_shared.device("where kernels run (auto)")
@click.option("--jobs", metavar="N", help="processes side by side, or auto (auto; 0 with --case)")
@click.option("--cluster", metavar="ADDRESS", help="run cases on the workers of the Dask scheduler at ADDRESS")
@click.option("--strict", "is_strict", is_flag=True, help="on the emulator: report what PTX forbids and GPUs bear, too")
@_shared.recipe_dir
@_shared.include
def command(
    words: Sequence[str],
    set_name: str | None,
    flags: Sequence[str],
    shape: str | None,
    cases: Sequence[str],
    device_name: str,
    jobs: str | None,
    cluster: str | None,
    is_strict: bool,
) -> None:
    """Run every kernel of the suites and compare every byte with two oracles.

    Options that are not listed here go to pytest as they are. Ours, which `pytest --help` explains under NVFP4 suites:
    --subject NAME, --run-dir DIR, --resume, --shard I/N, --case-timeout SECONDS; of pytest's, -k TEXT, -x and -v.
    """
    if is_strict:
        use_strict()
    if jobs is None and not cluster:
        jobs = "0" if cases else "auto"
    if cluster is not None:
        words = [*words, "--cluster", cluster]
    _suites.run(words, set_name, cases, Wanted(tuple(flags), shape or ""), device_name, jobs)
