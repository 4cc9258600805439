"""One contest: bytes of every side first, then times of all in random turns."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from harness import subjects
from harness.bench import POISON
from harness.clock import Clock, sample
from harness.duel import sampling
from harness.errors import CaseError
from harness.peers.contests import Contest
from harness.peers.ground import Ground, Grounds
from harness.peers.sides import Ours, Side, Theirs
from harness.roofline import bytes_moved
from harness.subjects import Subject, conventions
from harness.verdict import Verdict

WARM_UP, ROUNDS = 3, 20  # eager rounds
OURS = "ours"

METHOD = (
    f"each side its own call alone, in random turns on the same inputs; eager: {WARM_UP} + {ROUNDS} rounds, each behind a "
    f"flush of the L2; graph: {ROUNDS} rounds of graphs of calls on copies of all memory in turn, at least 3x L2"
)


@dataclass(frozen=True)
class Outcome:
    """What became of one side. us: median of a call by mode; exposed: by mode, share of rounds in which the GPU waited

    verdict: EXCLUDED, a failure, PASS for the demanded bytes, or CONVENTION; says: why, or which conventions
    no_graph: why there is no graph of it
    samples: us of every round by mode
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


class Arena:
    """Holds contests one after the other on one GPU."""

    def __init__(self, grounds: Grounds, clock: Clock):
        self.grounds, self.clock = grounds, clock
        self.order = random.Random(0)

    def meet(self, contest: Contest) -> Met:
        """Judge and time everybody. Never raises for what a side does wrong."""
        ground = self.grounds.prepare(contest.case)
        ours = Ours(ground.place)
        moved = bytes_moved(ours.program.steps, ground.place.memories[0].inputs, ground.fields)
        sides: dict[str, Side] = {OURS: ours}
        verdicts: dict[str, tuple[str, tuple[str, ...]]] = {OURS: self._judged(ground, ours, frozenset())}
        for name in contest.peers:
            subject = subjects.load(name)
            label = subject.name
            why_not = subject.absent() or subject.refuses(contest.case)
            if why_not:
                verdicts[label] = (Verdict.EXCLUDED, (why_not,))
                continue
            try:
                side = Theirs(ground.place, subject, ground.layouts)
                verdicts[label] = self._judged(ground, side, subject.conventions)
            except Exception as error:  # whatever a package of others lets out
                verdicts[label] = (Verdict.LAUNCH_ERROR, (told(error),))
                continue
            if verdicts[label][0] in TIMED:
                sides[label] = side
        return Met(contest, moved, tuple(self._timed(ground, sides, verdicts)))

    def _judged(self, ground: Ground, side: Side, declared: frozenset[str]) -> tuple[str, tuple[str, ...]]:
        """The verdict on what one launch leaves in poisoned outputs."""
        with ground.place.stream():
            side.launch()  # which may compile
            side.poison(POISON)
            side.launch()
            side.deliver()
        return judge(ground, declared)

    def _timed(
        self, ground: Ground, sides: Mapping[str, Side], verdicts: Mapping[str, tuple[str, tuple[str, ...]]]
    ) -> list[Outcome]:
        eager, exposed = self._eager(ground, sides)
        graphs, no_graph = self._captured(ground, sides)
        found = sampling.take(self.clock, graphs, ROUNDS, self.order) if graphs else {}
        outcomes = []
        for name, (verdict, says) in verdicts.items():
            samples = {}
            if name in eager:
                samples["eager"] = [1e6 * seconds for seconds in eager[name]]
            if name in found:
                samples["graph"] = list(found[name].us)
                wrong = self._replayed(ground, sides[name], graphs[name], says)
                if wrong:
                    verdict, says = Verdict.NONDETERMINISTIC, (wrong,)
            us = {mode: round(median(values), 3) for mode, values in samples.items()}
            share = exposed.get(name, 0.0)
            outcomes.append(Outcome(name, str(verdict), says, us, share, no_graph.get(name, ""), samples))
        return outcomes

    def _eager(self, ground: Ground, sides: Mapping[str, Side]) -> tuple[dict[str, list[float]], dict[str, float]]:
        found: dict[str, list[float]] = {name: [] for name in sides}
        late: dict[str, list[bool]] = {name: [] for name in sides}
        with ground.place.stream():
            for turn in range(WARM_UP + ROUNDS):
                for name in self.order.sample(sorted(sides), len(sides)):
                    seconds = sample(self.clock, sides[name].launch, 1)
                    if turn >= WARM_UP:
                        found[name] += seconds
                        late[name].append(self.clock.exposed[-1])
        return found, {name: sum(times) / len(times) for name, times in late.items()}

    def _captured(
        self, ground: Ground, sides: Mapping[str, Side]
    ) -> tuple[dict[str, sampling.Side], dict[str, str]]:
        graphs, no_graph = {}, {}
        for name, side in sides.items():
            try:
                with ground.place.stream():
                    graphs[name] = side.graph()
            except Exception as error:  # whatever a package of others lets out
                no_graph[name] = told(error)
        return graphs, no_graph

    def _replayed(self, ground: Ground, side: Side, graph: sampling.Side, says: tuple[str, ...]) -> str:
        """What is wrong with the bytes of the timed graph; of a peer, if they are others than those judged before."""
        before = {name: ground.wrong(name) for name in ground.fields} if says else {}
        with ground.place.stream() as stream:
            side.poison(POISON)
            graph.graph.launch(stream)
            side.deliver()
        del before
        for name in ground.fields:
            if ground.untouched(name, POISON):
                return f"the timed graph wrote nothing to {name}"
        if not says and any(ground.wrong(name) for name in ground.fields):
            return "the timed graph wrote other bytes than the launch that was judged"
        return ""


TIMED = (Verdict.PASS, Verdict.CONVENTION, Verdict.MISMATCH)


def judge(ground: Any, declared: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The verdict on what is in the outputs, which were filled with POISON before."""
    trespass = ground.place.memories[0].trespass(POISON)
    if trespass:
        return Verdict.OUT_OF_BOUNDS, (trespass,)
    wrong = {name: ground.wrong(name) for name in ground.fields}
    for name in ground.fields:
        if wrong[name] and ground.untouched(name, POISON):
            return Verdict.UNWRITTEN, (f"nothing was written to {name}",)
    if not any(wrong.values()):
        return Verdict.PASS, ()
    reasons = conventions.explain(ground.place.case, *ground.on_host(), declared) if declared else None
    if reasons is None:
        return Verdict.MISMATCH, tuple(f"{name}: {count:,} bytes" for name, count in wrong.items() if count)
    return Verdict.CONVENTION, reasons


def told(error: BaseException) -> str:
    """An exception in a line."""
    words = " ".join(str(error).split())
    return words if isinstance(error, CaseError) else f"{type(error).__name__}: {words[:300]}"


_ = Subject
