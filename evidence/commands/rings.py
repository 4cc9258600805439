from __future__ import annotations

from pathlib import Path

import click

from evidence.museum import ring
from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.records.run_folder import shown
from harness.report.console import show


@click.command()
@click.option("-k", "expression", default="", metavar="TEXT", help="only rings with this in their name")
@_shared.out("write files, too")
def command(expression: str, out: Path | None) -> int:
    """Drop or move one synchronisation at a time in three rings of copies, and see what the emulator says.

    The rings are right: loads by TMA into slots that go round, stores by TMA from such slots, and a warp that loads
    for two that store. Exits with 1 if one is accused, or if too few of its mutants are caught.
    """
    chosen = [each for each in ring.rings() if expression in each.kernels.name]
    if not chosen:
        names = ", ".join(each.kernels.name for each in ring.rings())
        raise UsageError(f"no ring has {expression!r} in its name; there are {names}")
    tried = [one for each in chosen for one in ring.try_all(each)]
    rows, score = ring.table(tried), ring.score(tried)
    show(rows.drop(columns="says"), "synchronisation dropped or moved, on the emulator")
    show(score, "rings")
    for each in tried:
        if each.right and each.finding.check:
            name = f"'{each.name}' of {each.ring}" if each.name else each.ring
            click.echo(f"{name} is right, and was accused: {each.finding.where}: {each.finding.sentence}")
    if out:
        for path in ring.write(_shared.made_by("out"), tried, out):
            click.echo(shown(path))
    return Exit.CLEAN if ring.enough(tried) else Exit.BYTES_DIFFER
