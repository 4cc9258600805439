from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from evidence.gate import power, self_test
from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.records.run_folder import shown
from harness.report.tables import markdown, write_table


@click.command()
@click.option("--into", required=True, type=_shared.NEW_FOLDER, help="a new folder")
@click.option("--times", type=click.IntRange(1), default=20, help="gates of each kind (20)")
@click.option("--percent", "percents", multiple=True, type=click.IntRange(0, 100), help="planted slowdowns (0, 3, 10)")
@click.option("--draw", "drawn", type=click.IntRange(1), help="cases of a gate without a slowdown, drawn (four, fixed)")
@click.option("--seed", type=int, help="of the draw; each gate adds its number (0)")
@click.option("--simulate", type=click.IntRange(1), metavar="N", help="N made-up gates of each kind; needs no GPU")
def command(
    into: Path, times: int, percents: Sequence[int], drawn: int | None, seed: int | None, simulate: int | None
) -> int:
    """Prove the gate: HEAD against itself must be neither slower nor faster, and a planted slowdown must be found.

    Exits with 1 if a gate was wrong. Needs a GPU, but with --simulate: that slows rounds of committed samples, and
    writes power.md and power.csv, how many of N gates find how large a change of how long a case.
    """
    if simulate:
        if percents or drawn or seed is not None:
            raise UsageError(
                "--simulate slows committed samples by fixed steps; leave out --percent, --draw and --seed"
            )
        return _simulate(into, simulate)
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


def _simulate(into: Path, gates: int) -> int:
    table, alarms = power.power(gates), power.clean_gates(gates)
    found = f"Of {gates} clean gates of {power.CASES} cases against the stored baseline, {alarms} have a SLOWER."
    title = ["# What the gates find, simulated", f"`{_shared.made_by('into')}`", _SIMULATED, found]
    for path in write_table(into, "power", table, [*title, markdown(table)]):
        click.echo(shown(path))
    click.echo(found)
    return Exit.CLEAN


_SIMULATED = (
    "How small a slowdown do the gates find? A row is one kind of gate, one time of a kernel and one slowdown; "
    "its four numbers say how many gates of a changed kernel ended with each verdict, after the second process if "
    "one was asked. Only SAME and FASTER are green.\n\n"
    "No kernel was run for it. A gate's samples are drawn from measured ones of an H200 and then made longer: by "
    "1 to 5 % in every round, or to 1.3 times as long in 5 or 15 % of the rounds, which is a tail that no median "
    "shows. They come from [the clean gate](clean/gate.html) and the stored baseline, for each row from the five "
    "cases whose times are nearest.\n\n"
    "`harness gate --base` (another revision) times both kernels in turns in one process, where a change counts "
    "from 1 % on. The stored baseline was timed by a process of its own, and the medians of two processes differ "
    "by 1 % (standard deviation) though the kernel is the same, so each is drawn with such an offset. Timing "
    "again does not remove the baseline's own, so SLOWER is said from 4 % on, and most slowdowns of 3 % are "
    "AMBIGUOUS. A change must be 0.75 us, too, which is 15 % of 5 us: there every changed kernel is AMBIGUOUS. "
    "The reason of each verdict that is open says which change would have been told."
)
