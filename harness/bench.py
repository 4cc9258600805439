"""What is timed, and how. Nothing here knows pytest; `harness.runner.bench_plugin` brings the recorder.

A case that passed is prepared anew, its outputs are poisoned, and then the launches that verification ran, or graphs of
them on copies of all memory in turn, are timed round by round behind a flush of the L2, with a round of the baseline
before or after each. Afterwards outputs are compared once more: a time is kept only if what was timed also wrote the
right bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness import stats
from harness.baseline import against_library, baseline_id, baseline_of, product, product_bytes, tflops
from harness.case import Case
from harness.clock import Clock, pilot, sample
from harness.device.device import Device, Outcome
from harness.errors import CompileError, LaunchError, NotCapable
from harness.expectation import NUMPY_LARGEST_TIMED, Expectation, expect
from harness.roofline import bytes_moved
from harness.verdict import Result, Verdict
from harness.verify import reproduce, verify

WARM_UP = 3  # rounds that are thrown away
PILOT = 10  # rounds that tell how many are needed
FEWEST, MOST = 20, 50  # rounds that are kept
PRECISION = 0.005  # wanted standard error of the median, relative
LONGEST = 2.0  # seconds of wall time for the kept rounds, unless FEWEST take longer

METHOD = (
    f"{WARM_UP} + {PILOT} rounds of warm-up; then rounds until the standard error of the median is {PRECISION:.1%}, "
    f"{FEWEST} to {MOST} of them, {LONGEST:g} s at most, in turns with the baseline"
)

POISON = 0x5A  # of outputs before they are timed

# Runs a target for so many rounds, each after `setup`, and returns the seconds of each.
Recorder = Callable[[Callable[[], None], Callable[[], None], int], list[float]]


@dataclass(frozen=True)
class Timing:
    """Times of one case.

    seconds: of a call, one a round; exposed: rounds in which the GPU waited for the host; moved: bytes of a call
    baseline: seconds of the baseline in the same rounds; mhz: of the multiprocessors, in the same rounds
    dropped: rounds thrown away because that clock was low; words: how it was timed
    launches: of a call, 0 if nobody counted them
    code: digest of machine code, grids and libraries, the same for two runs whose GPUs did the same
    """

    seconds: list[float]
    exposed: int
    moved: int
    code: str
    baseline: list[float]
    mhz: list[float]
    dropped: int
    launches: int = 0
    words: str = ""


@dataclass(frozen=True)
class Baseline:
    """What a case is compared with, ready to run.

    enqueue: None if it cannot be, because of `why_not`; calls: that a round of it holds; moved: bytes of a call
    """

    enqueue: Callable[[], None] | None = None
    calls: int = 1
    moved: int = 0
    why_not: str = ""


class WrongBytesError(Exception):
    """The timed launches did not write what verification had found them to write."""

    def __init__(self, verdict: Verdict, reason: str):
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason


class Bench:
    """Times the cases of one process on one GPU, and keeps what they share.

    roofline_gbps: rate of a device copy, 100 % for every case
    """

    def __init__(self, device: Device, clock: Clock, roofline_gbps: float):
        self.device = device
        self.clock = clock
        self.roofline_gbps = roofline_gbps
        self._baselines: dict[str, Baseline] = {}  # `baseline_id` → the baselines of one shape

    def held_against(self, case: Case) -> str:
        """The id of what the case's time is compared with."""
        return baseline_id(case)

    def time(self, case: Case, verified: Result, record: Recorder) -> Result:
        """The verified result with times; without, and with another verdict, if the timed launches did wrong."""
        itself = case.id == self.held_against(case)
        baseline = Baseline() if itself else self._baseline(case)
        try:
            timing = self._measure(case, baseline, record)
        except WrongBytesError as wrong:
            return spoiled(verified, wrong.verdict, wrong.reason)
        except LaunchError as error:
            return spoiled(verified, Verdict.LAUNCH_ERROR, f"while timing: {error}")
        if itself:
            baseline, timing = replace(baseline, moved=timing.moved), replace(timing, baseline=timing.seconds)
        return replace(verified, times=self._times(case, timing, baseline))

    def _measure(self, case: Case, baseline: Baseline, record: Recorder) -> Timing:
        expected, timed = self._prepare(case)
        with self.clock.stream:
            timed.poison(POISON)
            timing = self._rounds(timed, baseline, record)
        self._judge(timed.outcomes(POISON), expected)
        steps = timed.program.steps
        return replace(
            timing,
            moved=bytes_moved(steps, expected.inputs, expected.fields),
            launches=len(steps),
            words=timed.words(1e6 * stats.summarize(timing.seconds).median),
        )

    def _rounds(
        self, timed: Any, baseline: Baseline, record: Recorder, arm: Callable[[], None] | None = None
    ) -> Timing:
        """What is timed, on the current stream, in turns with the baseline. arm: called before each flush"""
        theirs: list[float] = []

        def before_round() -> None:
            if baseline.enqueue:
                theirs.extend(sample(self.clock, baseline.enqueue, 1, baseline.calls))
                self.clock.exposed.pop()  # which tells of the case's own rounds
            if arm:
                arm()
            self.clock.calls = timed.calls
            self.clock.flush()

        first, host_seconds = pilot(self.clock, timed.enqueue, WARM_UP, PILOT, timed.calls)
        wanted = min(stats.rounds_needed(first, PRECISION), MOST, int(LONGEST / host_seconds))
        self.clock.restart()
        seconds = record(timed.enqueue, before_round, max(FEWEST, wanted))
        # With a baseline, every other reading is of its rounds.
        mhz = self.clock.mhz()[1::2] if baseline.enqueue else self.clock.mhz()
        kept = stats.steady(mhz)
        exposed = self.clock.exposed[-len(seconds) :]
        theirs = theirs[-len(seconds) :]
        return Timing(
            [seconds[i] for i in kept],
            sum(exposed[i] for i in kept),
            baseline.moved,
            digest(timed.program),
            [theirs[i] for i in kept] if theirs else [],
            [mhz[i] for i in kept],
            len(seconds) - len(kept),
        )

    def _prepare(self, case: Case) -> tuple[Expectation, Any]:
        expected = expect(case, "cuda", NUMPY_LARGEST_TIMED)
        return expected, self.device.timed(case, expected.inputs, expected.fields, self.clock)

    def _judge(self, outcomes: Sequence[tuple[str, Outcome]], expected: Expectation) -> None:
        for which, outcome in outcomes:
            if outcome.trespass:
                raise WrongBytesError(Verdict.OUT_OF_BOUNDS, f"after timing, {which}: {outcome.trespass}")
            wrong = [
                name
                for name in expected.fields
                if not self.device.accepts(outcome.outputs[name], expected.values[name])
            ]
            if wrong:
                raise WrongBytesError(
                    Verdict.NONDETERMINISTIC, f"after timing, bytes differ in {', '.join(wrong)} of {which}"
                )

    def _baseline(self, case: Case) -> Baseline:
        """Of a case: verified and warmed up once a shape and mode; what belongs to another shape is let go."""
        name = baseline_id(case)
        if name not in self._baselines:
            kept = [baseline_id(replace(case, mode=mode)) for mode in ("eager", "graph")]
            self._baselines = {key: value for key, value in self._baselines.items() if key in kept}
            self._baselines[name] = self._product(case) if against_library(case) else self.ready(baseline_of(case))
        return self._baselines[name]

    def _product(self, case: Case) -> Baseline:
        try:
            enqueue, calls = product(case, self.clock, int(self.device.identity()["l2_bytes"]))
            with self.clock.stream:
                pilot(self.clock, enqueue, WARM_UP, PILOT, calls)
        except LaunchError as error:
            return Baseline(why_not=str(error))
        return Baseline(enqueue, calls, product_bytes(case))

    def ready(self, case: Case) -> Baseline:
        """A case as what others are held against: verified, and warmed up."""
        verified = verify(case, self.device, NUMPY_LARGEST_TIMED)
        if verified.verdict is not Verdict.PASS:
            return Baseline(why_not=f"{verified.verdict} {verified.reason}")
        try:
            expected, timed = self._prepare(case)
            with self.clock.stream:
                timed.poison(POISON)
                pilot(self.clock, timed.enqueue, WARM_UP, PILOT, timed.calls)
            self._judge(timed.outcomes(POISON), expected)
        except (WrongBytesError, LaunchError, CompileError, NotCapable) as error:
            return Baseline(why_not=str(error))
        moved = bytes_moved(timed.program.steps, expected.inputs, expected.fields)
        return Baseline(timed.enqueue, timed.calls, moved)

    def _times(self, case: Case, timing: Timing, baseline: Baseline) -> dict[str, Any]:
        found = stats.summarize([1e6 * value for value in timing.seconds])
        rounds = len(timing.seconds)
        gbps = timing.moved / found.median / 1e3
        baseline_us = stats.summarize(timing.baseline).median * 1e6 if timing.baseline else None
        words = [case.mode, timing.words, f"median of {rounds}"]
        if timing.dropped:
            words.append(f"{timing.dropped} more dropped for a clock below {stats.THROTTLED:.0%} of the best")
        if timing.exposed:
            words.append(f"the GPU waited for the host in {timing.exposed} of {rounds} rounds")
        if baseline.why_not:
            words.append(f"no ratio, because the baseline has no time: {baseline.why_not}")
        return {
            "median_us": round(found.median, 3),
            "q1_us": round(found.q1, 3),
            "q3_us": round(found.q3, 3),
            "min_us": round(found.smallest, 3),
            "rounds": rounds,
            "relative_error": round(stats.relative_error(timing.seconds), 6),
            "exposed": timing.exposed,
            "samples_us": [round(1e6 * value, 3) for value in timing.seconds],
            "mhz": round(stats.summarize(timing.mhz).median, 1),
            "dropped": timing.dropped,
            "launches": timing.launches,
            "bytes": timing.moved,
            "gbps": round(gbps, 1),
            "roofline_gbps": round(self.roofline_gbps, 1),
            "roofline_percent": round(100 * gbps / self.roofline_gbps, 2),
            "baseline": self.held_against(case),
            "baseline_us": baseline_us and round(baseline_us, 3),
            "baseline_percent": baseline_us and round(baseline.moved / baseline_us / 10 / self.roofline_gbps, 2),
            "baseline_ratio": baseline_us and round(baseline_us / found.median, 4),
            "code": timing.code,
            "measured": "; ".join(words),
        } | ({"tflops": round(tflops(case, found.median), 1)} if case.n else {})


def digest(program: Any) -> str:
    """Of a prepared case: the same for two programs whose GPUs do the same."""
    parts = [(kernel.code_digest, grid) for kernel, grid in zip(program.kernels, program.grids, strict=True)]
    parts += program.libraries
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def spoiled(verified: Result, verdict: Verdict, reason: str) -> Result:
    again = f"reproduce: {reproduce(verified, 'bench')}"
    return replace(
        verified, verdict=verdict, reason=reason, story=f"{verdict}  {verified.case_id}\n  {reason}\n  {again}"
    )
