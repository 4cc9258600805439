"""The verdict on the times of one case, a candidate beside a reference.

`harness gate --base` times both in random order in one process, and the candidate a second time: the difference of its
two series is noise. SLOWER and FASTER need a rank test that rejects "no change" and medians that differ by more than
EFFECT and by more than FLOORS times that noise, in time and in SM cycles, because the clock may change and the code
not. Rounds at a low clock are dropped.

The stored baseline is of another process. SLOWER and FASTER need the same, by `effect`, in time and in units of the
copy roofline of each run, because a machine whose memory is slower today changes one and not the other; in cycles, too,
if both runs know their clock. A product that takes as long as before at a higher clock is AMBIGUOUS if its cycles are
SLOWER: then the power limit was what its time hid behind. Where machine code and grids are the reference's, only the
noise between two processes is left: the case is SAME, or AMBIGUOUS if its times changed by more than DOUBTED times what
counts, because then something is wrong with the measurement.

SAME needs the whole interval within what counts. A median does not see a kernel that is slow in some of its calls, so
the slowest fifth may begin no more than TAIL times that later, with no more slow rounds than chance or the reference
makes (`statistics.tail`). Anything between is AMBIGUOUS.

During a large product the clock has two speeds, because the power limit throttles it, and the median time of a process
belongs to neither. Cycles are steadier: two runs whose times differed by up to 10 % differed by 1.4 % in cycles at most
(20 cases on an H200, 2026-11-26). So a product, or a pipeline with one, is SAME if its cycles are, else INVALID;
AMBIGUOUS if it has other machine code and takes longer, because a kernel that draws more power lowers its own clock.
What moves bytes is always INVALID then: its time is the memory's, which need not follow that clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from harness.bench import statistics
from harness.bench.statistics import Samples
from harness.records.claims import LARGEST_EFFECT
from harness.verdict import Judgement, Performance, TimeRatio

CHANGED = (Performance.SLOWER, Performance.FASTER)  # verdicts that a second process must confirm
EFFECT = 0.01  # least change of a median that counts in one process
FLOORS = 3.0  # least change in units of the noise between two timings of the candidate
# Effects by which the slowest fifth may begin later; 0.8 % in 415 clean cases (`python -m evidence prove --percent 0`).
TAIL = 2.0
MOST_DROPPED = 0.5  # share of the samples

EFFECT_US = 0.75  # least change that counts, in us: two processes of one binary differ by up to 0.6 (H200, 2026-11-21)
CLOCKS = 0.15  # by which clocks of one GPU may differ: 1,755 and 1,980 MHz at the power limit of an H200
DOUBTED = 2.0  # in least changes that count: beyond it, a change with the same machine code is doubted
TWICE_TELL_A_TAIL = 20  # rounds of each of two processes, of which both seem to have no such tail as seldom
TELLS_A_TAIL = 27  # rounds, of which a tail of 15 % leaves none slow in at most 2 of 100


def samples_of(times: Mapping[str, Any]) -> Samples:
    """The samples of a record's times."""
    return Samples(
        times["samples_us"], times.get("samples_mhz", ()), times["median_us"], times.get("mhz") or 0.0,
        times["roofline_gbps"], times["code"], "tflops" in times,
    )  # fmt: skip


def unthrottled(samples: Sequence[Samples]) -> tuple[list[Samples], int]:
    """Drop the rounds in which any clock was low; also their number. Sample i of each was taken in round i."""
    clocks = [min(clocks) for clocks in zip(*(each.mhz for each in samples), strict=True)]
    kept = statistics.steady(clocks)
    left = [Samples([each.us[i] for i in kept], [each.mhz[i] for i in kept]) for each in samples]
    return left, len(clocks) - len(kept)


