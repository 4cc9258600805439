"""One case of the head against the same case of the base: bytes first, then times, then a verdict."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from harness.bench import POISON, digest
from harness.case import Case
from harness.clock import GpuClock
from harness.device.cuda import CudaDevice
from harness.device.memory import Memory
from harness.device.rotation import COLD, Rotation, copies
from harness.device.sm_clock import SmClock
from harness.duel import judging, sampling
from harness.duel.judging import EFFECT, Finding, Samples
from harness.duel.sampling import BLOCK, Side
from harness.errors import CaseError, LaunchError, NotCapable, UsageError
from harness.expectation import NUMPY_LARGEST_TIMED, Expectation, expect
from harness.verdict import Performance, Result, Verdict
from harness.verify import verify

FEWEST, MOST = 30, 240  # rounds; only what is AMBIGUOUS gets more than the fewest
WARM_IS_FASTER = 0.03  # by this much a case on one copy of its memory is faster, if the copies were cold

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
        self.sm_clock = SmClock(head, 2)
        self.effect, self.again = effect, again
        self.order = random.Random(0)

    def match(self, case: Case) -> Match:
        """Verify the head, then time it against the base. Never raises for what kernels do wrong."""
        verified = verify(case, self.head, NUMPY_LARGEST_TIMED)
        if verified.verdict is not Verdict.PASS:
            return Match(case, _not_measured(f"{verified.verdict}: {verified.reason}"), verified, {})
        case = replace(case, mode="graph")
        try:
            expected = expect(case, "cuda", NUMPY_LARGEST_TIMED)
            memories = copies(Memory.upload(expected.inputs, expected.fields), int(self.head.identity()["l2_bytes"]))
            head = Rotation(self.head, case, memories)
        except (CaseError, NotCapable) as error:
            return Match(case, _not_measured(str(error)), verified, {})
        try:
            base = Rotation(self.base, case, memories)
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
        stream, count = self.clock.stream, len(head.programs)
        estimate = sampling.once(self.clock, head.capture(stream, count)) / count
        calls = sampling.calls_for(count, estimate)
        sides = {
            name: Side(side.capture(stream, calls), calls)
            for name, side in (("head", head), ("again", head), ("base", base))
        }
        for name, rotation in (("base", base), ("head", head)):
            wrong = self._wrong(sides[name], rotation, expected)
            if wrong:
                return Match(case, Finding(Performance.INVALID, f"the timed graph of the {name} {wrong}"), verified, {})
        samples = sampling.take(self.clock, self.sm_clock, sides, FEWEST, self.order)
        finding = judging.judge(samples["head"], samples["again"], samples["base"], self.effect)
        while finding.verdict is Performance.AMBIGUOUS and len(samples["head"].us) < MOST:
            more = sampling.take(self.clock, self.sm_clock, sides, FEWEST, self.order)
            samples = sampling.joined(samples, more)
            finding = judging.judge(samples["head"], samples["again"], samples["base"], self.effect)
        wrong = self._wrong(sides["head"], head, expected)
        if wrong:
            finding = Finding(Performance.INVALID, f"after timing, the graph of the head {wrong}")
        memory = head.programs[0].memory.nbytes
        cold = self._cold(case, head, calls, finding, memory * count)
        return Match(case, finding, verified, samples, count, calls, memory, cold)

    def _wrong(self, side: Side, rotation: Rotation, expected: Expectation) -> str:
        """What is wrong with the bytes of a graph, judged on poisoned copies: the first, the last and one between."""
        with self.clock.stream as stream:
            rotation.poison(POISON)
            side.graph.launch(stream)
            stream.synchronize()
        count = len(rotation.programs)
        for number in sorted({0, self.order.randrange(count), count - 1}):
            outcome = rotation.programs[number].outcome(POISON)
            if outcome.trespass:
                return f"does wrong on copy {number + 1} of {count}: {outcome.trespass}"
            for name in expected.fields:
                ours = outcome.outputs[name]
                if ours.size and bool((ours == POISON).all()):
                    return f"wrote nothing to {name} of copy {number + 1} of {count}"
                if not self.head.accepts(ours, expected.values[name]):
                    return f"wrote other bytes to {name} of copy {number + 1} of {count}"
        return ""

    def _cold(self, case: Case, head: Rotation, calls: int, finding: Finding, filled: int) -> str:
        """Whether the copies came from memory and not from the L2, in words, by an A/B with one copy alone."""
        l2 = int(self.head.identity()["l2_bytes"])
        size = f"{len(head.programs)} copies fill {filled / l2:.1f}x L2"
        if filled < COLD * l2:
            return f"warm: {size}"
        if head.programs[0].memory.nbytes > l2:
            return f"cold: {size}, one alone more than all of it"
        alone = Rotation(self.head, case, [head.programs[0].memory])
        warm_us = sampling.once(self.clock, alone.capture(self.clock.stream, calls)) / calls
        cold_us = finding.head_us or 0.0
        if warm_us * (1 + WARM_IS_FASTER) < cold_us:
            return f"cold: {size}; {warm_us:.2f} us on one copy alone"
        return f"cold by construction, not shown: {size}; one copy alone is as fast, {warm_us:.2f} us"


def _not_measured(reason: str) -> Finding:
    return Finding(Performance.NOT_MEASURED, reason)
