from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from evidence import speed
from harness.commands import _shared
from harness.errors import Exit, HarnessError, UsageError
from harness.files import write_text
from harness.records.run_folder import commit, now, shown
from harness.report.console import show
from harness.text import nearest


@click.command()
@click.option("--row", "names", multiple=True, metavar="NAME", help="only this row (all that this machine can run)")
@click.option("--into", type=_shared.NEW_FOLDER, metavar="DIR", help="write speed.md and speed.jsonl there")
@click.option("--against", type=_shared.FILE, metavar="FILE", help="compare with a speed.jsonl of such a machine")
@click.option(
    "--ratio", type=_shared.Number(1), default=1.3, show_default=True,
    help="a row is slower if it takes this many times as long",
)  # fmt: skip
def command(names: tuple[str, ...], into: Path | None, against: Path | None, ratio: float) -> int:
    """Measure how long the harness itself makes one wait.

    All rows take more than half an hour; let nothing else run on the machine. Exits with 2 if a row is slower than the
    one it is compared with or, compared with nothing, misses its goal.
    """
    every = {row.name: row for row in speed.rows()}
    for name in names:
        if name not in every:
            raise UsageError(f"there is no row '{name}'{nearest(name, every)}; the rows are {', '.join(every)}")
    machine, before = speed.machine(), {}
    if against:
        then, before = speed.read(against)
        if then != machine:
            raise UsageError(f"{against} was measured on {then}, and this machine is {machine}; measure again here")
    found, failure = [], None
    for row in (every[name] for name in names or every):
        if not speed.possible(row):
            click.echo(f"{row.name}: left out, because this machine has no GPU")
            continue
        try:
            found.append(speed.measure(row))
        except HarnessError as error:
            failure = failure or error
            click.echo(f"{row.name}: {error}", err=True)
            continue
        click.echo(f"{row.name}: {found[-1].value:,.1f} {row.unit}, goal {row.goal:g}")
        if into:
            _write(into, machine, found)
    if failure is not None:
        raise failure
    show(speed.table(found), "what the harness makes one wait")
    if into:
        click.echo(shown(into / "speed.md"))
    if not against:
        return Exit.CLEAN if all(one.holds for one in found) else Exit.SLOWER
    slower = [one for one in found if one.name in before and one.times_slower(before[one.name]) > ratio]
    for one in slower:
        click.echo(f"{one.name}: {one.value:,.1f} {one.unit}, and it was {before[one.name].value:,.1f}")
    return Exit.SLOWER if slower else Exit.CLEAN


def _write(into: Path, machine: dict[str, Any], found: Sequence[speed.Measured]) -> None:
    header = {"command": _shared.made_by("into"), "commit": commit(), "date": now(), "machine": machine}
    for name, text in (("speed.jsonl", speed.lines(header, found)), ("speed.md", speed.page(header, found))):
        write_text(into / name, text)
