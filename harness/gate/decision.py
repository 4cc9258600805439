"""The verdict on samples of head and base, against the noise of the head timed twice.

Head and base are timed in random order on the same buffers, and the head a second time: the difference of its two
series is noise. SLOWER and FASTER need a rank test that rejects "no change" and medians that differ by more than EFFECT
and by more than FLOORS times that noise, in time and in SM cycles, because the clock may change and the code not. SAME
needs the whole interval within EFFECT, and a slowest fifth of both series of the head that begins no more than TAIL
times EFFECT later, and no more slow rounds than chance or the base makes (`statistics.tail`): a median does not see a
kernel that is slow in some of its calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.bench import statistics
from harness.verdict import Change, Performance

CHANGED = (Performance.SLOWER, Performance.FASTER)  # verdicts that a second process must confirm
EFFECT = 0.01  # least change of a median that counts
FLOORS = 3.0  # least change in units of the noise between two timings of the head
# Effects by which the slowest fifth may begin later; 0.8 % in 415 clean cases (`python -m evidence prove --percent 0`).
TAIL = 2.0
MOST_DROPPED = 0.5  # share of the samples


@dataclass(frozen=True)
class Samples:
    """Microseconds of each call, and the SM clock in MHz at that time."""

    us: Sequence[float]
    mhz: Sequence[float]

    def __add__(self, more: Samples) -> Samples:
        return Samples([*self.us, *more.us], [*self.mhz, *more.mhz])

    @property
    def cycles(self) -> list[float]:
        return [us * mhz / 1e3 for us, mhz in zip(self.us, self.mhz, strict=True)]

    @property
    def written(self) -> Samples:
        """The samples rounded as in a file, so that reading it back gives the same decision."""
        return Samples([round(us, 4) for us in self.us], [round(mhz, 1) for mhz in self.mhz])


@dataclass(frozen=True)
class Decision:
    """The verdict on one case, with its evidence.

    head_us, base_us: medians; time, cycles: head over base; floor: head over itself
    dropped: rounds left out because the clock was low
    """

    verdict: Performance
    reason: str
    head_us: float | None = None
    base_us: float | None = None
    time: Change | None = None
    cycles: Change | None = None
    floor: Change | None = None
    dropped: int = 0


def unthrottled(samples: Sequence[Samples]) -> tuple[list[Samples], int]:
    """Drop the rounds in which any clock was low; also their number. Sample i of each was taken in round i."""
    clocks = [min(clocks) for clocks in zip(*(each.mhz for each in samples), strict=True)]
    kept = statistics.steady(clocks)
    left = [Samples([each.us[i] for i in kept], [each.mhz[i] for i in kept]) for each in samples]
    return left, len(clocks) - len(kept)


def decide(head: Samples, again: Samples, base: Samples, effect: float = EFFECT) -> Decision:
    """Decide from samples of the same rounds.

    again: the head a second time; effect: least relative change that counts
    """
    (head, again, base), dropped = unthrottled([each.written for each in (head, again, base)])
    rounds = len(head.us)
    if dropped > MOST_DROPPED * (rounds + dropped):
        return Decision(
            Performance.INVALID,
            f"the clock could not be read in {dropped} of {rounds + dropped} rounds",
            dropped=dropped,
        )
    if rounds < statistics.FEWEST_SAMPLES:
        return Decision(
            Performance.AMBIGUOUS, f"{rounds} rounds; {statistics.FEWEST_SAMPLES} are the fewest that show anything"
        )
    time, cycles = statistics.change(head.us, base.us), statistics.change(head.cycles, base.cycles)
    floor = statistics.change(head.us, again.us)
    noise = FLOORS * abs(floor.ratio - 1)
    in_time, in_cycles = (change.verdict(effect, noise) for change in (time, cycles))
    reason = f"time {time}, cycles {cycles}; noise {floor}; {rounds} rounds"
    if dropped:
        reason += f", {dropped} dropped for a low clock"
    if clocks := statistics.describe_clocks(head.mhz):
        reason += f"; {clocks}"
    if in_time not in CHANGED:
        reason += f"; a change of {time.told(effect, noise):.1%} or more would have been told"
    verdict = in_time
    if in_time is not in_cycles:
        verdict, reason = Performance.AMBIGUOUS, f"{in_time} by time but {in_cycles} by cycles: {reason}"
    tail = statistics.slowest_fifth((head + again).us, base.us)
    if verdict is Performance.SAME and tail > TAIL * effect:
        verdict, reason = Performance.AMBIGUOUS, f"SAME, but its slowest fifth begins {tail:+.1%} later: {reason}"
    elif verdict is Performance.SAME and (slow := statistics.tail((head + again).us, base.us)):
        verdict, reason = Performance.AMBIGUOUS, f"SAME, but for its tail: {slow}: {reason}"
    medians = (statistics.summarize(each.us).median for each in (head, base))
    return Decision(verdict, reason, *medians, time, cycles, floor, dropped)
