from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.progress import Progress

from harness import text
from harness.commands import _shared
from harness.device.capability import gpu_count
from harness.errors import Exit, UsageError
from harness.files import INCLUDE_DIRS, RECIPE_DIRS
from harness.gate import against_baseline, decision, revision_run, screen, second_process
from harness.gate import baseline as baseline_file
from harness.gate.report import GateResult, from_lines, from_run, write_gate
from harness.records import seal
from harness.records.claims import LARGEST_EFFECT
from harness.records.possible import require_possible, require_possible_here
from harness.records.records import Record
from harness.records.run_folder import (
    RUNS,
    Header,
    RunFiles,
    newest_run,
    read_bench,
    read_bench_or_gate,
    read_run,
    shown,
)
from harness.suite.suite_file import is_recipe, recipe_names
from harness.text import nearest
from harness.verdict import failures_of


@click.command()
@_shared.with_words(click.argument("words", nargs=-1, metavar="[RUN] [RECIPE]..."))
@click.option("--baseline", type=_shared.FILE, metavar="FILE", help="times to compare with")
@_shared.subject
@_shared.recipe_dir
@_shared.include
@click.option("--effect", type=float, help="smallest change that counts, at most 0.5 (0.03; 0.01 with --base)")
@click.option("--save", is_flag=True, help="put the times of this run into the baseline instead of judging them")
@click.option("--base", metavar="REVISION", help="time the kernels against those of this revision, now and here")
@click.option("--case", "ids", multiple=True, metavar="ID", help="with --base: time only this case")
@click.option("--once", is_flag=True, help="believe one process; else a second must find SLOWER and FASTER, too")
@click.option(
    "--all", "unchanged_too", is_flag=True, help="with --base: also time cases whose machine code is the same"
)
def command(
    words: Sequence[str],
    baseline: Path | None,
    subject: str,
    effect: float | None,
    save: bool,
    base: str | None,
    ids: Sequence[str],
    once: bool,
    unchanged_too: bool,
) -> int:
    """Compare the times of a run (the newest, if none is named) with the baseline of its GPU.

    RUN is its folder, and with a RECIPE only the cases of that are judged. With --base, time the kernels here and those
    of another revision in one process and in random turns; RUN is then a new folder for the times.

    What changed is timed again in a second process. For a run with a subject or with recipes of yours, name these here,
    too, because a file never says what to execute.

    The report goes into that folder. Exits with 1 if a byte differs, 2 if a case is slower, 3 if times are
    inconclusive, 5 without a baseline, 64 for a run of other sources or without all of its cases.
    """
    if effect is not None and not 0 < effect <= LARGEST_EFFECT:
        raise UsageError(f"--effect {effect} is no change that could count; give more than 0, at most {LARGEST_EFFECT}")
    run_dir, recipes = _run_and_recipes(words)
    if links := seal.links():
        raise UsageError(links[0])
    if base is not None:
        if baseline or save:
            raise UsageError("--base measures both sides itself; it goes with neither --baseline nor --save")
        if RECIPE_DIRS or INCLUDE_DIRS or subject:
            given = "--recipe-dir" if RECIPE_DIRS else "--include" if INCLUDE_DIRS else "--subject"
            raise UsageError(f"--base times kernels of two revisions of this repository; leave out {given}")
        return _against_revision(base, recipes, ids, effect, unchanged_too, run_dir, once)
    if ids or unchanged_too:
        raise UsageError("--case and --all go with --base")
    of_judging = {" ".join(recipes): recipes, "--effect": effect is not None, "--once": once, "--subject": subject}
    if save and any(of_judging.values()):
        given = ", ".join(option for option, value in of_judging.items() if value)
        raise UsageError(f"--save puts all times of a run into the baseline and judges none; leave out {given}")
    if RECIPE_DIRS and baseline is None:
        raise UsageError(
            "the committed baselines have no times of recipes of yours; name a file of yours with --baseline"
        )
    newest = read_run(run_dir or newest_run(RUNS, timed=True))
    # A baseline may be made of parts, so an interrupted run can be saved; a verdict needs the whole run.
    why = against_baseline.stale(newest, whole=not save)
    if why:
        raise UsageError(f"{newest.path} {why}")
    require_possible(newest.path, newest.records, bool(newest.header), newest.header.get("machine"))
    path = baseline or baseline_file.path_of(newest.header)
    if save:
        return _save(newest, path)
    header, stored = _stored(path)
    stored = baseline_file.known(stored, header, newest)
    there = {record["recipe"] for record in (*newest.records, *stored)}
    for name in recipes:
        if name not in there:
            raise UsageError(f"no case of {shown(newest.path)} or of its baseline is of '{name}'{nearest(name, there)}")
    least = effect or against_baseline.EFFECT
    judgements = against_baseline.judge(newest, header, stored, least, recipes)
    records = newest.records
    asked = second_process.to_ask(judgements)
    if asked and not once:
        seconds = second_process.runs_again(newest, asked, bool(gpu_count()), subject)
        judged = [each for run in seconds for each in against_baseline.judge(run, header, stored, least)]
        judgements = second_process.recurring(judgements, judged, least)
        again_wrong = [wrong for run in seconds for wrong in failures_of(run.records)]
        records = list({record["case_id"]: record for record in (*records, *again_wrong)}.values())
    code = against_baseline.exit_code(records, judgements)
    if why := baseline_file.none_of_this_gpu(path, header, newest.header):
        click.echo(why)
    _tell(newest.path, replace(from_run(newest, header, stored, judgements, subject), records=records), code)
    return code


