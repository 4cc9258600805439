"""One contest: bytes of every side first, then times of all in random turns."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from harness.bench.gpu_timer import Clock, sample
from harness.bench.timed import POISON
from harness.duel import sampling
from harness.errors import CaseError
from harness.peers.contests import Contest
from harness.peers.ground import Ground, Grounds
from harness.peers.sides import Ours, Side, Theirs
from harness.roofline import bytes_moved
from harness.subjects.audit import conventions
from harness.subjects.subject import load
from harness.verdict import Verdict

WARM_UP, ROUNDS = 3, 20  # eager rounds
OURS = "ours"
# What is wrong in some bytes does the work all the same; a table that shows its time shows the verdict beside it.
TIMED = (Verdict.PASS, Verdict.CONVENTION, Verdict.MISMATCH)

METHOD = (
    f"each side its own call alone, in random turns on the same inputs; eager: {WARM_UP} + {ROUNDS} rounds, each "
    f"behind a flush of the L2; graph: {ROUNDS} rounds of graphs, calls on copies of all memory in turn, at least 3x L2"
)


@dataclass(frozen=True)
class Outcome:
    """What became of one side.

    verdict: PASS for the demanded bytes, CONVENTION, EXCLUDED, or a failure; says: why, or which conventions
    us: median of a call, by mode; samples: us of every round, by mode
    exposed: share of the eager rounds in which the GPU waited for the host; no_graph: why there is no graph of it
    """

    side: str
    verdict: str
    says: tuple[str, ...] = ()
    us: dict[str, float] = field(default_factory=dict)
    exposed: float = 0.0
    no_graph: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Met:
    """A contest that was held. moved: bytes a call must move; ours first among the outcomes"""

    contest: Contest
    moved: int
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class Judged:
    """A verdict. says: why, or which conventions; wrong: of each field, as `Ground.wrong` counts"""

    verdict: Verdict
    says: tuple[str, ...] = ()
    wrong: dict[str, int] = field(default_factory=dict)


class Arena:
    """Holds contests one after the other on one GPU."""

    def __init__(self, grounds: Grounds, clock: Clock):
        self.grounds, self.clock = grounds, clock
        self.order = random.Random(0)

    def meet(self, contest: Contest) -> Met:
        """Judge and time everybody. Never raises for what a side does wrong, only CaseError for what ours does."""
        ground = self.grounds.prepare(contest.case)
        ours = Ours(ground.place)
        moved = bytes_moved(ours.program.steps, ground.place.memories[0].inputs, ground.fields)
        sides: dict[str, Side] = {OURS: ours}
        judged = {OURS: self._judged(ground, ours, frozenset())}
        for name in contest.peers:
            subject = load(name)
            why_not = subject.absent() or subject.refuses(contest.case)
            if why_not:
                judged[name] = Judged(Verdict.EXCLUDED, (why_not,))
                continue
            try:
                side = Theirs(ground.place, subject, ground.layouts)
                judged[name] = self._judged(ground, side, subject.conventions)
            except Exception as error:  # whatever a package of others lets out
                judged[name] = Judged(Verdict.LAUNCH_ERROR, (told(error),))
                continue
            if judged[name].verdict in TIMED:
                sides[name] = side
        return Met(contest, moved, tuple(self._timed(ground, sides, judged)))

    def _judged(self, ground: Ground, side: Side, declared: frozenset[str]) -> Judged:
        with ground.place.stream():
            side.launch()  # which may compile
            side.poison(POISON)
            side.launch()
            side.deliver()
        return judge(ground, declared)

    def _timed(self, ground: Ground, sides: Mapping[str, Side], judged: Mapping[str, Judged]) -> list[Outcome]:
        eager, exposed = self._eager(ground, sides)
        graphs, no_graph = self._captured(ground, sides)
        replayed = sampling.take(self.clock, graphs, ROUNDS, self.order) if graphs else {}
        outcomes = []
        for name, found in judged.items():
            samples = {}
            if name in eager:
                samples["eager"] = [1e6 * seconds for seconds in eager[name]]
            if name in replayed:
                samples["graph"] = list(replayed[name].us)
                found = self._judged_again(ground, sides[name], graphs[name], found)
            us = {mode: round(median(values), 3) for mode, values in samples.items()}
            share, why_not = exposed.get(name, 0.0), no_graph.get(name, "")
            outcomes.append(Outcome(name, str(found.verdict), found.says, us, share, why_not, samples))
        return outcomes

    def _eager(self, ground: Ground, sides: Mapping[str, Side]) -> tuple[dict[str, list[float]], dict[str, float]]:
        """Seconds of every round, and the share of rounds in which the GPU waited for the host."""
        found: dict[str, list[float]] = {name: [] for name in sides}
        late = dict.fromkeys(sides, 0)
        with ground.place.stream():
            for turn in range(WARM_UP + ROUNDS):
                for name in self.order.sample(sorted(sides), len(sides)):
                    seconds = sample(self.clock, sides[name].launch, 1)
                    if turn >= WARM_UP:
                        found[name] += seconds
                        late[name] += self.clock.exposed[-1]
        return found, {name: count / ROUNDS for name, count in late.items()}

    def _captured(self, ground: Ground, sides: Mapping[str, Side]) -> tuple[dict[str, sampling.Side], dict[str, str]]:
        """Graphs, and why there is none of the others."""
        graphs, no_graph = {}, {}
        for name, side in sides.items():
            try:
                with ground.place.stream():
                    graphs[name] = side.graph()
            except Exception as error:  # whatever a package of others lets out
                if name == OURS:
                    raise
                no_graph[name] = told(error)
        return graphs, no_graph

    def _judged_again(self, ground: Ground, side: Side, graph: sampling.Side, before: Judged) -> Judged:
        """The verdict on what the timed graph leaves, given that on the launch before it."""
        with ground.place.stream() as stream:
            side.poison(POISON)
            graph.graph.launch(stream)
            side.deliver()
        for name in ground.fields:
            if ground.untouched(name, POISON):
                return Judged(Verdict.UNWRITTEN, (f"the timed graph wrote nothing to {name}",))
        if ground.bounded:  # and not to a byte, so that another order of a sum may be another every time
            return judge(ground, frozenset())
        wrong = {name: ground.wrong(name) for name in ground.fields}
        # Random bits may be others in every launch.
        if wrong != before.wrong and ground.place.case.flags.get("rounding") != "sr":
            return Judged(Verdict.NONDETERMINISTIC, ("the timed graph wrote other bytes than a launch before it",))
        return before


def judge(ground: Ground, declared: frozenset[str]) -> Judged:
    """The verdict on what is in the outputs, which were filled with POISON before."""
    trespass = ground.trespass(POISON)
    if trespass:
        return Judged(Verdict.OUT_OF_BOUNDS, (trespass,))
    wrong = {name: ground.wrong(name) for name in ground.fields}
    for name in ground.fields:
        if wrong[name] and ground.untouched(name, POISON):
            return Judged(Verdict.UNWRITTEN, (f"nothing was written to {name}",), wrong)
    if not any(wrong.values()):
        return Judged(Verdict.PASS, (), wrong)
    reasons = conventions.explain(ground.place.case, *ground.on_host(), declared) if declared else None
    if reasons is None:
        return Judged(
            Verdict.MISMATCH, tuple(ground.words(name, count) for name, count in wrong.items() if count), wrong
        )
    return Judged(Verdict.CONVENTION, reasons, wrong)


def told(error: BaseException) -> str:
    """An exception in a line."""
    words = " ".join(str(error).split())
    return words if isinstance(error, CaseError) else f"{type(error).__name__}: {words[:300]}"
