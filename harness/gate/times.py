"""Judge the times of one case by stored ones, which are of another process.

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
is wrong with the measurement. If its clock had two speeds, its cycles may change by as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.bench import statistics
from harness.gate import decision
from harness.records.claims import LARGEST_EFFECT
from harness.verdict import Change, Judgement, Performance

EFFECT_US = 0.75  # least change that counts, in us: two processes of one binary differ by up to 0.6 (H200, 2026-11-21)
CLOCKS = 0.15  # by which clocks of one GPU may differ: 1,755 and 1,980 MHz at the power limit of an H200
DOUBTED = 2.0  # in least changes that count: beyond it, a change with the same machine code is doubted
TWICE_TELL_A_TAIL = 20  # rounds of each of two processes, of which both seem to have no such tail as seldom
TELLS_A_TAIL = 27  # rounds, of which a tail of 15 % leaves none slow in at most 2 of 100


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
    if verdict in decision.CHANGED and (unknown := _no_clock(change, now, then)):
        return Judgement(case_id, Performance.AMBIGUOUS, f"{unknown}: {reason}", *medians, change, again=True)
    if verdict in (Performance.SAME, Performance.AMBIGUOUS):
        least = change.told(_least_change(then, effect) * (DOUBTED if now["code"] == then["code"] else 1))
        reason += f"; a change of {least:.1%} or more would have been told"
    late = _late_tail(now["samples_us"], then["samples_us"], _least_change(then, effect))
    if late and verdict is Performance.SAME and now["code"] != then["code"]:
        # No second process is asked, because it can easily miss what happens only in some calls.
        return Judgement(case_id, Performance.AMBIGUOUS, f"{late}: {reason}", *medians, change)
    # One slow round of a changed kernel may be chance, and few rounds may hold none of a tail: a second process tells.
    few = now["code"] != then["code"] and len(now["samples_us"]) < TELLS_A_TAIL
    if few and verdict is Performance.SAME and (count := len(now["samples_us"])) < TWICE_TELL_A_TAIL:
        reason = f"SAME, but {count} rounds may hold none of a tail, and {TWICE_TELL_A_TAIL} are needed: {reason}"
        return Judgement(case_id, Performance.AMBIGUOUS, reason, *medians, change, again=True)
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


def _no_clock(change: Change, now: Mapping, then: Mapping) -> str:
    """A phrase if a clock that nobody recorded may have made this change, or an empty string.

    A whole process may run at another speed, or its rounds at two.
    """
    unread = [
        name for name, times in (("this run", now), ("the baseline", then)) if not any(times.get("samples_mhz", ()))
    ]
    if not unread:
        return ""
    if max(change.ratio, 1 / change.ratio) < 1 + CLOCKS:
        return f"no clock was read in {' and '.join(unread)}, and clocks of one GPU differ by as much"
    both = {True: now["samples_us"], False: then["samples_us"]}
    longer = now["median_us"] > then["median_us"]
    if np.quantile(both[longer], 0.1) > np.quantile(both[not longer], 0.9):
        return ""  # a change beyond both speeds is one whatever the clock did
    for name, times in (("this run", now), ("the baseline", then)):
        if name in unread and (found := statistics.two_clocks(times["samples_us"])):
            (few, low), (many, high) = ((len(side), statistics.summarize(side).median) for side in found)
            return f"in {name} {few} rounds take {low:,.2f} us and {many} take {high:,.2f}, and no clock was read"
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
