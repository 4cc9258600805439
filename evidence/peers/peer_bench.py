"""One contest: check the bytes of every implementation, then time all of them in random order."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from evidence.peers.contests import Contest
from evidence.peers.implementations import Implementation, OurKernels, Peer
from evidence.peers.prepared import CasePreparer, PreparedCase
from harness.bench.gpu_timer import Clock, sample
from harness.bench.rounds import TimedGraph, take
from harness.bench.timed import POISON
from harness.errors import CaseError
from harness.subjects.audit import conventions
from harness.subjects.subject import load
from harness.suite.physics import bytes_moved
from harness.verdict import Verdict

WARM_UP, ROUNDS = 3, 20  # eager rounds
OURS = "ours"
Implementations = Mapping[str, Implementation]
# Wrong bytes are timed as well, because they take the same work; the table shows the verdict beside the time.
TIMED = (Verdict.PASS, Verdict.CONVENTION, Verdict.MISMATCH)

METHOD = (
    f"each side its own call alone, in random turns on the same inputs; eager: {WARM_UP} + {ROUNDS} rounds, each "
    f"behind a flush of the L2; graph: {ROUNDS} rounds of graphs, calls on copies of all memory in turn, at least 3x L2"
)


@dataclass(frozen=True)
class PeerResult:
    """Verdict and times of one implementation.

    verdict: PASS for the expected bytes, CONVENTION, EXCLUDED, or a failure; reasons: its causes, or the conventions
    us: median time of a call, by mode; samples: us of every round, by mode
    exposed: share of the eager rounds in which the GPU waited for the host; no_graph: why it has no graph
    """

    side: str
    verdict: str
    reasons: tuple[str, ...] = ()
    us: dict[str, float] = field(default_factory=dict)
    exposed: float = 0.0
    no_graph: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ContestResult:
    """One contest. moved: bytes that a call must move; results: ours first"""

    contest: Contest
    moved: int
    results: tuple[PeerResult, ...]


@dataclass(frozen=True)
class Check:
    """A verdict. reasons: its causes, or the conventions; wrong: by field, as `PreparedCase.wrong` counts"""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    wrong: dict[str, int] = field(default_factory=dict)


class PeerBench:
    def __init__(self, preparer: CasePreparer, clock: Clock):
        self.preparer, self.clock = preparer, clock
        self.order = random.Random(0)

    def run(self, contest: Contest) -> ContestResult:
        """Check and time every implementation. Raises CaseError for errors of ours; a peer's error is its result."""
        prepared = self.preparer.prepare(contest.case)
        ours = OurKernels(prepared.setup)
        moved = bytes_moved(ours.program.steps, prepared.setup.memories[0].inputs, prepared.fields)
        running: dict[str, Implementation] = {OURS: ours}
        checks = {OURS: self._check(prepared, ours, frozenset())}
        for name in contest.peers:
            subject = load(name)
            why_not = subject.absent() or subject.refuses(contest.case)
            if why_not:
                checks[name] = Check(Verdict.EXCLUDED, (why_not,))
                continue
            try:
                side = Peer(prepared.setup, subject, prepared.layouts)
                checks[name] = self._check(prepared, side, subject.conventions)
            except Exception as error:  # a peer's package may raise anything
                checks[name] = Check(Verdict.LAUNCH_ERROR, (error_line(error),))
                continue
            if checks[name].verdict in TIMED:
                running[name] = side
        return ContestResult(contest, moved, tuple(self._times(prepared, running, checks)))

    def _check(self, prepared: PreparedCase, side: Implementation, declared: frozenset[str]) -> Check:
        with prepared.setup.stream():
            side.launch()  # the first call may compile
            side.poison(POISON)
            side.launch()
            side.deliver()
        return check_outputs(prepared, declared)

    def _times(self, prepared: PreparedCase, running: Implementations, checks: Mapping[str, Check]) -> list[PeerResult]:
        eager, exposed = self._eager(prepared, running)
        graphs, no_graph = self._capture(prepared, running)
        replayed = take(self.clock, graphs, ROUNDS, self.order) if graphs else {}
        results = []
        for name, found in checks.items():
            samples = {}
            if name in eager:
                samples["eager"] = [1e6 * seconds for seconds in eager[name]]
            if name in replayed:
                samples["graph"] = list(replayed[name].us)
                found = self._check_graph(prepared, running[name], graphs[name], found)
            us = {mode: round(median(values), 3) for mode, values in samples.items()}
            share, why_not = exposed.get(name, 0.0), no_graph.get(name, "")
            results.append(PeerResult(name, str(found.verdict), found.reasons, us, share, why_not, samples))
        return results

    def _eager(
        self, prepared: PreparedCase, running: Implementations
    ) -> tuple[dict[str, list[float]], dict[str, float]]:
        """Seconds of every round, and the share of rounds in which the GPU waited for the host."""
        found: dict[str, list[float]] = {name: [] for name in running}
        late = dict.fromkeys(running, 0)
        with prepared.setup.stream():
            for number in range(WARM_UP + ROUNDS):
                for name in self.order.sample(sorted(running), len(running)):
                    seconds = sample(self.clock, running[name].launch, 1)
                    if number >= WARM_UP:
                        found[name] += seconds
                        late[name] += self.clock.exposed[-1]
        return found, {name: count / ROUNDS for name, count in late.items()}

    def _capture(
        self, prepared: PreparedCase, running: Implementations
    ) -> tuple[dict[str, TimedGraph], dict[str, str]]:
        graphs, no_graph = {}, {}
        for name, side in running.items():
            try:
                with prepared.setup.stream():
                    graphs[name] = side.graph()
            except Exception as error:  # a peer's package may raise anything
                if name == OURS:
                    raise
                no_graph[name] = error_line(error)
        return graphs, no_graph

    def _check_graph(self, prepared: PreparedCase, side: Implementation, graph: TimedGraph, before: Check) -> Check:
        """Check the output of the timed graph. before: the check of the previous launch"""
        with prepared.setup.stream() as stream:
            side.poison(POISON)
            graph.graph.launch(stream)
            side.deliver()
        for name in prepared.fields:
            if prepared.unwritten(name, POISON):
                return Check(Verdict.UNWRITTEN, (f"the timed graph wrote nothing to {name}",))
        if prepared.bounded:  # sums may be in another order in each launch
            return check_outputs(prepared, frozenset())
        wrong = {name: prepared.wrong(name) for name in prepared.fields}
        # Random bits may differ between launches.
        if wrong != before.wrong and prepared.setup.case.flags.get("rounding") != "sr":
            return Check(Verdict.NONDETERMINISTIC, ("the timed graph wrote other bytes than a launch before it",))
        return before


def check_outputs(prepared: PreparedCase, declared: frozenset[str]) -> Check:
    """Check the outputs, which were filled with POISON before the launch."""
    trespass = prepared.trespass(POISON)
    if trespass:
        return Check(Verdict.OUT_OF_BOUNDS, (trespass,))
    wrong = {name: prepared.wrong(name) for name in prepared.fields}
    for name in prepared.fields:
        if wrong[name] and prepared.unwritten(name, POISON):
            return Check(Verdict.UNWRITTEN, (f"nothing was written to {name}",), wrong)
    if not any(wrong.values()):
        return Check(Verdict.PASS, (), wrong)
    reasons = conventions.explain(prepared.setup.case, *prepared.on_host(), declared) if declared else None
    if reasons is None:
        described = tuple(prepared.describe(name, count) for name, count in wrong.items() if count)
        return Check(Verdict.MISMATCH, described, wrong)
    return Check(Verdict.CONVENTION, reasons, wrong)


def error_line(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return words if isinstance(error, CaseError) else f"{type(error).__name__}: {words[:300]}"
