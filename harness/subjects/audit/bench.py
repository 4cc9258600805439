"""Times of a subject, in turns with our kernel: every round on new data, its bytes compared, no reported time believed.

Before each round every copy of the case's memory gets data and poison of its own; after it the outputs must equal the
subject's own earlier outputs for the same set, permuted as the data were. The oracles judge those earlier outputs, and
some rounds as well. `FreshData` explains how new the data are, `WallClock` how the reported time is bounded. A subject
that declares random bits of its own is judged by one round of each kind.
"""

from __future__ import annotations

import math
import random
import secrets
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from harness.bench.bench import BenchAgainstOurs, spoiled
from harness.bench.cold_copies import COLD, copies_for
from harness.bench.gpu_timer import Clock, GpuClock, Report
from harness.bench.rounds import Baseline, Recorder
from harness.bench.timed import Timed, WrongBytesError
from harness.bench.times import Timing
from harness.contract.case import Case
from harness.device.device import Outcome
from harness.device.memory import upload
from harness.expected.expected import NUMPY_LARGEST_TIMED, forget
from harness.subjects import streams
from harness.subjects.audit.findings import same
from harness.subjects.audit.fresh_data import Draw, FreshCopies, FreshData, Written
from harness.subjects.audit.verify import explain
from harness.subjects.device import SubjectDevice
from harness.subjects.violations import Finding, Violation, ViolationError
from harness.suite.launch_plan import plan
from harness.suite.physics import needs_of
from harness.verdict import Result, Verdict

PASS = 1e-2  # seconds that a bounding pass should last if memory allows, so that the overhead around it is small
MOST_CALLS = 4096  # calls of a pass
ROUNDS = 5
AROUND = 2e-4  # seconds for starting a graph and noticing its end; a Python process takes as long to wake
MOST_AROUND = 7e-4  # seconds; a larger overhead is not accepted, or a process could gain by answering slowly
TOLERANCE = 0.10  # share of the bound, for other clocks of a busy GPU and for pending write-backs

wall = time.perf_counter


class WallClock:
    """The least wall time of some passes, from the request to the answer, each of so many calls.

    A pass is a graph of one call on each copy of the memory, on new data, with all of its outputs compared. So the GPU
    really took that long: no call can be faster than the shortest pass, minus the time of an empty request, divided by
    its calls. Reported times may be longer, because they are of colder memory. Eager calls are bounded by the same
    graph: between two of them the GPU may wait for the host, so that wall time says nothing of the GPU's, but the
    graph of a call takes the GPU no longer than the call. A subject whose calls cannot be captured gets no time.
    """

    def __init__(self, calls: int):
        self.calls = calls
        self._passes: list[float] = []
        self._empty: list[float] = []

    def measure(self, launch: Callable[[], object], nothing: Callable[[], object]) -> None:
        self._empty.append(_seconds(nothing))
        self._passes.append(_seconds(launch))

    @property
    def least(self) -> float:
        """The least possible seconds of a call."""
        around = min(min(self._empty) + AROUND, MOST_AROUND)
        return max(min(self._passes) - around, 0.0) / self.calls

    def finding(self, reported: Sequence[float]) -> Finding | None:
        """The violation if a reported time is impossible, else None. reported: seconds of a call"""
        median = statistics.median(reported)
        if median >= self.least * (1 - TOLERANCE):
            return None
        return Finding(
            Violation.BELOW_WALL_CLOCK,
            f"it reports {1e6 * median:.2f} us a call; by the wall clock around {self.calls} calls that were compared, "
            f"one takes {1e6 * self.least:.2f} us",
        )


def _seconds(action: Callable[[], object]) -> float:
    began = wall()
    action()
    return wall() - began


SHARE = 4  # copies may take 1/SHARE of the GPU's free memory


