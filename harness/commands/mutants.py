from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.files import RESULTS, WORKDIR
from harness.records.run_folder import RUNS
from harness.studies.mutants import reach, table
from harness.studies.mutants.catalogue import Mutant, load
from harness.studies.mutants.hunt import SMOKE, Catch, hunt
from harness.studies.mutants.journal import Journal
from harness.suite.suite import suite_of

NEEDED = ("torch", "cuda.bindings.nvrtc")
JOURNAL = RUNS / "mutants.jsonl"
TABLE = RESULTS / "mutants"


@click.command()
@click.option("--name", "words", multiple=True, metavar="WORD", help="only mutants with this word in their name")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="processes at a time")
@click.option("--anew", is_flag=True, help="run mutants again whose result is known")
@click.option("--out", type=_shared.FILE, metavar="STEM", help="write STEM.md and STEM.csv")
def command(words: Sequence[str], jobs: int, anew: bool, out: Path | None) -> int:
    """Make one line wrong at a time and see which case notices, on the emulator.

    Each result goes to results/runs/mutants.jsonl at once, so that an interrupted run can go on. Without --name, the
    table is written to results/mutants.md. Exits with 1 if a mutant survives, or if too many are caught by the full
    sets alone or get a wrong cause.
    """
    mutants = [mutant for mutant in load() if all(word in mutant.name for word in words)]
    if not mutants:
        raise UsageError(f"no mutant has {' and '.join(map(repr, words))} in its name")
    for mutant in mutants:
        mutant.changed()
    journal = Journal(JOURNAL, mutants, anew)
    waiting = [mutant for mutant in mutants if mutant.name not in journal.known]
    for number, catch in enumerate(_hunted(waiting, jobs), len(mutants) - len(waiting) + 1):
        journal.add(catch)
        click.echo(f"{number:>3}/{len(mutants)}  {_line(catch)}")
    hunted = [(mutant, journal.known[mutant.name]) for mutant in mutants]
    counts = table.Counts.of(hunted)
    click.echo(str(counts))
    stem = out or (None if words else TABLE)
    for path in table.write(hunted, stem, "make mutants") if stem else ():
        click.echo(path.relative_to(WORKDIR) if path.is_relative_to(WORKDIR) else path)
    return Exit.CLEAN if counts.enough else Exit.BYTES_DIFFER


def _hunted(mutants: Sequence[Mutant], jobs: int) -> Iterator[Catch]:
    """Hunt each in a process of its own. What all need is loaded before the processes fork."""
    for name in NEEDED:
        importlib.import_module(name)
    for recipe in {recipe for mutant in mutants for recipe in reach.recipes_of(mutant.file)}:
        suite_of(recipe).cases(SMOKE)
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(hunt, mutants)


def _line(catch: Catch) -> str:
    if not catch.by:
        return f"{catch.mutant}: SURVIVES all {catch.cases} cases, {catch.seconds} s"
    differing = f", {catch.wrong_bytes:,} bytes" if catch.wrong_bytes else ""
    return (
        f"{catch.mutant}: {catch.verdict}{differing}, {catch.cause or catch.reason}, by {catch.by}, {catch.seconds} s"
    )
