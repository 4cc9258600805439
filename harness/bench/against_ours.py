"""A bench of kernels that are not ours: the only opponent of each is our kernel on the same case."""

from __future__ import annotations

from typing import Any

from harness.bench.bench import Bench
from harness.bench.gpu_timer import Clock
from harness.bench.rounds import Baseline
from harness.contract.case import Case


class BenchAgainstOurs(Bench):
    """device: runs the kernels under test; its `inner` runs ours. in_passes: how graphs of our kernels are replayed"""

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