def decide(
    candidate: Samples, repeat: Samples | None, reference: Samples, effect: float = EFFECT, case_id: str = ""
) -> Judgement:
    """The verdict on the times of both sides.

    repeat: the candidate a second time, if all three are of the same rounds; None if each side is of its own process
    effect: least relative change that counts
    """
    dropped = 0
    if repeat is not None:
        written = [each.written for each in (candidate, repeat, reference)]
        (candidate, repeat, reference), dropped = unthrottled(written)
    found = _decide(_Evidence(candidate, repeat, reference, effect, dropped))
    return replace(found, case_id=case_id)


@dataclass(frozen=True)
class _Evidence:
    """The arguments of `decide`. dropped: rounds left out because the clock was low"""

    candidate: Samples
    repeat: Samples | None
    reference: Samples
    effect: float
    dropped: int

    @property
    def unchanged(self) -> bool:
        """Whether the machine code is the same, so that only the noise of two processes is left."""
        return self.repeat is None and self.candidate.code == self.reference.code

    @property
    def runs(self) -> tuple[tuple[str, Samples], ...]:
        """Both sides by what reasons call them, if each is of its own process."""
        return ("this run", self.candidate), ("the baseline", self.reference)

    @cached_property
    def time(self) -> TimeRatio:
        return statistics.time_ratio(self.candidate.us, self.reference.us)

    @cached_property
    def floor(self) -> TimeRatio | None:
        return None if self.repeat is None else statistics.time_ratio(self.candidate.us, self.repeat.us)

    @cached_property
    def cycles(self) -> TimeRatio | None:
        """The change in cycles of each round, where both sides share rounds."""
        return None if self.repeat is None else statistics.time_ratio(self.candidate.cycles, self.reference.cycles)

    @property
    def noise(self) -> float:
        return FLOORS * abs(self.floor.ratio - 1) if self.floor else 0.0

    @property
    def least(self) -> float:
        """The least relative change that counts."""
        if self.repeat is not None:
            return self.effect
        return min(max(self.effect, EFFECT_US / self.reference.median), LARGEST_EFFECT)

    @property
    def doubted(self) -> float:
        """The least relative change that says anything of this machine code."""
        return self.least * (DOUBTED if self.unchanged else 1)

    def verdict(self, change: TimeRatio) -> Performance:
        return change.verdict(self.least, self.noise)

    def judged(
        self, verdict: Performance, reason: str, change: TimeRatio | None = None, ask: bool = False
    ) -> Judgement:
        """A judgement with the medians. ask: whether to ask a second process"""
        medians = self.candidate.median, self.reference.median
        return Judgement("", verdict, reason, *medians, change, self.cycles, self.floor, self.dropped, ask)


