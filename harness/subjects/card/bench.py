"""Time a card's kernels in turns with ours on the same case, and keep times only if the bytes were right."""

from __future__ import annotations

from dataclasses import replace

from harness.bench.bench import BenchAgainstOurs
from harness.bench.gpu_timer import Clock
from harness.bench.timed import POISON, Timed, TimedKernels, require_right
from harness.contract.case import Case
from harness.device.cuda_program import CudaProgram
from harness.device.device import Outcome
from harness.device.memory import CaseMemory
from harness.expected.expected import NUMPY_LARGEST_TIMED, Expected, expect
from harness.subjects.card.card import with_masked_m
from harness.subjects.card.device import CardDevice
from harness.subjects.card.form import Promised
from harness.subjects.card.verify import by_conventions
from harness.suite.launch_plan import plan
from harness.suite.physics import bytes_moved, needs_of
from harness.verify.judge import on_host


class CardBench(BenchAgainstOurs):
    """Times the cases of one process on one GPU with a card's kernels, compared with ours."""

    def _prepare(self, case: Case) -> Timed:
        return TimedCard(self.device, case, expect(case, "cuda", NUMPY_LARGEST_TIMED), self.clock)


class TimedCard(TimedKernels):
    """A card's launches on cold memory. Our own launches' bytes count as moved, so that rates are comparable.

    ours: the contract's expectation; `expected` of the base class has it in the card's form
    """

    def __init__(self, device: CardDevice, case: Case, ours: Expected, clock: Clock):
        self._card_device, self._case, self._ours = device, case, ours
        self._forms = device.card.forms(case)
        kept = self._forms.expected(ours)
        super().__init__(device.inner, case, replace(kept, inputs=with_masked_m(case, kept.inputs)), clock)
        steps = plan(case)
        self.launches = len(device.card.file.launches)
        self.moved = bytes_moved(steps, ours.inputs, ours.fields)
        self.needs = needs_of(case, steps, ours.inputs, ours.fields, self.needs.filled, self.calls)

    def _first(self, memory: CaseMemory) -> CudaProgram:
        device = self._card_device
        return CudaProgram(device.launches(self._case, device.targets[0]), self._case, memory)

    def check(self) -> None:
        """Raise WrongBytesError for a wrong byte that the card promises and that no convention explains."""
        expected = self._expected
        promised = Promised(None, self._forms.outputs(self._ours.fields), expected.values)
        outcomes = [(which, promised.filled(found)) for which, found in self._rotation.outcomes(POISON, self._order)]
        require_right(self._card_device, [each for each in outcomes if not self._explained(each[1])], expected)
        self._expected = None

    def _explained(self, outcome: Outcome) -> bool:
        """Whether the card's conventions explain every wrong byte, and no byte outside of the arrays was written."""
        if outcome.trespass or not self._card_device.card.conventions:
            return False
        written = on_host(self._card_device, [outcome], self._expected)[0]
        device, ours = self._card_device, self._ours
        return bool(by_conventions(self._case, device, ours, self._forms.written(ours, written)))
