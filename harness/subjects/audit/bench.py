"""Times of a subject, in turns with our kernel on the same case, kept only if every timed round wrote right bytes."""

from __future__ import annotations

import warnings
from dataclasses import replace

from harness.bench.bench import BenchAgainstOurs, spoiled
from harness.bench.gpu_timer import Clock
from harness.bench.rounds import Baseline, Recorder
from harness.bench.timed import Timed
from harness.bench.times import Timing
from harness.contract.case import Case
from harness.subjects.audit.timed_calls import TimedSubject
from harness.subjects.audit.violations import ViolationError
from harness.subjects.device import SubjectDevice
from harness.verdict import Result
from harness.verify.expected import forget


class SubjectBench(BenchAgainstOurs):
    """Times the cases of one process on one GPU with a subject, compared with our kernels."""

    def __init__(self, device: SubjectDevice, clock: Clock, roofline_gbps: float):
        super().__init__(device, clock, roofline_gbps, in_passes=True)

    def prepare(self, case: Case) -> None:
        """Do nothing, because expected bytes would otherwise be in GPU memory before the subject is called."""

    def time(self, case: Case, verified: Result, record: Recorder) -> Result:
        """The verified result with times; with the offence instead of times if the timed calls did wrong."""
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
