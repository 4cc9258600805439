"""Is this run slower than the committed baseline? A verdict with its reason for each case, and one exit code.

What is no measurement of this tree on this machine is INVALID; times that may be compared are judged by `times`. Only
SAME and FASTER exit with 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.bench import statistics
from harness.errors import SEVERITY, Exit
from harness.gate.comparable import Beside, beside, measured_by
from harness.gate.times import judge_times
from harness.records.parts import part_of
from harness.records.records import Record
from harness.records.run_folder import Header, RunFiles, commit, now_here, same_sources
from harness.records.seal import sources_digest
from harness.records.steady import waited
from harness.verdict import Judgement, Performance, Verdict

EFFECT = 0.03  # smallest change of a time that counts
SHORTEST = 0.8  # share of the time between two empty events: even with noise, no eager sample is below it


def judge(
    run: RunFiles, header: Header, baseline: Sequence[Record], effect: float = EFFECT, recipes: Sequence[str] = ()
) -> list[Judgement]:
    """Compare every case of the run and of the baseline. header: the baseline's; recipes: only these, if any"""
    new = _by_id(run.records, recipes)
    stored = _by_id(baseline, recipes)
    known: dict[object, Beside] = {}  # key: commit and date of the run that measured a part of the baseline

    def beside_its_run(record: Record | None) -> Beside:
        if record is None or not run.timed:
            return Beside()
        part = part_of(record["times"])
        if part not in known:
            known[part] = beside(run.header, measured_by(record, header))
        return known[part]

    return [
        _judge(case_id, new.get(case_id), stored.get(case_id), beside_its_run(stored.get(case_id)), effect)
        for case_id in dict.fromkeys([*stored, *new])
    ]


def stale(run: RunFiles, whole: bool = True) -> str:
    """Why a run cannot judge the tree as it is now, or an empty string. whole: whether it must have all cases"""
    now = sources_digest()
    if run.about["sources"] not in (now, now[:16]) or run.header.get("sources", now[:16]) != now[:16]:
        return "is of other sources than this tree; time it again"
    then, here = (run.header | now_here(run.header)).get("commit", "unknown") if run.header else "unknown", commit()
    if "unknown" not in (then, here) and not same_sources(then):
        return f"is of commit {then[:12]}, and this tree is at {here[:12]}; time it again"
    selected = run.about.get("selected")
    if selected is None:
        return "does not say how many cases were selected"
    if whole and len(run.records) != selected:
        return f"holds {len(run.records)} of its {selected} cases; finish it with --resume"
    return ""


def exit_code(records: Sequence[Record], judgements: Sequence[Judgement]) -> Exit:
    """The exit code of the worst verdict; NOISY if nothing was timed. records: what was verified"""
    codes = {Verdict(record["verdict"]).exit_code for record in records}
    codes |= {judgement.verdict.exit_code for judgement in judgements}
    if not judgements:
        codes.add(Exit.NOISY)
    return next(code for code in SEVERITY if code in codes)


def _by_id(records: Sequence[Record], recipes: Sequence[str] = ()) -> dict[str, Record]:
    return {record["case_id"]: record for record in records if not recipes or record["recipe"] in recipes}


def _judge(case_id: str, new: Record | None, stored: Record | None, runs: Beside, effect: float) -> Judgement:
    if new is None:
        return Judgement(case_id, Performance.NOT_MEASURED, "the baseline has it and this run has not")
    if not new.get("times"):
        why = "verified and not timed" if Verdict(new["verdict"]).right else f"{new['verdict']}: {new['reason']}"
        return Judgement(case_id, Performance.NOT_MEASURED, why)
    now = new["times"]
    if stored is None:
        return Judgement(case_id, Performance.NO_BASELINE, "the baseline has no such case", now["median_us"])
    then = stored["times"]
    medians = now["median_us"], then["median_us"]
    if now["samples_us"] == then["samples_us"] or statistics.same_origin(now["samples_us"], then["samples_us"]):
        changed = "" if now["samples_us"] == then["samples_us"] else ", scaled, shifted or in another order"
        why = f"these are the baseline's own times{changed}; time the suites again"
        return Judgement(case_id, Performance.INVALID, why, *medians)
    late = waited(then)
    if why := runs.refused or (late and f"in the baseline {late}"):
        return Judgement(case_id, Performance.INVALID, why, *medians)
    if why := waited(now):
        return Judgement(case_id, Performance.INVALID, f"in this run {why}", *medians, again=True)
    if not case_id.endswith("/eager"):
        return judge_times(case_id, now, then, medians, effect)
    for whose, times, events_us in (("the baseline", then, runs.then_us), ("this run", now, runs.now_us)):
        if min(times["samples_us"]) < SHORTEST * events_us:
            why = f"in {whose} two events with nothing between them took {events_us:.2f} us, longer than a sample"
            return Judgement(case_id, Performance.INVALID, why, *medians)
    if runs.eager_refused:
        return Judgement(case_id, Performance.INVALID, runs.eager_refused, *medians)
    shift = runs.shift_us
    if min(now["samples_us"]) + shift <= 0:
        why = f"a sample is shorter than what its events take more than the baseline's ({-shift:.2f} us)"
        return Judgement(case_id, Performance.INVALID, why, *medians, again=True)
    as_then = {"samples_us": [us + shift for us in now["samples_us"]], "median_us": now["median_us"] + shift}
    return runs.said(judge_times(case_id, now | as_then, then, medians, effect))
