from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from evidence.mutants import reach, table
from evidence.mutants.catalogue import KERNELS, Mutant, load, load_file
from evidence.mutants.generated import host, host_hunt, proofs, score
from evidence.mutants.generated.draw import draw
from evidence.mutants.hunt import FULL, LONGEST, SMOKE, TO_COMPARE, Catch, fails_anyway, hunt, right_answers
from evidence.mutants.journal import Journal
from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.files import RESULTS, in_workdir, write_text
from harness.ground.side_by_side import each_alone
from harness.records.run_folder import RUNS
from harness.report.tables import csv, write_table
from harness.suite.suite import suite_of

NEEDED = ("torch", "cuda.bindings.nvrtc")
JOURNAL = RUNS / "mutants.jsonl"
TABLE, GENERATED, HOST = RESULTS / "mutants", RESULTS / "generated_mutants.csv", RESULTS / "host_mutants"
COUNT = 600
DEVICES = ("emulator", "cuda")
_SPARE = TO_COMPARE + 300  # seconds in addition to the sets' own, to compile every instantiation and to load modules


@click.command()
@click.option("--name", "words", multiple=True, metavar="WORD", help="only mutants with this word in their name")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="processes at a time")
@click.option("--anew", is_flag=True, help="run mutants again whose result is known")
@click.option("--out", type=_shared.FILE, metavar="STEM", help="write STEM.md and STEM.csv")
@click.option("--generated", is_flag=True, help="a mistake of any kind at any place, as --seed draws them")
@click.option("--host", "of_host", is_flag=True, help="--generated in what compares, selects, decides and exits")
@click.option("--seed", type=int, help="the seed by which --generated draws")
@click.option("--count", type=click.IntRange(1), help=f"how many --generated draws ({COUNT})")
@click.option("--catalogue", type=_shared.FILE, metavar="FILE", help="the mutants of this YAML file, and not ours")
@click.option("--set", "sets", multiple=True, type=click.Choice((SMOKE, FULL)), help="only this set (smoke, then full)")
@click.option(
    "--seconds", type=click.IntRange(1), help=f"for a set and a mutant ({LONGEST}; {host_hunt.LONGEST} with --host)"
)
@click.option("--device", "device_name", type=click.Choice(DEVICES), default=DEVICES[0], show_default=True)
@click.option(
    "--journal", "journal_path", type=_shared.FILE, metavar="FILE", help="go on from this file, and add to it"
)
def command(
    words: Sequence[str],
    jobs: int,
    anew: bool,
    out: Path | None,
    generated: bool,
    of_host: bool,
    seed: int | None,
    count: int | None,
    catalogue: Path | None,
    sets: Sequence[str],
    seconds: int | None,
    device_name: str,
    journal_path: Path | None,
) -> int:
    """Make one line wrong at a time and see which case notices, on the emulator.

    Each result goes to results/runs/mutants.jsonl at once, so that an interrupted run can go on. Without --name, the
    table is written to results/mutants.md. Exits with 1 if a mutant survives, or if too many are caught by the full
    sets alone or get a wrong cause. Of --generated and --catalogue, a few may survive. With --host, tests are run and
    no cases: those of the folders that must notice the mistake; the table is written to results/host_mutants.md.
    """
    if generated and catalogue:
        raise UsageError("--generated draws mutants and --catalogue reads them; give one of the two")
    if generated != (seed is not None) or (count is not None and not generated):
        raise UsageError("--generated, --seed and --count belong together; one reads --generated --seed 1 --count 600")
    if of_host and (not generated or sets or device_name != DEVICES[0]):
        raise UsageError("--host goes with --generated, and without --set and --device: it runs tests, and no cases")
    ours = not generated and catalogue is None
    mutants = (
        draw(int(seed or 0), count or COUNT, host.host_mutants())
        if of_host
        else _mutants(seed, count or COUNT, catalogue)
    )
    mutants = [mutant for mutant in mutants if all(word in _called(mutant, ours) for word in words)]
    if not mutants:
        raise UsageError(f"no mutant has {' and '.join(map(repr, words))} in its name")
    for mutant in mutants:
        mutant.changed()
    if of_host:
        longest = seconds or host_hunt.LONGEST
        journal = Journal(journal_path or JOURNAL, mutants, anew, f"{host.digest()} {longest} s")
        hunt_all = partial(_hunted_of_host, jobs=jobs, longest=longest)
        hunted = _all_hunted(mutants, journal, hunt_all, proofs.host_proofs())
        return _report_host(hunted, out or (None if words else HOST))
    sets, seconds = sets or (SMOKE, FULL), seconds or LONGEST
    search = "" if ours else f"{','.join(sets)} {seconds} s {device_name}"
    journal = Journal(journal_path or JOURNAL, mutants, anew, search)
    run = partial(hunt, sets=sets, longest=seconds, device_name=device_name)
    ask = partial(fails_anyway, device_name=device_name)
    hunt_all = partial(_hunted, jobs=jobs, longest=len(sets) * seconds + _SPARE, run=run, ask=ask, ours=ours)
    hunted = _all_hunted(mutants, journal, hunt_all, {} if ours else proofs.proofs())
    if ours:
        return _report_catalogue(hunted, out or (None if words else TABLE))
    return _report_others(hunted, out, into_results=generated and not words)


def _called(mutant: Mutant, ours: bool) -> str:
    """The text that --name searches: the name, and for a generated mutant its file too."""
    return mutant.name if ours else f"{mutant.file} {mutant.name}"


def _mutants(seed: int | None, count: int, catalogue: Path | None) -> list[Mutant]:
    if seed is not None:
        return draw(seed, count)
    return list(load()) if catalogue is None else load_file(catalogue)


