from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.gate import self_test


@click.command()
@click.option("--into", required=True, type=_shared.NEW_FOLDER, help="a new folder")
@click.option("--times", type=click.IntRange(1), default=20, help="gates of each kind (20)")
@click.option("--percent", "percents", multiple=True, type=click.IntRange(0, 100), help="planted slowdowns (0, 3, 10)")
@click.option("--draw", "drawn", type=click.IntRange(1), help="cases of a gate without a slowdown, drawn (four, fixed)")
@click.option("--seed", type=int, help="of the draw; each gate adds its number (0)")
def command(into: Path, times: int, percents: Sequence[int], drawn: int | None, seed: int | None) -> int:
    """Prove the gate: HEAD against itself must be neither slower nor faster, and a planted slowdown must be found.

    Exits with 1 if a gate was wrong. Needs a GPU.
    """
    percents = percents or (0, 3, 10)
    if drawn and 0 not in percents:
        raise UsageError(
            "--draw is of gates without a slowdown, and --percent asks for others alone; add --percent 0, or no --draw"
        )
    if seed is not None and not drawn:
        raise UsageError("--seed is that of the draw; give --draw, too, or leave it out")
    right = True
    for found in self_test.prove(percents, times, into, drawn or 0, seed or 0):
        what = f"{found.percent} % planted" if found.percent else "against itself"
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(found.counts.items()))
        click.echo(f"{what}: {counts}, in {len(found.verdicts)} gates; {'as it must' if found.right else 'WRONG'}")
        for case, times_found in found.found.items() if found.percent else ():
            click.echo(f"  {case}: SLOWER in {times_found}")
        right &= found.right
    return Exit.CLEAN if right else Exit.BYTES_DIFFER
