from __future__ import annotations

import shlex
from pathlib import Path

import click

from harness.commands import _shared
from harness.device.select import select
from harness.errors import UsageError
from harness.files import KERNELS
from harness.ground.command_lines import this_python
from harness.records.run_folder import new_folder
from harness.shrink.reproducer import write
from harness.shrink.shrinker import Budget, describe, shrink
from harness.suite.suite import find_case
from harness.verdict import labelled


@click.command()
@click.argument("case_id", metavar="ID")
@_shared.out(name="--into")
@_shared.device()
@click.option(
    "--kernels",
    type=_shared.NamedPath(exists=True, file_okay=False),
    metavar="DIR",
    help="the folder of the .cu files (harness/kernels)",
)
@click.option("--tries", type=click.IntRange(1), default=Budget.tries, show_default=True, help="most smaller cases")
@click.option("--seconds", type=_shared.Number(1), default=Budget.seconds, show_default=True, help="longest search")
@_shared.recipe_dir
def command(case_id: str, into: Path | None, device_name: str, kernels: Path | None, tries: int, seconds: float) -> int:
    """Reduce a case that fails to the smallest that still fails, and write a test that reproduces it.

    Flags take their defaults, tensors of a group, rows and columns are left out, and values become zero, as long as
    the verdict stays the same, and so does the wrong field or the line of the wrong access. Exits as the case does.
    """
    case = find_case(case_id)
    chosen = select(device_name, kernels=kernels or KERNELS)
    folder = into or new_folder() / "shrunk"
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name an empty folder or a new one")
    shrunk = shrink(case, chosen, Budget(tries, seconds))
    test = write(shrunk, folder, kernels)
    click.echo(f"whole     {case.id}: {shrunk.failure}")
    click.echo(
        f"left      {shrunk.case.shape}, {shrunk.case.variant}: {shrunk.left} of {shrunk.of} values are not zero"
    )
    click.echo(f"search    {shrunk.tries} tries in {shrunk.seconds} s; {shrunk.stopped}\n")
    click.echo(describe(shrunk.result, shrunk.cause))
    words = shlex.join([this_python(test.parent.absolute()), "-m", "pytest", test.name])
    click.echo(f"\n{labelled('reproduce', f'cd {shlex.quote(str(test.parent))} && {words}')}")
    return shrunk.result.verdict.exit_code