def _decide(evidence: _Evidence) -> Judgement:
    if evidence.repeat is None:
        if clocks := _two_speeds(evidence):
            return _by_cycles(evidence, clocks)
    else:
        rounds, dropped = len(evidence.candidate.us), evidence.dropped
        if dropped > MOST_DROPPED * (rounds + dropped):
            why = f"the clock could not be read in {dropped} of {rounds + dropped} rounds"
            return Judgement("", Performance.INVALID, why, dropped=dropped)
        if rounds < statistics.FEWEST_SAMPLES:
            why = f"{rounds} rounds; {statistics.FEWEST_SAMPLES} are the fewest that show anything"
            return Judgement("", Performance.AMBIGUOUS, why)
    for whose, samples in reversed(evidence.runs):
        if (count := len(samples.us)) < statistics.FEWEST_SAMPLES:
            why = f"{whose} has {count} samples; {statistics.FEWEST_SAMPLES} are the fewest that show anything"
            return evidence.judged(Performance.AMBIGUOUS, why, ask=samples is evidence.candidate)
    time = evidence.time
    if hidden := _hidden(evidence, time):
        return evidence.judged(Performance.AMBIGUOUS, hidden, time)
    in_time = evidence.verdict(time)
    verdict, reason = (_between_processes if evidence.repeat is None else _in_turns)(evidence, in_time)
    if evidence.repeat is None and verdict in CHANGED and (unknown := _unread_clock(evidence)):
        return evidence.judged(Performance.AMBIGUOUS, f"{unknown}: {reason}", time, ask=True)
    if (verdict if evidence.repeat is None else in_time) not in CHANGED:
        reason += f"; a change of {time.detectable(evidence.doubted, evidence.noise):.1%} or more would have been told"
    if evidence.unchanged:
        return evidence.judged(verdict, reason, time, ask=verdict is Performance.AMBIGUOUS)
    if verdict is Performance.SAME:
        candidate = evidence.candidate if evidence.repeat is None else evidence.candidate + evidence.repeat
        if late := _late_tail(candidate.us, evidence.reference.us, evidence.least):
            # No second process is asked, because it can easily miss what happens only in some calls.
            return evidence.judged(Performance.AMBIGUOUS, f"{late}: {reason}", time)
    if evidence.repeat is not None:
        return evidence.judged(verdict, reason, time)
    # One slow round of a changed kernel may be chance, and few rounds may hold none of a tail: a second process tells.
    rounds = len(evidence.candidate.us)
    if verdict is Performance.SAME and rounds < TWICE_TELL_A_TAIL:
        reason = f"SAME, but {rounds} rounds may hold none of a tail, and {TWICE_TELL_A_TAIL} are needed: {reason}"
        verdict = Performance.AMBIGUOUS
    elif verdict is Performance.SAME:
        slow = statistics.slow_rounds(evidence.candidate.us) - statistics.slow_rounds(evidence.reference.us)
        if slow > 0:
            reason = f"SAME, but {slow} of its rounds more than before are slow: {reason}"
            verdict = Performance.AMBIGUOUS
    return evidence.judged(verdict, reason, time, ask=rounds < TELLS_A_TAIL or verdict is Performance.AMBIGUOUS)


def _in_turns(evidence: _Evidence, in_time: Performance) -> tuple[Performance, str]:
    """Verdict and reason by time and cycles of the same rounds."""
    rounds = len(evidence.candidate.us)
    summary = f"time {evidence.time}, cycles {evidence.cycles}; noise {evidence.floor}; {rounds} rounds"
    if evidence.dropped:
        summary += f", {evidence.dropped} dropped for a low clock"
    if clocks := statistics.describe_clocks(evidence.candidate.mhz):
        summary += f"; {clocks}"
    if (in_cycles := evidence.verdict(evidence.cycles)) is not in_time:
        return Performance.AMBIGUOUS, f"{in_time} by time but {in_cycles} by cycles: {summary}"
    return in_time, summary


def _between_processes(evidence: _Evidence, in_time: Performance) -> tuple[Performance, str]:
    """Verdict and reason by time, the copy roofline, and the clocks of both runs."""
    time, candidate, reference = evidence.time, evidence.candidate, evidence.reference
    relative = time.scaled(candidate.roofline_gbps / reference.roofline_gbps)
    summary = f"time {time}; in units of the copy roofline {relative}"
    if evidence.unchanged:
        proven = any(view.verdict(evidence.doubted) in CHANGED for view in (time, relative))
        reason = f"{'changed, yet ' if proven else ''}machine code and grids are the baseline's: {summary}"
        return Performance.AMBIGUOUS if proven else Performance.SAME, reason
    if (in_copies := evidence.verdict(relative)) is not in_time:
        return Performance.AMBIGUOUS, f"{in_time} by time but {in_copies} by roofline: {summary}"
    if candidate.clock_mhz and reference.clock_mhz:
        in_cycles = evidence.verdict(time.scaled(candidate.clock_mhz / reference.clock_mhz))
        hidden = candidate.product and in_time is Performance.SAME and in_cycles is Performance.SLOWER
        if hidden or in_time in CHANGED and in_cycles is not in_time:
            clocks = f"{reference.clock_mhz:,.0f} MHz then, {candidate.clock_mhz:,.0f} now"
            return Performance.AMBIGUOUS, f"{in_time} by time but {in_cycles} by cycles ({clocks}): {summary}"
    return in_time, summary


