"""One case of the head against the same case of the base: bytes first, then times, then a verdict."""

from __future__ import annotations

import random
from dataclasses import dataclass

from harness.bench.cold_copies import COLD, Rotation, memories, rotate
from harness.bench.gpu_timer import GpuClock
from harness.bench.timed import POISON, digest
from harness.case import Case
from harness.device.cuda import CudaDevice
from harness.device.memory import Memory
from harness.duel import judging, sampling
from harness.duel.judging import EFFECT, Finding, Samples
from harness.duel.sampling import BLOCK, Side
from harness.errors import CaseError, LaunchError, NotCapable, UsageError
from harness.expectation import NUMPY_LARGEST_TIMED, Expectation, expect
from harness.verdict import Performance, Result, Verdict
from harness.verify.verify import verify

FEWEST, MOST = 30, 240  # rounds; only what is AMBIGUOUS gets more than the fewest

METHOD = (
    f"graphs of calls on copies of all memory in turn, at least {COLD}x L2; head, head again and base in random order, "
    f"{FEWEST} rounds, and up to {MOST} while AMBIGUOUS; MHz of the multiprocessors every {BLOCK} rounds"
)


@dataclass(frozen=True)
class Match:
    """What became of one case.

    finding: verdict, reason and medians; samples: of every side, none if nothing was timed
    copies, calls: of the case's memory, and in a graph; memory: bytes of one copy
    cold: in words, whether the memory was, and how that is known
    """

    case: Case
    finding: Finding
    verified: Result
    samples: dict[str, Samples]
    copies: int = 0
    calls: int = 0
    memory: int = 0
    cold: str = ""


class Arena:
    """Where two revisions meet: one GPU, and what its matches share.

    again: time also what has the same machine code on both sides
    """

    def __init__(
        self, head: CudaDevice, base: CudaDevice, clock: GpuClock, effect: float = EFFECT, again: bool = False
    ):
        self.head, self.base = head, base
        self.clock = clock
        self.effect, self.again = effect, again
        self.order = random.Random(0)

    def match(self, case: Case) -> Match:
        """Verify the head, then time it against the base. Never raises for what kernels do wrong.

        case: in the mode `graph`
        """
        verified = verify(case, self.head, NUMPY_LARGEST_TIMED)
        if verified.verdict is not Verdict.PASS:
            return Match(case, _not_measured(f"{verified.verdict}: {verified.reason}"), verified, {})
        try:
            expected = expect(case, "cuda", NUMPY_LARGEST_TIMED)
            memory = Memory.upload(expected.inputs, expected.fields)
            shared = memories(memory, int(self.head.identity()["l2_bytes"]))
            head = Rotation(self.head, case, shared)
        except (CaseError, NotCapable) as error:
            return Match(case, _not_measured(str(error)), verified, {})
        try:
            base = Rotation(self.base, case, shared)
        except (CaseError, UsageError) as error:
            finding = Finding(Performance.NO_BASELINE, f"the base cannot run this case: {str(error).splitlines()[0]}")
            return Match(case, finding, verified, {})
        if digest(head.programs[0]) == digest(base.programs[0]) and not self.again:
            finding = Finding(Performance.SAME, "machine code, grids and libraries are the base's; not timed")
            return Match(case, finding, verified, {})
        try:
            return self._time(case, expected, verified, head, base)
        except LaunchError as error:
            return Match(case, Finding(Performance.INVALID, f"while timing: {error}"), verified, {})

    def _time(self, case: Case, expected: Expectation, verified: Result, head: Rotation, base: Rotation) -> Match:
        sides = {
            name: Side(*rotate(self.clock, side.launches))
            for name, side in (("head", head), ("again", head), ("base", base))
        }
        for name, rotation in (("base", base), ("head", head)):
            wrong = self._wrong(sides[name], rotation, expected)
            if wrong:
                return Match(case, Finding(Performance.INVALID, f"the timed graph of the {name} {wrong}"), verified, {})
        samples = sampling.take(self.clock, sides, FEWEST, self.order)
        finding = judging.judge(samples["head"], samples["again"], samples["base"], self.effect)
        while finding.verdict is Performance.AMBIGUOUS and len(samples["head"].us) < MOST:
            more = sampling.take(self.clock, sides, FEWEST, self.order)
            samples = sampling.joined(samples, more)
            finding = judging.judge(samples["head"], samples["again"], samples["base"], self.effect)
        wrong = self._wrong(sides["head"], head, expected)
        if wrong:
            finding = Finding(Performance.INVALID, f"after timing, the graph of the head {wrong}")
        calls = sides["head"].calls
        cold = head.coldness(self.clock, calls, finding.head_us or 0.0)
        return Match(case, finding, verified, samples, len(head.programs), calls, head.programs[0].memory.nbytes, cold)

    def _wrong(self, side: Side, rotation: Rotation, expected: Expectation) -> str:
        """What is wrong with the bytes of a graph, judged on poisoned copies: the first, the last and one between."""
        with self.clock.stream as stream:
            rotation.poison(POISON)
            side.graph.launch(stream)
            stream.synchronize()
        for which, outcome in rotation.outcomes(POISON, self.order):
            if outcome.trespass:
                return f"does wrong on {which}: {outcome.trespass}"
            for name in expected.fields:
                ours = outcome.outputs[name]
                if ours.size and bool((ours == POISON).all()):
                    return f"wrote nothing to {name} of {which}"
                if not self.head.accepts(ours, expected.values[name]):
                    return f"wrote other bytes to {name} of {which}"
        return ""


def _not_measured(reason: str) -> Finding:
    return Finding(Performance.NOT_MEASURED, reason)
