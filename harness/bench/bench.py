"""Times of a case that passed. Independent of pytest; `harness.runner.bench_plugin` supplies the recorder.

The case is prepared again, its outputs are poisoned, and the launches that verification ran, or graphs of them that
cycle through copies of all memory, are timed round by round behind a flush of the L2, each round after one of the
baseline. Afterwards outputs are compared again: a time is kept only if the timed launches wrote the right bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from harness.bench.baseline import (
    against_library,
    baseline_id,
    baseline_of,
    copy_of,
    loop_of,
    product,
    product_bytes,
    second_id,
    second_of,
)  # fmt: skip
from harness.bench.energy import Energy, Meter, Replays, measure
from harness.bench.gpu_timer import Clock, pilot
from harness.bench.rounds import PILOT, WARM_UP, Baseline, InterleavedRounds, Recorder, Round, steady
from harness.bench.statistics import summarize
from harness.bench.timed import Timed, TimedKernels, TimedLoop, WrongBytesError, digest, too_fast
from harness.bench.times import Timing, second_times, times
from harness.contract.case import Case
from harness.device.device import Device
from harness.errors import CaseError, LaunchError, NoDevice
from harness.expected.expected import NUMPY_LARGEST_TIMED, Expected, expect
from harness.ground.seconds import ROUNDS, SECONDS, VERIFY, WARMING
from harness.suite.launch_plan import plan
from harness.suite.physics import bytes_moved
from harness.verdict import Result, Verdict
from harness.verify.verify import failed, verify


class Bench:
    """Times the cases of one process on one GPU.

    roofline_gbps: rate of a device copy, 100 % for every case; in_passes: passed to `TimedKernels`
    """

    def __init__(self, device: Device, clock: Clock, roofline_gbps: float, in_passes: bool = False):
        self.device = device
        self.clock = clock
        self.roofline_gbps = roofline_gbps
        self.energy = False  # whether to measure the energy of each case, too, which takes more than a second
        self._in_passes = in_passes
        self._baselines: dict[str, Baseline] = {}  # case id, or `baseline_id` → the opponents of one shape

    def baseline_id(self, case: Case) -> str:
        return baseline_id(case)

    def prepare(self, case: Case) -> None:
        """Have the baseline ready before the case is verified, so that each of them is drawn and expected once."""
        if case.id != self.baseline_id(case):
            self._baseline(case)
            if second_of(case):
                self._second(case)

    def time(self, case: Case, verified: Result, record: Recorder) -> Result:
        """Add times to the verified result, or replace its verdict if the timed launches wrote wrong bytes."""
        name = self.baseline_id(case)
        baseline = Baseline() if case.id == name else self._baseline(case)
        try:
            second = self._second(case)
            timing = self._measure(case, baseline, record, second)
        except WrongBytesError as wrong:
            return spoiled(verified, wrong.verdict, wrong.reason)
        except LaunchError as error:
            return spoiled(verified, Verdict.LAUNCH_ERROR, f"while timing: {error}")
        except NoDevice as error:
            return spoiled(verified, Verdict.NO_DEVICE, f"while timing: {error}")
        if why := self._impossible(timing):
            return spoiled(verified, Verdict.IMPOSSIBLE, why)
        if case.id == name:  # it is its own baseline
            baseline = Baseline(moved=timing.moved)
            timing = replace(timing, rounds=[replace(each, baseline=each.seconds) for each in timing.rounds])
        found = times(case, timing, baseline, name, self.roofline_gbps)
        if second:
            found |= second_times(timing, second, second_id(case))
        return replace(verified, times=found)

    def _measure(self, case: Case, baseline: Baseline, record: Recorder, second: Baseline | None = None) -> Timing:
        with SECONDS.of(WARMING):
            timed = self._prepare(case)
        rounds_of_case = InterleavedRounds(self.clock, timed, baseline, record, second)
        with timed.current():
            timed.begin()
            with SECONDS.of(WARMING):
                count = rounds_of_case.pilot()
            with SECONDS.of(ROUNDS):
                rounds = rounds_of_case.take(count)
            condition = self.device.condition()
            energy = self._energy(case, timed, rounds)
            timed.end()
        with SECONDS.of(VERIFY):
            timed.check()
        kept = steady(rounds)
        median_us = 1e6 * summarize([each.seconds for each in kept]).median
        with SECONDS.of(WARMING):
            method = timed.method(median_us)
        dropped, code = len(rounds) - len(kept), digest(timed.program)
        return Timing(kept, dropped, timed.moved, code, timed.launches, method, timed.needs, condition, energy)

    def _energy(self, case: Case, timed: Timed, rounds: Sequence[Round]) -> Energy | None:
        """Energy of a call; None unless the case is a graph, because only then the GPU never waits for the host."""
        if not self.energy or case.mode != "graph":
            return None
        us = 1e6 * summarize([each.seconds for each in rounds]).median
        with SECONDS.of(ROUNDS):
            return measure(Replays(self.clock, timed.enqueue, timed.calls, us), self._meter)

    def _meter(self) -> Meter:
        return Meter(self.device.energy_mj(), self.device.celsius())

    def _impossible(self, timing: Timing) -> str:
        """Why the timed launches cannot have done their work in this time, or an empty text."""
        us = 1e6 * summarize([each.seconds for each in timing.rounds]).median
        return too_fast(self.device, us, max(each.mhz for each in timing.rounds), timing.needs, self.roofline_gbps)

    def _prepare(self, case: Case) -> Timed:
        return TimedKernels(self.device, case, self._expected(case), self.clock, self._in_passes)

    def _expected(self, case: Case) -> Expected:
        return expect(case, "cuda", NUMPY_LARGEST_TIMED).on(self.device.targets[0])

    def _baseline(self, case: Case) -> Baseline:
        """The opponent of the case, verified and warmed up once for each shape and mode."""
        self._drop_others(case)
        return self._once(baseline_id(case), lambda: self._opponent(case))

    def _drop_others(self, case: Case) -> None:
        """Drop the opponents of other cases, with their memory, but for a product keep all of its shape."""
        kept = {name(replace(case, mode=mode)) for name in (baseline_id, second_id) for mode in ("eager", "graph")}
        if against_library(case):
            kept |= {name for name in self._baselines if name.split("/")[2] == case.shape}
        self._baselines = {name: value for name, value in self._baselines.items() if name in kept}

    def _second(self, case: Case) -> Baseline | None:
        """The other opponent, None if there is none."""
        name, found = second_id(case), second_of(case)
        if not name:
            return None
        self._drop_others(case)
        return self._once(name, lambda: self.ready(found) if found else self._loop(loop_of(case)))

    def _once(self, name: str, make: Callable[[], Baseline]) -> Baseline:
        if name not in self._baselines:
            with SECONDS.of(WARMING):
                self._baselines[name] = make()
        return self._baselines[name]

    def _opponent(self, case: Case) -> Baseline:
        found = baseline_of(case)
        if found:
            return self.ready(found)
        l2_bytes = int(self.device.identity()["l2_bytes"])
        try:
            if against_library(case):
                moved, (enqueue, calls) = product_bytes(case), product(case, self.clock, l2_bytes)
            else:
                expected = expect(case, "cuda", NUMPY_LARGEST_TIMED)
                moved = bytes_moved(plan(case), expected.inputs, expected.fields)
                enqueue, calls = copy_of(moved, self.clock, l2_bytes, case.mode)
            with self.clock.stream:
                pilot(self.clock, enqueue, WARM_UP, PILOT, calls)
        except LaunchError as error:
            return Baseline(why_not=str(error))
        return Baseline(enqueue, calls, moved)

    def ready(self, case: Case) -> Baseline:
        """Verify a case and warm it up, to compare others with it."""
        with SECONDS.of(VERIFY):
            verified = verify(case, self.device, NUMPY_LARGEST_TIMED)
        if verified.verdict is not Verdict.PASS:
            return Baseline(why_not=f"{verified.verdict} {verified.reason}")
        return self._warmed(lambda: self._prepare(case))

    def _loop(self, cases: Sequence[Case]) -> Baseline:
        """Warm up all of the cases one after the other. Their bytes are compared once, after that."""
        return self._warmed(
            lambda: TimedLoop(self.device, cases, {case.id: self._expected(case) for case in cases}, self.clock)
        )

    def _warmed(self, make: Callable[[], Timed]) -> Baseline:
        try:
            timed = make()
            with timed.current():
                timed.begin()
                pilot(self.clock, timed.enqueue, WARM_UP, PILOT, timed.calls)
                timed.end()
            timed.check()
        except (WrongBytesError, CaseError) as error:
            return Baseline(why_not=str(error))
        return Baseline(timed.enqueue, timed.calls, timed.moved)


class BenchAgainstOurs(Bench):
    """Kernels that are not ours, with our kernel on the same case as the only opponent.

    device: runs the kernels under test; its `inner` runs ours. in_passes: how graphs of our kernels are replayed
    """

    def __init__(self, device: Any, clock: Clock, roofline_gbps: float, in_passes: bool = False):
        super().__init__(device, clock, roofline_gbps)
        self._ours = Bench(device.inner, clock, roofline_gbps, in_passes)

    def baseline_id(self, case: Case) -> str:
        return f"ours {case.id}"

    def _baseline(self, case: Case) -> Baseline:
        if case.id not in self._baselines:
            self._baselines = {case.id: self._ours.ready(case)}
        return self._baselines[case.id]

    def _second(self, case: Case) -> None:
        """Return None, because our kernel is the only opponent."""


def spoiled(verified: Result, verdict: Verdict, reason: str) -> Result:
    """The result with this verdict."""
    compared = verified.bytes_compared if verdict.judges else 0
    digests = verified.digests if verdict.judges else {}
    return replace(failed(verified, verdict, reason), while_timed=True, bytes_compared=compared, digests=digests)