def _hidden(evidence: _Evidence, change: TimeRatio) -> str:
    """Why a changed kernel with unchanged times may not be called SAME, or an empty string."""
    least = evidence.least
    if evidence.unchanged or least <= evidence.effect or change.verdict(least) is not Performance.SAME:
        return ""
    return (
        f"nothing can be told of so short a time, because {EFFECT_US} us, by which two processes of one binary differ, "
        f"are {least:.0%} of it: time {change}; a change of {change.detectable(least):.1%} or more would have been told"
    )


def _late_tail(candidate: Sequence[float], reference: Sequence[float], least: float) -> str:
    """A sentence if a case that seems SAME is slower in some of its calls, or an empty string."""
    tail = statistics.slowest_fifth(candidate, reference)
    if tail > TAIL * least:
        return f"SAME, but its slowest fifth begins {tail:+.1%} later"
    slow = statistics.tail(candidate, reference)
    return f"SAME, but for its tail: {slow}" if slow else ""


def _two_speeds(evidence: _Evidence) -> str:
    """A phrase on which run's clock had two speeds; empty if none had."""
    found = ((name, statistics.describe_clocks(samples.mhz)) for name, samples in evidence.runs)
    return next((f"in {name} {clocks}" for name, clocks in found if clocks), "")


def _unread_clock(evidence: _Evidence) -> str:
    """A phrase if a clock that nobody recorded may have made this change, or an empty string.

    A whole process may run at another speed, or its rounds at two.
    """
    unread = [(name, samples) for name, samples in evidence.runs if not any(samples.mhz)]
    if not unread:
        return ""
    ratio = evidence.time.ratio
    if max(ratio, 1 / ratio) < 1 + CLOCKS:
        names = " and ".join(name for name, _ in unread)
        return f"no clock was read in {names}, and clocks of one GPU differ by as much"
    longer, shorter = sorted((evidence.candidate, evidence.reference), key=lambda each: -each.median)
    if np.quantile(longer.us, 0.1) > np.quantile(shorter.us, 0.9):
        return ""  # a change beyond both speeds is one whatever the clock did
    for name, samples in unread:
        if found := statistics.two_clocks(samples.us):
            (few, low), (many, high) = ((len(side), statistics.summarize(side).median) for side in found)
            return f"in {name} {few} rounds take {low:,.2f} us and {many} take {high:,.2f}, and no clock was read"
    return ""


def _by_cycles(evidence: _Evidence, clocks: str) -> Judgement:
    """Judge a case whose clock had two speeds: a product by its cycles, any other is INVALID.

    clocks: which run had them
    """
    sides = evidence.candidate, evidence.reference
    reason = f"{clocks}, so its median is of neither"
    if not evidence.candidate.product:
        reason += ", and it is no product, whose time would follow that clock"
    elif not all(len(side.mhz) and min(side.mhz) > 0 for side in sides):
        reason += ", and one of both has no clocks"
    else:
        cycles = statistics.time_ratio(*(side.cycles for side in sides))
        if cycles.verdict(evidence.doubted) is not Performance.SAME:
            reason += f"; cycles {cycles}"
        else:
            reason = f"{clocks}, so by cycles: {cycles}"
            late = _late_tail(*(side.cycles for side in sides), evidence.least)
            doubt = "" if evidence.unchanged else _hidden(evidence, cycles) or late or _slower_by_time(evidence)
            if doubt:
                return evidence.judged(Performance.AMBIGUOUS, f"{doubt}; {reason}")
            return evidence.judged(Performance.SAME, reason)
    return evidence.judged(Performance.INVALID, reason, ask=True)


def _slower_by_time(evidence: _Evidence) -> str:
    """A phrase if a case takes longer, or an empty string: a kernel that draws more power lowers its own clock."""
    slower = evidence.verdict(evidence.time) is Performance.SLOWER
    return f"{Performance.SLOWER} by time but {Performance.SAME} by cycles: time {evidence.time}" if slower else ""