def _run_and_recipes(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Tell the folder of a run from recipes: it is one already, or is spelled with a /. Raises UsageError."""
    recipes, folders = [], []
    for word in words:
        (recipes if is_recipe(word) else folders).append(word)
        if word and word in folders and "/" not in word and not Path(word).is_dir():
            near = nearest(word, recipe_names())
            raise UsageError(f"'{word}' is neither a recipe nor the folder of a run, which ./{word} would be{near}")
    if len(folders) > 1:
        raise UsageError(f"a gate is of one run, and {' and '.join(folders)} are named")
    return _shared.FOLDER.convert(folders[0], None, None) if folders else None, recipes


def _stored(path: Path) -> tuple[Header, list[Record]]:
    """Header and records of a baseline, empty if there is none."""
    header, stored = read_bench(path) if path.exists() else ({}, [])
    require_possible_here(path, header, stored)
    return header, stored


def _save(run: RunFiles, path: Path) -> int:
    with baseline_file.lock_of(path):
        for written in baseline_file.save(run, path, *_stored(path)):
            click.echo(written)
    for case_id, why in baseline_file.not_to_keep(run).items():
        click.echo(f"left out: {case_id}, because {why}; time it again", err=True)
    return Exit.CLEAN


def _against_revision(
    base: str,
    recipes: Sequence[str],
    ids: Sequence[str],
    effect: float | None,
    unchanged_too: bool,
    folder: Path | None,
    once: bool,
) -> int:
    if recipes and ids:
        raise UsageError(f"--case names the cases, and {recipes[0]} those of a recipe; give one of the two")
    if folder:
        second_process.require_new(folder)
    made_by, chosen = _shared.made_by(), revision_run.cases(recipes, ids)
    bar = Progress(
        console=text.console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        # Processes are forked below it, so no thread may hold a lock, and their prints must not be redirected.
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar as progress:
        task = progress.add_task("cases", total=len(chosen))
        path, done = revision_run.run(
            base, chosen, made_by, effect or decision.EFFECT, unchanged_too, folder,
            lambda comparison: progress.update(task, advance=1, refresh=True),
        )  # fmt: skip
    changed = [found.case.id for found in done if found.judgement.verdict in decision.CHANGED]
    if changed and not once:
        folder = path.parent / second_process.FOLDER
        commit = read_bench_or_gate(path)[0]["base_commit"]  # the base may be a branch that has moved since
        second = second_process.compare_again(commit, effect or decision.EFFECT, unchanged_too, changed, folder)
        done = second_process.recurring_comparisons(done, second)
        revision_run.rewrite(path, done)
    judgements = [comparison.judgement for comparison in done]
    records = [comparison.verified.to_record() for comparison in done if comparison.verified]
    gated = from_lines(*read_bench_or_gate(path), records)
    code = gated.at_best(against_baseline.exit_code(records, judgements))
    _tell(path.parent, gated, code)
    return code


def _tell(folder: Path, gated: GateResult, code: Exit) -> None:
    """Write the report and print its screen; where it lies is on stderr, so that stdout ends with the exit code."""
    page = next(path for path in write_gate(folder, gated, code) if path.suffix == ".html")
    click.echo(f"{shown(page)}, and the same for machines beside it", err=True)
    width = shutil.get_terminal_size((120, 24)).columns
    click.echo(screen.render(gated.records, gated.judgements, code, width))
