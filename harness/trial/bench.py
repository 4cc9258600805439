"""Times of a subject, in turns with our kernel on the same case, kept only if every timed round wrote right bytes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from harness.bench.bench import Baseline, Bench, Recorder, Timing, WrongBytesError, spoiled
from harness.case import Case
from harness.clock import Clock
from harness.device.subject import SubjectDevice
from harness.expectation import NUMPY_LARGEST_TIMED, expect_on, fields_of, forget
from harness.trial.data import moved_along
from harness.trial.offence import Caught, Offence, OffenceError
from harness.trial.timing import TimedSubject, fresh_distances
from harness.trial.verify import explain
from harness.verdict import Result, Verdict


class SubjectBench(Bench):
    """Times the cases of one process on one GPU with a subject, held against our kernels."""

    def __init__(self, device: SubjectDevice, clock: Clock, roofline_gbps: float):
        super().__init__(device, clock, roofline_gbps)
        device.inner.in_passes = True
        self._ours = Bench(device.inner, clock, roofline_gbps)

    def held_against(self, case: Case) -> str:
        """The same case, with our kernel."""
        return f"ours {case.id}"

    def time(self, case: Case, verified: Result, record: Recorder) -> Result:
        """The verified result with times; without, and with the offence, if the timed calls did wrong."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return super().time(case, verified, record)
        except OffenceError as error:
            caught = error.caught
        return replace(spoiled(verified, caught.offence.verdict, caught.reason), offence=str(caught.offence))

    def _baseline(self, case: Case) -> Baseline:
        if case.id not in self._baselines:
            self._baselines = {case.id: self._ours.ready(case)}
        return self._baselines[case.id]

    def _measure(self, case: Case, baseline: Baseline, record: Recorder) -> Timing:
        forget()
        data = [moved_along(case, distance) for distance in fresh_distances()]
        fields = fields_of(case)
        timed = self.device.timed(case, data, fields, self.clock)
        with timed.program.current(self.clock.stream):
            timed.begin()
            timing = self._rounds(timed, baseline, record, timed.arm)
            timed.end()
        caught = timed.caught() or self._wrong(case, timed)
        if caught:
            raise OffenceError(caught.offence, caught.sentence)
        least = sum(array.nbytes for array in data[0].values()) + sum(field.nbytes for field in fields.values())
        return replace(timing, moved=baseline.moved or least, words=timed.words)

    def _wrong(self, case: Case, timed: TimedSubject) -> Caught | None:
        """What is wrong with what it wrote for the data it was timed on, which the oracles are asked only now."""
        for number, inputs in enumerate(timed.data):
            expected = expect_on(case, inputs, "cuda" if self.device.name == "cuda" else "cpu", NUMPY_LARGEST_TIMED)
            if expected.disagreement:
                raise WrongBytesError(Verdict.MISMATCH, expected.disagreement)
            for outputs in (outcome.outputs for which, outcome in timed.judged if which == number):
                wrong = [n for n, value in expected.values.items() if not self.device.accepts(outputs[n], value)]
                if wrong and not explain(self.device, case, expected, outputs):
                    return _named(timed, outputs[wrong[0]], wrong)
        return None


def _named(timed: TimedSubject, first: Any, wrong: list[str]) -> Caught:
    """What to call it. first: bytes of the first field that is wrong"""
    if bool((first == timed.poison_byte).all()):
        if timed.captured:
            return Caught(Offence.NOT_CAPTURED, f"the graph that was to be timed writes nothing to {wrong[0]}")
        return Caught(Offence.NOT_IN_TIMING, f"right in verification, and timed it writes nothing to {wrong[0]}")
    if timed.stale():
        return Caught(Offence.CACHES_BY_POINTER, f"timed, it writes the same {wrong[0]} whatever data lie there")
    return Caught(Offence.NOT_IN_TIMING, f"right in verification, and wrong in {', '.join(wrong)} on the data timed")