class TimedSubject(Timed):
    """A subject in its process, called eagerly or as a graph of one call on each copy of the memory.

    timed: the copies of the timed rounds; passes: those of the passes that bound the times, once they were measured
    judged: draws with the outputs that the oracles judge
    """

    launches = 0

    def __init__(self, device: SubjectDevice, case: Case, clock: GpuClock):
        self._device, self._case, self._clock = device, case, clock
        self._is_graph = case.mode == "graph"
        self.fresh = FreshData(case, "cuda" if device.name == "cuda" else "cpu", NUMPY_LARGEST_TIMED)
        self.moved = sum(a.nbytes for a in self.fresh.sets[0].values()) + sum(
            field.nbytes for field in self.fresh.fields.values()
        )
        self._l2_bytes = int(device.identity()["l2_bytes"])
        self._poison = secrets.randbelow(255) + 1
        self._random = random.SystemRandom()
        self._uploaded = [{name: upload(array) for name, array in each.items()} for each in self.fresh.sets]
        self._written = Written()
        self.timed = self._copies(copies_for(self.moved, self._l2_bytes))
        self.program = self.timed.program
        self.calls = self.timed.number if self._is_graph else 1
        filled = self.timed.number * self.moved / self._l2_bytes if self._is_graph else math.inf
        self.needs = needs_of(case, plan(case), self.fresh.sets[0], self.fresh.fields, filled, self.calls)
        self._reported: list[float] = []
        self.judged: list[tuple[Draw, Outcome]] = []

    def _copies(self, number: int) -> FreshCopies:
        device, fresh = self._device, self.fresh
        program = device.prepare(self._case, device.targets[0], fresh.sets[0], fresh.fields, number)
        return FreshCopies(program, fresh, self._uploaded, self._poison, self._written)

    def current(self) -> AbstractContextManager[Any]:
        return streams.current(self._clock.stream)

    def begin(self) -> None:
        """Warm up, capture, and keep the subject's outputs."""
        self.timed.capture()
        self.timed.remember()
        self.judged = [(Draw(number), found) for number, found in enumerate(self._written.outcomes)]
        # Only a subject with declared conventions may have random bits of its own; for any other, every round must
        # repeat the first.
        self._written.steady |= not self._device.subject.conventions

    def enqueue(self) -> None:
        seconds, exposed = self.program.time(None if self._is_graph else next(iter(self.timed.drawn), 0))
        self._clock.report = Report(seconds / self.calls, exposed)
        self._reported.append(seconds / self.calls)

    def before_round(self) -> None:
        """Compare the last round, draw what each copy gets, and poison."""
        self.timed.compare()
        copies = self.timed.number
        self.timed.fill(range(copies) if self._is_graph else [self._random.randrange(copies)])

    def end(self) -> None:
        """Compare the last round, and measure the passes that bound the times."""
        self.timed.compare()
        self._judge_one(self.timed)
        self.passes = self._copies(self._copies_of_a_pass())
        self.passes.capture()
        self._wall = WallClock(self.passes.number)
        program = self.passes.program
        for _ in range(ROUNDS):
            self.passes.fill(range(self.passes.number))
            program.synchronize()
            self._wall.measure(lambda: program.launch(None), program.ping)
            self.passes.compare()
        self._judge_one(self.passes)
        program.synchronize()

    def _copies_of_a_pass(self) -> int:
        """The number of copies for a pass of PASS seconds, if a call takes the reported time."""
        room = self.program.free_bytes() // SHARE // max(self.moved, 1)
        return max(self.timed.number, min(math.ceil(PASS / statistics.median(self._reported)), MOST_CALLS, room))

    def _judge_one(self, copies: FreshCopies) -> None:
        self.judged.append(copies.outcome(self._random.choice(list(copies.drawn))))

    def check(self) -> None:
        """Raise ViolationError if the subject did wrong in the timed rounds, or on the data that it was timed on."""
        finding = self._wrong_rounds() or self._wrong_bytes() or self._wrong_passes()
        finding = finding or self._wall.finding(self._reported)
        if finding:
            raise ViolationError(finding.violation, finding.sentence)

    def _wrong_rounds(self) -> Finding | None:
        """The subject's violation, as far as it shows without an oracle."""
        sentence = self.timed.trespass() or self.passes.trespass()
        if sentence:
            violation = Violation.MODIFIES_INPUTS if ": input " in sentence else Violation.WRITES_OUTSIDE
            return Finding(violation, f"while timed, {sentence}")
        copies = self.timed.number
        timed = [{copy: bool(flag) for copy, flag in flags.items()} for flags in self.timed.wrong]
        wrong = sum(any(flags.values()) for flags in timed)
        if not wrong:
            return None
        never = [copy for copy in range(copies) if all(flags.get(copy, False) for flags in timed)]
        if self._is_graph and never and 0 not in never:
            return Finding(
                Violation.FIRST_ROTATION,
                f"of {copies} copies of the memory {len(never)} were wrong in each of {len(timed)} timed rounds, "
                f"copy {never[0] + 1} for one, and copy 1 was right",
            )
        return Finding(
            Violation.NOT_IN_TIMING,
            f"in {wrong} of {len(timed)} timed rounds its outputs were not what it wrote for the same data before",
        )

    def _wrong_passes(self) -> Finding | None:
        """The violation if the graph whose passes bound the times did other work than the timed rounds."""
        if not any(bool(flag) for flags in self.passes.wrong for flag in flags.values()):
            return None
        what = "its graph writes other bytes than its calls, so that no wall clock bounds their time"
        return Finding(Violation.NOT_CAPTURED, what)

    def _wrong_bytes(self) -> Finding | None:
        """Compare its outputs with the oracles on the data that it was timed on; the violation, or None."""
        for drawn, outcome in self.judged:
            expected, outputs = self.fresh.expected(drawn), outcome.outputs
            if expected.disagreement:
                raise WrongBytesError(Verdict.SETUP_ERROR, expected.disagreement)
            wrong = [n for n, value in expected.values.items() if not self._device.accepts(outputs[n], value)]
            unwritten = any(bool((outputs[name] == self._poison).all()) for name in wrong)
            if unwritten or (wrong and not explain(self._device, self._case, expected, outputs)):
                return self._named(outputs[wrong[0]], wrong)
        return None

    def _named(self, first: Any, wrong: list[str]) -> Finding:
        """The finding for wrong bytes. first: of the first field that is wrong"""
        if bool((first == self._poison).all()):
            if self._is_graph:
                return Finding(Violation.NOT_CAPTURED, f"the graph that was to be timed writes nothing to {wrong[0]}")
            return Finding(Violation.NOT_IN_TIMING, f"right in verification, and timed it writes nothing to {wrong[0]}")
        if all(same(found.outputs, self._written.outcomes[0].outputs) for found in self._written.outcomes):
            return Finding(Violation.CACHES_BY_POINTER, f"timed, it writes the same {wrong[0]} whatever data lie there")
        sentence = f"right in verification, and wrong in {', '.join(wrong)} on the data timed"
        return Finding(Violation.NOT_IN_TIMING, sentence)

    def method(self, us: float) -> str:
        how = self._clock.method
        if self._is_graph:
            filled = self.program.memory.nbytes * self.calls / self._l2_bytes
            cold = "cold by construction" if filled >= COLD else "warm"
            how = f"graphs of {self.calls} calls, {cold}: {self.calls} copies fill {filled:.1f}x L2"
        compared = "compared" if self._written.steady else "looked at for having been written, because no two are alike"
        data = "rows permuted for it" if self.fresh.groups else f"one of {len(self.fresh.sets)} sets of data"
        bound = f"no call below {1e6 * self._wall.least:.2f} us by the wall clock"
        return f"{how}; every round on {data} and poison drawn for it, and {compared}; {bound}"


class SubjectBench(BenchAgainstOurs):
    """Times the cases of one process on one GPU with a subject, compared with our kernels."""

    def __init__(self, device: SubjectDevice, clock: Clock, roofline_gbps: float):
        super().__init__(device, clock, roofline_gbps, in_passes=True)

    def prepare(self, case: Case) -> None:
        """Do nothing, because expected bytes would otherwise be in GPU memory before the subject is called."""

    def time(self, case: Case, verified: Result, record: Recorder) -> Result:
        """The verified result with times; with the violation instead of times if the timed calls did wrong."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = super().time(case, verified, record)
        except ViolationError as error:
            finding = error.finding
            found = spoiled(verified, finding.violation.verdict, finding.reason)
            found = replace(found, offence=str(finding.violation))
        self.device.done(found)
        return found

    def _measure(self, case: Case, baseline: Baseline, record: Recorder, second: Baseline | None = None) -> Timing:
        timing = super()._measure(case, baseline, record)
        return replace(timing, moved=baseline.moved or timing.moved)

    def _prepare(self, case: Case) -> Timed:
        forget()
        return TimedSubject(self.device, case, self.clock)
