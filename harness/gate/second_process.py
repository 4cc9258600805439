"""Time cases again in a second process if a gate found them changed, because part of the noise is per process.

Memory placement affects all rounds of a process alike, so no test on its samples can see it. If the first process could
not decide, because the host was late or its times were too far apart, the second may.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.files import PACKAGE, RECIPE_DIRS, SUITES
from harness.gate.against_baseline import EFFECT, stale
from harness.gate.decision import CHANGED
from harness.gate.revision_bench import Comparison
from harness.gate.revision_run import FILE
from harness.ground.command_lines import Asked, include_options, recipe_dir_options, subject_of
from harness.ground.ending import end_with_parent
from harness.records import journal
from harness.records.possible import require_possible
from harness.records.records import Record
from harness.records.run_folder import RunFiles, read_bench_or_gate, read_run
from harness.verdict import Judgement, Performance, Result, Verdict

FOLDER = "second_process"
APART = 0.01  # by which medians of two processes differ, one standard deviation; the stored ones are of one process


def to_ask(judgements: Sequence[Judgement]) -> list[str]:
    """The ids of the cases to ask a second process about."""
    return [each.case_id for each in judgements if each.verdict in CHANGED or each.ask_again]


def recurring(judgements: Sequence[Judgement], second: Sequence[Judgement], effect: float = EFFECT) -> list[Judgement]:
    """The judgements, SLOWER and FASTER only where a second process found the same.

    second: the second process's judgements, of any cases; effect: least change that counts
    Both share the baseline's process, so a change that both found counts only if it is APART more than `effect` on
    average. If the first could not decide, a second's SAME counts, but its SLOWER or FASTER has not recurred. Several
    processes that disagree decide nothing.
    """
    others: dict[str, Judgement] = {}
    for each in second:
        if each.verdict is Performance.NOT_MEASURED:
            continue
        known = others.get(each.case_id, each)
        if known.verdict is not each.verdict:
            reason = f"{known.verdict} in one process, {each.verdict} in another: {each.reason}"
            known = replace(each, verdict=Performance.AMBIGUOUS, reason=reason)
        others[each.case_id] = known

    def judged(found: Judgement) -> Judgement:
        other = others.get(found.case_id)
        if found.verdict in CHANGED:
            verdict, reason = _confirmed(found, other and other.verdict)
            if verdict in CHANGED and found.time and other.time:
                mean = (found.time.ratio * other.time.ratio) ** 0.5
                if max(mean, 1 / mean) < 1 + effect + APART:
                    verdict = Performance.AMBIGUOUS
                    near = f"{found.verdict} in two processes by {mean - 1:+.1%}, and {effect + APART:.0%} is the least"
                    reason = f"{near} that the baseline's own process does not explain: {reason}"
            return replace(found, verdict=verdict, reason=reason)
        if not found.ask_again or not other:
            return found
        first = f"the first process was {found.verdict}, {found.reason}"
        if other.verdict in CHANGED:
            reason = f"{other.verdict} in a second process alone: {other.reason}; {first}"
            return replace(other, verdict=Performance.AMBIGUOUS, reason=reason)
        return replace(other, reason=f"in a second process: {other.reason}; {first}")

    return [judged(each) for each in judgements]


def recurring_comparisons(done: Sequence[Comparison], second: Mapping[str, Record]) -> list[Comparison]:
    """The comparisons, SLOWER and FASTER only where the second process found the same. second: its lines by case id

    A kernel with wrong bytes in the second process is wrong.
    """

    def recurred(found: Comparison) -> Comparison:
        line = second.get(found.case.id, {})
        if line and line["verified"] not in (None, Verdict.PASS):
            reason = f"in a second process: {line['reason']}"
            result = Result(found.case.id, found.case.recipe, Verdict(line["verified"]), reason)
            return Comparison(found.case, Judgement(found.case.id, Performance.NOT_MEASURED, reason), result)
        first = found.judgement
        verdict, reason = _confirmed(first, Performance(line["verdict"]) if line else None)
        judgement = replace(first, verdict=verdict, reason=reason)
        return replace(found, judgement=judgement, recurs=verdict is first.verdict)

    return [recurred(one) if one.judgement.verdict in CHANGED else one for one in done]


def _confirmed(first: Judgement, second: Performance | None) -> tuple[Performance, str]:
    """Verdict and reason for a case that changed once.

    second: the second process's verdict; None if it did not time it
    """
    if second is first.verdict:
        return second, f"{first.reason}; so it is in a second process"
    other = f"a second found {second}" if second else "no second has timed it"
    return Performance.AMBIGUOUS, f"{first.verdict} in one process, and {other}: {first.reason}"


def runs_again(run: RunFiles, ids: Sequence[str], gpu: bool, subject: str = "") -> list[RunFiles]:
    """The runs of other processes in a run's folder; with a GPU, also a new run of the cases that none has timed.

    subject: as the command line names it; the new run executes that and recipes of the folders that it names, because
    a file does not say what to execute.
    Raises UsageError for a run of another tree, a damaged one, or a copy of the first, and if the command line lacks
    what the run was made with.
    """
    found = [_read(path.parent, run) for path in sorted(run.path.glob(f"{FOLDER}*/{journal.FILE}"))]
    has = {record["case_id"] for each in found for record in each.records}
    left = [case_id for case_id in ids if case_id not in has]
    if left and gpu:
        folder = run.path / (f"{FOLDER}.{len(found) + 1}" if found else FOLDER)
        recipes = sorted({case_id.partition("/")[0] for case_id in left})
        require_named(run, recipes, subject)
        options = [*(["--subject", subject] if subject else []), *include_options(), *recipe_dir_options()]
        _harness("bench", *recipes, "--run-dir", str(folder.absolute()), *options, *_cases(left))
        found += [_read(folder, run)] if (folder / journal.FILE).exists() else []
    return found


def _read(folder: Path, first: RunFiles) -> RunFiles:
    second = read_run(folder)
    why = stale(second, whole=False) or _unfinished(second)
    if not why and second.header.get("date") == first.header.get("date"):
        why = "began in the second of the run above it, so it is a copy; delete it, or time it again"
    if not why and second.about.get("device", {}).get("subject") != first.about.get("device", {}).get("subject"):
        why = "is of another subject than the run above it; delete it, or time it again"
    if why:
        raise UsageError(f"{folder} {why}")
    require_possible(folder, second.records, bool(second.header), second.header.get("machine"))
    return second


def _unfinished(second: RunFiles) -> str:
    """Why an unfinished run cannot be judged yet, or an empty string."""
    selected = second.about["selected"]
    if len(second.records) == selected:
        return ""
    held = f"holds {len(second.records)} of its {selected} cases"
    return f"{held}; delete it, and gate again, or finish it by the command that began it, with --resume"


def require_named(run: RunFiles, recipes: Sequence[str], subject: str) -> None:
    """Raise UsageError if the command line does not name what the run was made with. recipes: those to time again"""
    meant = subject_of(run.about)
    unknown = [name for name in recipes if not (SUITES / f"{name}.yaml").is_file() and name not in RECIPE_DIRS]
    own = Asked.here(subject)
    same = own.same_subject(meant)
    lacking = [
        *([] if same or not meant.subject else ["--subject"]),
        *([] if own.has_includes_of(meant) else ["--include"]),
        *(["--recipe-dir"] if unknown else []),
    ]
    if lacking:
        raise UsageError(
            f"{run.path} was made with {' and '.join(lacking)}, and a file does not say what to execute: name here "
            "what it was made with, so that a second process times cases again, or ask none with --once"
        )
    if not same:
        raise UsageError(f"{run.path} was made without --subject; leave it out")


def require_new(folder: Path) -> None:
    """Raise UsageError if a second process of another gate against a revision has left its lines below this folder."""
    path = folder / FOLDER / FILE
    if path.exists():
        raise UsageError(f"{path} is there already, of another gate; delete it, or name another folder")


def compare_again(base: str, effect: float, unchanged_too: bool, ids: Sequence[str], folder: Path) -> dict[str, Record]:
    """Gate these cases against a revision in a new process, and return its lines; cases it did not reach have none."""
    path = folder / FILE
    options = ["--once", "--base", base, "--effect", str(effect), *(["--all"] if unchanged_too else [])]
    _harness("gate", str(folder.absolute()), *options, *_cases(ids))
    lines = read_bench_or_gate(path)[1] if path.exists() else []
    return {line["case_id"]: line for line in lines if "case_id" in line}


def _cases(ids: Sequence[str]) -> list[str]:
    return [word for case_id in ids for word in ("--case", case_id)]


def _harness(*words: str) -> None:
    """Run a command of this harness without showing its output; errors are shown."""
    path = os.pathsep.join([str(PACKAGE.parent), *(each or str(Path.cwd()) for each in sys.path)])
    run_harness(*words, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})


def run_harness(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m harness` with these words to its end. options: as `subprocess.run` takes them

    It ends with this process, because an orphan would slow down the next timing.
    """
    command = [sys.executable, "-m", "harness", *words]
    ending = partial(end_with_parent, os.getpid())
    return subprocess.run(command, check=False, text=True, preexec_fn=ending, **options)