def _all_hunted(
    mutants: Sequence[Mutant],
    journal: Journal,
    hunt_all: Callable[[Sequence[Mutant]], Iterator[Catch]],
    reasons: Mapping[proofs.Key, str],
) -> list[tuple[Mutant, Catch]]:
    """Every mutant and its result: proved equivalent, known from the journal, or hunted now."""
    proved = {mutant.name: reasons[mutant.edit.key] for mutant in mutants if mutant.edit.key in reasons}
    found = {name: Catch(name, discarded=f"proved: {reason}") for name, reason in proved.items()}
    found |= {name: catch for name, catch in journal.known.items() if name not in proved}
    waiting = [mutant for mutant in mutants if mutant.name not in found]
    for number, catch in enumerate(hunt_all(waiting), len(mutants) - len(waiting) + 1):
        journal.add(catch)
        found[catch.mutant] = catch
        click.echo(f"{number:>3}/{len(mutants)}  {_line(catch)}")
    return [(mutant, found[mutant.name]) for mutant in mutants]


def _hunted_of_host(mutants: Sequence[Mutant], jobs: int, longest: int) -> Iterator[Catch]:
    most = 3 * longest + _SPARE  # for the tests, and those that are run without the mistake
    for mutant, catch in each_alone(partial(host_hunt.hunt, longest=longest), mutants, jobs, most):
        yield catch or Catch(mutant.name, reason="its process died, or did not end")


def _hunted(
    mutants: Sequence[Mutant],
    jobs: int,
    longest: float,
    run: Callable[[Mutant], Catch],
    ask: Callable[[str], str],
    ours: bool,
) -> Iterator[Catch]:
    """Hunt each in a process of its own. What all need is loaded before the processes fork."""
    for name in NEEDED:
        importlib.import_module(name)
    for recipe in {recipe for mutant in mutants for recipe in reach.recipes_of(mutant.file)}:
        suite_of(recipe).cases(SMOKE)
    wrong_oracles = [mutant for mutant in mutants if mutant.tree != KERNELS]
    if wrong_oracles and not ours:
        recipes = sorted({recipe for mutant in wrong_oracles for recipe in reach.recipes_of(mutant.file)})
        for _, answers in each_alone(right_answers, [recipes], 1, longest):
            run = partial(run, answers=answers)
    red: dict[str, str] = {}
    for mutant, catch in each_alone(run, mutants, jobs, longest):
        catch = catch or Catch(mutant.name, reason="its process died, or did not end")
        yield _without_red(catch, red, lambda case_id: next(each_alone(ask, [case_id], 1, longest))[1])


def _without_red(catch: Catch, red: dict[str, str], ask: Callable[[str], str | None]) -> Catch:
    """The catch, or none if its case fails without the mutant, too. Smoke cases pass on the emulator, so none is asked.

    red: verdicts of cases that were asked before; ask: `fails_anyway` of a case, None if its process died
    """
    if not catch.by or catch.of_set == SMOKE:
        return catch
    if catch.by not in red:
        verdict = ask(catch.by)
        red[catch.by] = "NO RESULT" if verdict is None else verdict
    if not red[catch.by]:
        return catch
    reason = f"{catch.by} is {red[catch.by]} without a mutant, too; mend it first"
    return Catch(catch.mutant, reason=reason, cases=catch.cases, seconds=catch.seconds, cpu=catch.cpu)


def _report_catalogue(hunted: Sequence[tuple[Mutant, Catch]], stem: Path | None) -> int:
    counts = table.Counts.of(hunted)
    click.echo(str(counts))
    others = score.read(stem.with_name(GENERATED.name)) if stem else None
    beside = [] if others is None else score.section(others)
    _name_all(table.write(hunted, stem, "make mutants", beside) if stem else ())
    return Exit.CLEAN if counts.enough else Exit.BYTES_DIFFER


def _report_others(hunted: Sequence[tuple[Mutant, Catch]], out: Path | None, into_results: bool) -> int:
    rows = score.table_of(hunted, _shared.made_by("jobs", "anew", "out", "journal_path"))
    click.echo(f"{score.Score.of(rows)}.")
    if out:
        _name_all(write_table(out.parent, out.name, rows, score.section(rows)))
    elif into_results:
        page = TABLE.with_suffix(".md")
        catalogue = page.read_text(encoding="utf-8").partition(f"\n{score.HEADING}\n")[0].rstrip()
        write_text(GENERATED, csv(rows))
        write_text(page, "\n\n".join([catalogue, *score.section(rows)]) + "\n")
        _name_all([page, GENERATED])
    return Exit.CLEAN if score.enough(rows) else Exit.BYTES_DIFFER


def _report_host(hunted: Sequence[tuple[Mutant, Catch]], stem: Path | None) -> int:
    rows = score.table_of(hunted, _shared.made_by("jobs", "anew", "out", "journal_path"))
    click.echo(f"{host.sentence(rows)}.")
    _name_all(write_table(stem.parent, stem.name, rows, host.section(rows)) if stem else ())
    return Exit.CLEAN if host.enough(rows) else Exit.BYTES_DIFFER


def _name_all(paths: Sequence[Path]) -> None:
    for path in paths:
        click.echo(in_workdir(path))


def _line(catch: Catch) -> str:
    if catch.discarded:
        return f"{catch.mutant}: discarded, {catch.discarded}, {catch.seconds} s"
    if not catch.by:
        why = f" ({catch.reason})" if catch.reason else ""
        return f"{catch.mutant}: SURVIVES all {catch.cases} cases{why}, {catch.seconds} s"
    differing = f", {catch.wrong_bytes:,} bytes" if catch.wrong_bytes else ""
    return (
        f"{catch.mutant}: {catch.verdict}{differing}, {catch.cause or catch.reason}, by {catch.by}, {catch.seconds} s"
    )
