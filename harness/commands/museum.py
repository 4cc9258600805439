from __future__ import annotations

import click

from harness.errors import Exit
from harness.report.console import show as show_table
from harness.studies.museum.beside import says
from harness.studies.museum.exhibit import exhibits
from harness.studies.museum.run import show, table


@click.command()
@click.option("-k", "expression", default="", metavar="TEXT", help="only exhibits with this in their name or thread")
@click.option("-v", "verbose", is_flag=True, help="print what each fault says, too")
@click.option("--sanitizer", metavar="PATH", help="show beside it what this compute-sanitizer says on a GPU")
def command(expression: str, verbose: bool, sanitizer: str | None) -> int:
    """Run the museum of bugs on the emulator: each is caught by the check that it names, and no mend is accused.

    Exits with 1 if that is not so.
    """
    chosen = [each for each in exhibits() if expression in each.name or expression in each.thread]
    found = [show(each) for each in chosen]
    rows = table(found)
    if sanitizer:
        for title, mended in (("sanitizer, bug", False), ("sanitizer, mend", True)):
            rows[title] = [says([sanitizer], each.name, mended) for each in chosen]
    show_table(rows, "bugs that people met, on the emulator")
    for each in found:
        if verbose and each.bug.sentence:
            click.echo(f"{each.exhibit.name}: {each.bug.where}: {each.bug.sentence}")
        if not each.right:
            mend = f", and the mend was accused: {each.mend.sentence}" if each.mend.check else ""
            click.echo(f"{each.exhibit.name}: {each.bug.check or 'nothing'} instead of {each.exhibit.check}{mend}")
    click.echo(f"{sum(each.right for each in found)} of {len(found)} caught by the check that they name")
    return Exit.CLEAN if all(each.right for each in found) else Exit.BYTES_DIFFER
