from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import click

from evidence import fuzz
from evidence.fuzz import driver
from harness.commands import _shared
from harness.errors import Exit
from harness.files import write_text
from harness.records.run_folder import new_folder, shown

KINDS = sorted({module.name for module in pkgutil.iter_modules(fuzz.__path__)} - {"driver", "ptx_corpus"})


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--seed", default=0, show_default=True, help="the seed of all trials")
@click.option("--from", "start", type=click.IntRange(0), default=0, show_default=True, help="number of the first trial")
@click.option("--count", type=click.IntRange(1), default=1000, show_default=True, help="how many trials")
@_shared.out("where the first offender is written (results/runs/<UTC>)")
def command(kind: str, seed: int, start: int, count: int, out: Path | None) -> int:
    """Hand the harness inputs that are changed at random, up to the first that it neither takes nor refuses.

    A trial may not end in a traceback, take longer than a minute or gigabytes, or be believed where it must not be.
    What a trial does depends on kind, seed and number alone. Exits with 1 at an offence.
    """
    chosen = importlib.import_module(f"evidence.fuzz.{kind}")
    getattr(chosen, "prepare", lambda: None)()
    offence = driver.run(kind, seed, start, count, chosen.trial, click.echo)
    if not offence:
        click.echo(f"{count:,} trials, {kind} of seed {seed} from {start}: no offence")
        return Exit.CLEAN
    path = (out or new_folder()) / f"{kind}_{seed}_{offence.number}.txt"
    write_text(path, f"{offence.again}\n\n{offence.text}\n")
    click.echo(f"trial {offence.number}: {offence.text.splitlines()[0]}")
    click.echo(f"{shown(path)} has it all; again: {offence.again}")
    return Exit.BYTES_DIFFER
