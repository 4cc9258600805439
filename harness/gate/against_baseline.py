"""Is this run slower than the committed baseline? A verdict with its reason for each case, and one exit code.

A verdict needs agreement of two units: the time itself, and the time relative to the copy roofline of its own run. A
machine whose memory is slower today changes one and not the other, which is AMBIGUOUS. In each unit SLOWER and FASTER
need a rank test that rejects "no change" and medians at least `effect` apart; SAME needs the interval of the ratio
within `effect`; anything between is AMBIGUOUS. SLOWER and FASTER need it in cycles, too, if both runs know their clock,
and a product that takes as long as before at a higher clock is AMBIGUOUS if its cycles are SLOWER: then the power limit
was what its time hid behind. Other machine code is not SAME if its slowest fifth begins later by more than twice what
counts.

During a large product the clock has two speeds, because the power limit throttles it, and the median time belongs to
neither. Cycles are steadier: two runs whose times differed by up to 10 % differed by 1.4 % in cycles at most (20 cases
on an H200, 2026-11-26). So a product, or a pipeline with one, is SAME if its cycles are, else INVALID; AMBIGUOUS if
it has other machine code and takes longer, because a kernel that draws more power lowers its own clock. What moves
bytes is always INVALID then: its time is the memory's, which need not follow that clock.

Where machine code and grids are the baseline's, the kernel is unchanged, and only the noise between two processes is
left: the case is SAME, or AMBIGUOUS if its times changed by more than DOUBTED times what counts, because then something
is wrong with the measurement. If its clock had two speeds, its cycles may change by as much. Only SAME and FASTER exit
with 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.bench import statistics
from harness.errors import SEVERITY, Exit
from harness.gate import decision
from harness.gate.comparable import Beside, beside, measured_by
from harness.records.claims import LARGEST_EFFECT
from harness.records.parts import part_of
from harness.records.records import Record
from harness.records.run_folder import Header, RunFiles, commit, now_here, same_sources
from harness.records.seal import sources_digest
from harness.records.steady import waited
from harness.verdict import Change, Judgement, Performance, Verdict

EFFECT = 0.03  # smallest change of a time that counts
EFFECT_US = 0.75  # and in us: two processes of one binary differ by up to 0.6 (H200, 2026-11-21)
DOUBTED = 2.0  # in least changes that count: beyond it, a change with the same machine code is doubted
TELLS_A_TAIL = 27  # rounds, of which a tail of 15 % leaves none slow in at most 2 of 100
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


def judge_times(case_id: str, now: Mapping, then: Mapping, medians: tuple[float, float], effect: float) -> Judgement:
    """Judge times that may be compared. medians: both runs', as measured"""
    if clocks := _two_clocks(now, then):
        return _judge_cycles(case_id, clocks, now, then, medians, effect)
    for whose, times in (("the baseline", then), ("this run", now)):
        if (count := len(times["samples_us"])) < statistics.FEWEST_SAMPLES:
            why = f"{whose} has {count} samples; {statistics.FEWEST_SAMPLES} are the fewest that show anything"
            return Judgement(case_id, Performance.AMBIGUOUS, why, *medians, again=times is now)
    change = statistics.change(now["samples_us"], then["samples_us"])
    if hidden := _hidden(change, now, then, effect):
        return Judgement(case_id, Performance.AMBIGUOUS, hidden, *medians, change)
    verdict, reason = _compare(change, now, then, effect)
    if verdict in decision.CHANGED and (speeds := _two_speeds(now, then)):
        return Judgement(case_id, Performance.AMBIGUOUS, f"{speeds}: {reason}", *medians, change, again=True)
    if verdict in (Performance.SAME, Performance.AMBIGUOUS):
        least = change.told(_least_change(then, effect) * (DOUBTED if now["code"] == then["code"] else 1))
        reason += f"; a change of {least:.1%} or more would have been told"
    late = _late_tail(now["samples_us"], then["samples_us"], _least_change(then, effect))
    if late and verdict is Performance.SAME and now["code"] != then["code"]:
        # No second process is asked, because it can easily miss what happens only in some calls.
        return Judgement(case_id, Performance.AMBIGUOUS, f"{late}: {reason}", *medians, change)
    # One slow round of a changed kernel may be chance, and few rounds may hold none of a tail: a second process tells.
    few = now["code"] != then["code"] and len(now["samples_us"]) < TELLS_A_TAIL
    if verdict is Performance.SAME and now["code"] != then["code"]:
        slow = statistics.slow_rounds(now["samples_us"]) - statistics.slow_rounds(then["samples_us"])
        if slow > 0:
            reason = f"SAME, but {slow} of its rounds more than before are slow: {reason}"
            return Judgement(case_id, Performance.AMBIGUOUS, reason, *medians, change, again=True)
    return Judgement(case_id, verdict, reason, *medians, change, again=few or verdict is Performance.AMBIGUOUS)


def _hidden(change: Change, now: Mapping, then: Mapping, effect: float) -> str:
    """Why a changed kernel with unchanged times may not be called SAME, or an empty string."""
    least = _least_change(then, effect)
    if now["code"] == then["code"] or least <= effect or change.verdict(least) is not Performance.SAME:
        return ""
    why = f"{EFFECT_US} us, by which two processes of one binary differ, are {least:.0%} of it"
    told = f"a change of {change.told(least):.1%} or more would have been told"
    return f"nothing can be told of so short a time, because {why}: time {change}; {told}"


