"""One case of the head against the same case of the base: bytes first, then times, then a verdict.

The head is the candidate, timed twice, and the base the reference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from harness.bench.cold_copies import COLD, Rotation, capture, memories, rotate
from harness.bench.gpu_timer import GpuClock
from harness.bench.rounds import BETWEEN_CLOCKS, TimedGraph, take
from harness.bench.statistics import Samples
from harness.bench.timed import POISON, digest, too_fast
from harness.contract.case import Case
from harness.device.cuda import CudaDevice
from harness.device.cuda_program import launches_of
from harness.device.memory import CaseMemory, equal_bytes
from harness.errors import CaseError, LaunchError, NoDevice, UsageError
from harness.expected.expected import NUMPY_LARGEST_TIMED, Expected, expect
from harness.gate.decision import CHANGED, EFFECT, decide
from harness.gate.revision import same_arguments, same_sources
from harness.records.claims import UNCHANGED
from harness.suite.physics import needs_of
from harness.verdict import Judgement, Performance, Result, Verdict
from harness.verify.verify import verify

# Rounds for a case that is SAME, for one that is SLOWER or FASTER, and for one that stays AMBIGUOUS.
FEWEST, CONFIRMED, MOST = 30, 120, 240

METHOD = (
    f"graphs of calls on copies of all memory in turn, at least {COLD}x L2; head, head again and base in random order, "
    f"{FEWEST} rounds, {CONFIRMED} if SLOWER or FASTER and up to {MOST} while AMBIGUOUS; graphs anew, and MHz of the "
    f"multiprocessors, every {BETWEEN_CLOCKS} rounds"
)


@dataclass(frozen=True)
class Comparison:
    """One case of head and base, compared.

    verified: of the head; None where its machine code is the base's
    samples: by name of the graph, none if nothing was timed
    copies: of the case's memory; calls: in a graph; memory: bytes of one copy
    recurs: whether a second process found it SLOWER, or FASTER, too; None where that was not asked
    cold: text that says whether the memory was cold, and how that is known
    """

    case: Case
    judgement: Judgement
    verified: Result | None
    samples: dict[str, Samples] = field(default_factory=dict)
    copies: int = 0
    calls: int = 0
    memory: int = 0
    cold: str = ""
    recurs: bool | None = None


class RevisionBench:
    """Compares two revisions on one GPU, case by case.

    unchanged_too: time also the cases whose machine code is the same in both
    """

    def __init__(
        self, head: CudaDevice, base: CudaDevice, clock: GpuClock, effect: float = EFFECT, unchanged_too: bool = False
    ):
        self.head, self.base = head, base
        self.clock = clock
        self.effect, self.unchanged_too = effect, unchanged_too
        self.order = random.Random(0)
        self.roofline_gbps = 0.0  # rate of a device copy; without it, no time is impossible
        self._same: dict[str, bool] = {}  # by case id

    def compare(self, case: Case) -> Comparison:
        """Compare the machine code; if it differs, verify the head, then time it against the base.

        Never raises for a wrong kernel. case: in the mode `graph`
        """
        if self.same(case):
            return Comparison(case, Judgement(case.id, Performance.SAME, UNCHANGED), None)
        verified = verify(case, self.head, NUMPY_LARGEST_TIMED)

        def without_times(verdict: Performance, reason: str) -> Comparison:
            return Comparison(case, Judgement(case.id, verdict, reason), verified)

        if verified.verdict is not Verdict.PASS:
            return without_times(Performance.NOT_MEASURED, f"{verified.verdict}: {verified.reason}")
        try:
            expected = expect(case, "cuda", NUMPY_LARGEST_TIMED)
            memory = CaseMemory.upload(expected.inputs, expected.fields)
            shared = memories(memory, int(self.head.identity()["l2_bytes"]))
            head = Rotation(self.head, case, shared)
        except CaseError as error:
            return without_times(Performance.NOT_MEASURED, str(error))
        try:
            base = Rotation(self.base, case, shared)
            base.share(head)
        except (CaseError, UsageError) as error:
            reason = f"the base cannot run this case: {str(error).splitlines()[0]}"
            return without_times(Performance.NO_BASELINE, reason)
        try:
            return self._time(case, expected, verified, head, base)
        except (LaunchError, NoDevice) as error:
            return without_times(Performance.INVALID, f"while timing: {error}")

    def same(self, case: Case) -> bool:
        """Whether the case needs no time, because both sides run the same machine code."""
        if case.id not in self._same:
            self._same[case.id] = not self.unchanged_too and self._same_machine_code(case)
        return self._same[case.id]

    def _same_machine_code(self, case: Case) -> bool:
        if same_sources(case, self.head, self.base):
            return True
        try:
            head, base = (launches_of(side, case, side.targets[0]) for side in (self.head, self.base))
        except (CaseError, UsageError):
            return False  # the error is reported after the head is verified
        return same_arguments(head.steps, base.steps) and digest(head) == digest(base)

    def _time(self, case: Case, expected: Expected, verified: Result, head: Rotation, base: Rotation) -> Comparison:
        launches = {"head": head.launches, "base": base.launches}
        launches["again"] = launches["head"]
        graphs = {name: TimedGraph(*rotate(self.clock, side)) for name, side in launches.items()}
        invalid = partial(Judgement, case.id, Performance.INVALID)
        for name, rotation in (("base", base), ("head", head)):
            if wrong := self._wrong(graphs[name], rotation, expected):
                return Comparison(case, invalid(f"the timed graph of the {name} {wrong}"), verified)
        samples: dict[str, Samples] = {}
        while True:
            for _ in range(FEWEST // BETWEEN_CLOCKS):
                graphs = self._anew(graphs, launches)
                more = take(self.clock, graphs, BETWEEN_CLOCKS, self.order)
                samples = {name: samples[name] + taken if samples else taken for name, taken in more.items()}
            judgement = decide(samples["head"], samples["again"], samples["base"], self.effect, case.id)
            if len(samples["head"].us) >= rounds_for(judgement.verdict):
                break
        for name, rotation in (("base", base), ("head", head)):
            if wrong := self._wrong(graphs[name], rotation, expected):
                judgement = invalid(f"after timing, the graph of the {name} {wrong}")
            elif why := self._impossible(case, expected, rotation, graphs[name].calls, samples[name]):
                judgement = invalid(f"the time of the {name} is none: {why}")
        calls = graphs["head"].calls
        cold = head.coldness(self.clock, calls, judgement.candidate_us or 0.0)
        return Comparison(
            case, judgement, verified, samples, len(head.programs), calls, head.programs[0].memory.nbytes, cold
        )

    def _impossible(self, case: Case, expected: Expected, rotation: Rotation, calls: int, samples: Samples) -> str:
        """Why the launches cannot have done their work in this time, or an empty string."""
        if not self.roofline_gbps:
            return ""
        steps = rotation.programs[0].steps
        needs = needs_of(case, steps, expected.inputs, expected.fields, rotation.filled, calls)
        return too_fast(self.head, median(samples.us), max(samples.mhz), needs, self.roofline_gbps)

    def _anew(
        self, graphs: Mapping[str, TimedGraph], launches: Mapping[str, Sequence[Callable[[], None]]]
    ) -> dict[str, TimedGraph]:
        """Capture graphs of the same launches in random order, and replay each once.

        One of two graphs of the same launches may be 2 % slower than the other for as long as both exist.
        """
        made = {}
        for name in self.order.sample(sorted(graphs), len(graphs)):
            made[name] = TimedGraph(capture(self.clock, launches[name], graphs[name].calls), graphs[name].calls)
            with self.clock.stream as stream:
                made[name].graph.launch(stream)
        return made

    def _wrong(self, timed: TimedGraph, rotation: Rotation, expected: Expected) -> str:
        """Replay a graph on poisoned copies and compare the first, the last and one between; the first error."""
        with self.clock.stream as stream:
            rotation.poison(POISON)
            timed.graph.launch(stream)
            stream.synchronize()
        for which, outcome in rotation.outcomes(POISON, self.order):
            if outcome.trespass:
                return f"does wrong on {which}: {outcome.trespass}"
            for name in expected.fields:
                written = outcome.outputs[name]
                if written.size and equal_bytes(written, POISON):
                    return f"wrote nothing to {name} of {which}"
                if not self.head.accepts(written, expected.values[name]):
                    return f"wrote other bytes to {name} of {which}"
        return ""


def rounds_for(verdict: Performance) -> int:
    """The number of rounds that a verdict needs."""
    if verdict is Performance.AMBIGUOUS:
        return MOST
    return CONFIRMED if verdict in CHANGED else FEWEST
