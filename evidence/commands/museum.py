from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click
import pandas as pd

from evidence.museum.driver import gpu_name
from evidence.museum.exhibit import Exhibit, exhibits
from evidence.museum.run import show, table, write
from evidence.museum.under_sanitizer import NOT_ASKED, TITLES, asked
from evidence.sanitizer.compute_sanitizer import executable
from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.records.run_folder import shown
from harness.report.console import show as show_table


@click.command()
@click.option("-k", "expression", default="", metavar="TEXT", help="only exhibits with this in their name or thread")
@click.option("-v", "verbose", is_flag=True, help="print what each fault says, too")
@click.option("--sanitizer", "named", metavar="[PATH]", is_flag=False, flag_value="", default=None,
              help="also show what compute-sanitizer, at PATH or searched for, says on a GPU")  # fmt: skip
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="processors",
    help="processes of that at a time",
)
@_shared.out("write files, too")
def command(expression: str, verbose: bool, named: str | None, jobs: int, out: Path | None) -> int:
    """Run the museum of bugs on the emulator: each is caught by the check that it names, and no mend is accused.

    Exits with 1 if that is not so.
    """
    chosen = [each for each in exhibits() if expression in each.name or expression in each.thread]
    if not chosen:
        names = ", ".join(each.name for each in exhibits())
        raise UsageError(f"no exhibit has {expression!r} in its name or thread; there are {names}")
    program = None if named is None else executable(Path(named) if named else None)
    gpu = gpu_name() if program else ""
    found, interrupted = [], False
    for each in chosen:
        found.append(show(each))
        if program:
            caught = found[-1].bug.check or "nothing"
            click.echo(f"emulator: {each.thread}: {caught}, {found[-1].seconds:.2f} s")
    rows = table(found)
    if program:
        interrupted = not _ask_sanitizer(rows, program, chosen, jobs, gpu, out)
    show_table(rows, "bugs that people met, on the emulator")
    for each in found:
        if verbose and each.bug.sentence:
            click.echo(f"{each.exhibit.name}: {each.bug.where}: {each.bug.sentence}")
        if not each.right:
            mend = f", and the mend was accused: {each.mend.sentence}" if each.mend.check else ""
            click.echo(f"{each.exhibit.name}: {each.bug.check or 'nothing'} instead of {each.exhibit.check}{mend}")
    click.echo(f"{sum(each.right for each in found)} of {len(found)} caught by the check that they name")
    if out:
        for path in write(_shared.made_by("out"), rows, gpu, out):
            click.echo(shown(path))
    if interrupted:
        return Exit.INTERRUPTED
    return Exit.CLEAN if all(each.right for each in found) else Exit.BYTES_DIFFER


def _ask_sanitizer(
    rows: pd.DataFrame, program: str, chosen: list[Exhibit], jobs: int, gpu: str, out: Path | None
) -> bool:
    """Put what compute-sanitizer says into the rows, and write them, after each exhibit; False if it is interrupted."""
    names = [each.name for each in chosen]
    for title in TITLES:
        rows[title] = NOT_ASKED
    try:
        with contextlib.closing(asked([program], chosen, jobs)) as every:
            for said in every:
                rows.loc[names.index(said.exhibit.name), said.title] = said.words
                click.echo(f"{said.title}: {said.exhibit.thread}: {said.words}, {said.seconds:.0f} s")
                if out:
                    write(_shared.made_by("out"), rows, gpu, out)
    except KeyboardInterrupt:
        click.echo(f"interrupted; what compute-sanitizer was not asked is {NOT_ASKED!r}")
        return False
    return True