def _compare(change: Change, now: Mapping, then: Mapping, effect: float) -> tuple[Performance, str]:
    relative = change.scaled(now["roofline_gbps"] / then["roofline_gbps"])
    least = _least_change(then, effect)
    in_time, in_copies = (view.verdict(least) for view in (change, relative))
    summary = f"time {change}; in units of the copy roofline {relative}"
    if now["code"] == then["code"]:
        far = (view.verdict(DOUBTED * least) for view in (change, relative))
        proven = {*far} & {Performance.SLOWER, Performance.FASTER}
        but = "changed, yet " if proven else ""
        verdict = Performance.AMBIGUOUS if proven else Performance.SAME
        return verdict, f"{but}machine code and grids are the baseline's: {summary}"
    if in_time is not in_copies:
        return Performance.AMBIGUOUS, f"{in_time} by time but {in_copies} by roofline: {summary}"
    if now.get("mhz") and then.get("mhz"):
        in_cycles = change.scaled(now["mhz"] / then["mhz"]).verdict(least)
        changed = in_time in (Performance.SLOWER, Performance.FASTER)
        hidden = in_time is Performance.SAME and in_cycles is Performance.SLOWER and "tflops" in now
        if hidden or changed and in_cycles is not in_time:
            clocks = f"{then['mhz']:,.0f} MHz then, {now['mhz']:,.0f} now"
            return Performance.AMBIGUOUS, f"{in_time} by time but {in_cycles} by cycles ({clocks}): {summary}"
    return in_time, summary


def _late_tail(now: Sequence[float], then: Sequence[float], least: float) -> str:
    """A sentence if a case that seems SAME is slower in some of its calls, or an empty string."""
    tail = statistics.slowest_fifth(now, then)
    if tail > decision.TAIL * least:
        return f"SAME, but its slowest fifth begins {tail:+.1%} later"
    slow = statistics.tail(now, then)
    return f"SAME, but for its tail: {slow}" if slow else ""


def _two_clocks(now: Mapping, then: Mapping) -> str:
    """A phrase on which run's clock had two speeds; empty if none had."""
    for name, times in (("this run", now), ("the baseline", then)):
        if clocks := statistics.describe_clocks(times.get("samples_mhz", ())):
            return f"in {name} {clocks}"
    return ""


def _two_speeds(now: Mapping, then: Mapping) -> str:
    """A phrase if times have two speeds that a clock nobody recorded may have made, or an empty string.

    A change beyond both speeds is one whatever the clock did.
    """
    both = {True: now["samples_us"], False: then["samples_us"]}
    longer = now["median_us"] > then["median_us"]
    if np.quantile(both[longer], 0.1) > np.quantile(both[not longer], 0.9):
        return ""
    for name, times in (("this run", now), ("the baseline", then)):
        if not times.get("samples_mhz") and (found := statistics.two_clocks(times["samples_us"])):
            (few, low), (many, high) = ((len(side), statistics.summarize(side).median) for side in found)
            return f"in {name} {few} rounds take {low:,.2f} us and {many} take {high:,.2f}, and no clock was recorded"
    return ""


def _judge_cycles(
    case_id: str, clocks: str, now: Mapping, then: Mapping, medians: tuple[float, float], effect: float
) -> Judgement:
    """Judge a case whose clock had two speeds: a product by its cycles, any other is INVALID.

    clocks: which run had them
    """
    verdict, reason = Performance.INVALID, f"{clocks}, so its median is of neither"
    if "tflops" not in now:
        reason += ", and it is no product, whose time would follow that clock"
    elif not all(times.get("samples_mhz") and min(times["samples_mhz"]) > 0 for times in (now, then)):
        reason += ", and one of both has no clocks"
    else:
        change, unchanged = statistics.change(_cycles(now), _cycles(then)), now["code"] == then["code"]
        least = _least_change(then, effect) * (DOUBTED if unchanged else 1)
        if change.verdict(least) is Performance.SAME:
            verdict, reason = Performance.SAME, f"{clocks}, so by cycles: {change}"
            doubt = (
                _hidden(change, now, then, effect)
                or _late_tail(_cycles(now), _cycles(then), least)
                or _slower_by_time(now, then, effect)
            )
            if doubt and not unchanged:
                verdict, reason = Performance.AMBIGUOUS, f"{doubt}; {clocks}, so by cycles: {change}"
        else:
            reason += f"; cycles {change}"
    again = verdict is Performance.INVALID
    return Judgement(case_id, verdict, reason, *medians, again=again)


def _slower_by_time(now: Mapping, then: Mapping, effect: float) -> str:
    """A phrase if a case takes longer, or an empty string: a kernel that draws more power lowers its own clock."""
    change = statistics.change(now["samples_us"], then["samples_us"])
    slower = change.verdict(_least_change(then, effect)) is Performance.SLOWER
    return f"{Performance.SLOWER} by time but {Performance.SAME} by cycles: time {change}" if slower else ""


def _cycles(times: Mapping) -> list[float]:
    return [us * mhz / 1e3 for us, mhz in zip(times["samples_us"], times["samples_mhz"], strict=True)]


def _least_change(then: Mapping, effect: float) -> float:
    """The least relative change of a case that counts."""
    return min(max(effect, EFFECT_US / then["median_us"]), LARGEST_EFFECT)
