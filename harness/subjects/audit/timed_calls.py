"""A subject's calls as a bench times them: every round on new data, every round's bytes compared, no time believed.

Before each round every copy of the case's memory gets data and poison of its own; after it the outputs must be those
that the subject itself wrote for the same set before, moved as the data were. Those are what the oracles judge, and
some rounds as well. `FreshData` says how new the data are, `WallClock` what bounds the time that the subject's process
reports. A subject with random bits of its own, if it declares so, is judged by a round of each kind.
"""

from __future__ import annotations

import math
import operator
import random
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

from harness.bench.cold_copies import COLD, MOST_CALLS, copies_for
from harness.bench.gpu_timer import GpuClock, Report
from harness.bench.timed import Timed, WrongBytesError
from harness.contract.case import Case
from harness.device.device import Outcome
from harness.subjects import streams
from harness.subjects.audit.fresh_data import Draw, FreshData
from harness.subjects.audit.observations import same
from harness.subjects.audit.verify import explain
from harness.subjects.audit.violations import Finding, Violation, ViolationError
from harness.subjects.audit.wall_clock import PASS, ROUNDS, WallClock
from harness.subjects.device import SubjectDevice
from harness.verdict import Verdict
from harness.verify.expected import NUMPY_LARGEST_TIMED

SHARE = 4  # one part in so many of the free memory of the GPU is what copies may take


class TimedSubject(Timed):
    """A subject in its process, called eagerly or as a graph of one call on each copy of the memory.

    judged: draws whose outputs the oracles judge, with those; poison_byte: what outputs hold before each round
    """

    launches = 0

    def __init__(self, device: SubjectDevice, case: Case, clock: GpuClock):
        self._device, self._case, self._clock = device, case, clock
        self._is_graph = case.mode == "graph"
        self.fresh = FreshData(case, "cuda" if device.name == "cuda" else "cpu", NUMPY_LARGEST_TIMED)
        self.moved = sum(a.nbytes for a in self.fresh.sets[0].values()) + sum(
            field.nbytes for field in self.fresh.fields.values()
        )
        self._l2_bytes = int(device.identity()["l2_bytes"])
        self.poison_byte = secrets.randbelow(255) + 1
        self._random = random.SystemRandom()
        self._prepare(copies_for(self.moved, self._l2_bytes))
        self._uploaded = [
            {name: self.program.uploaded(array) for name, array in each.items()} for each in self.fresh.sets
        ]
        self._drawn: dict[int, Draw] = {}  # of the copies that the round writes
        self._wrong: list[dict[int, Any]] = []  # of each round: whether each copy was
        self._references: list[Outcome] = []
        self._steady = True  # whether it writes the same each time
        self._reported: list[float] = []
        self.judged: list[tuple[Draw, Outcome]] = []

    def _prepare(self, copies: int) -> None:
        device, case = self._device, self._case
        self.program = device.prepare(case, device.targets[0], self.fresh.sets[0], self.fresh.fields, copies)
        self.copies = copies
        self.calls = copies if self._is_graph else 1

    def current(self) -> AbstractContextManager[Any]:
        return streams.current(self._clock.stream)

    def begin(self) -> None:
        """Warm up, capture, take as many copies as the wall clock needs, and keep what the subject writes."""
        self._capture()
        longer = self._more_copies()
        if longer > self.copies:
            self._prepare(longer)
            self._capture()
        for number in range(len(self.fresh.sets)):
            first, again = (self._reference(number) for _ in range(2))
            self._references.append(first)
            self._steady &= same(first.outputs, again.outputs)
        self.judged = [(Draw(number), found) for number, found in enumerate(self._references)]
        # Random bits may be declared to be its own. Of any other, a round is wrong that is not like the first.
        self._steady |= not self._device.subject.conventions

    def _capture(self) -> None:
        self._fill({copy: Draw(0) for copy in range(self.copies)})
        self.program.launch(0)
        self.program.capture_timed()
        self._fill({copy: Draw(0) for copy in range(self.copies)})
        self.program.launch(None)

    def _more_copies(self) -> int:
        clock = WallClock(self.copies)
        for _ in range(3):
            clock.measure(lambda: self.program.launch(None), self.program.ping)
        wanted = math.ceil(PASS / max(clock.least, 1e-7))
        return min(wanted, MOST_CALLS, self.program.free_bytes() // SHARE // max(self.moved, 1))

    def _reference(self, number: int) -> Outcome:
        self._fill({0: Draw(number)})
        self.program.launch(0)
        return self.program.outcome(self.poison_byte)

    def enqueue(self) -> None:
        seconds, exposed = self.program.time(None if self._is_graph else next(iter(self._drawn), 0))
        self._clock.report = Report(seconds / self.calls, exposed)
        self._reported.append(seconds / self.calls)

    def before_round(self) -> None:
        """Compare the last round, draw what each copy gets, and poison."""
        self._compare()
        copies = range(self.copies) if self._is_graph else [self._random.randrange(self.copies)]
        self._fill_new(copies)

    def _fill_new(self, copies: Sequence[int]) -> None:
        self._drawn = {copy: self.fresh.draw() for copy in copies}
        self._fill(self._drawn)

    def _compare(self) -> None:
        if self._drawn:
            self._wrong.append({copy: self._differs(copy, drawn) for copy, drawn in self._drawn.items()})

    def end(self) -> None:
        """Compare the last round, and measure the passes that bound the times."""
        self._compare()
        self._judge_one()
        self._timed_rounds, self._wall = len(self._wrong), WallClock(self.copies)
        for _ in range(ROUNDS):
            self._fill_new(range(self.copies))
            self.program.synchronize()
            self._wall.measure(lambda: self.program.launch(None), self.program.ping)
            self._compare()
        self._judge_one()
        self.program.synchronize()

    def _judge_one(self) -> None:
        copy = self._random.choice(list(self._drawn))
        self.judged.append((self._drawn[copy], self.program.outcome(self.poison_byte, copy)))

    def check(self) -> None:
        """Raise ViolationError if the subject did wrong in the timed rounds, or on the data that it was timed on."""
        finding = self._wrong_rounds() or self._wrong_bytes() or self._wrong_passes()
        finding = finding or self._wall.finding(self._reported)
        if finding:
            raise ViolationError(finding.violation, finding.sentence)

    def _wrong_rounds(self) -> Finding | None:
        """What the subject did, as far as it shows without an oracle."""
        for number, memory in enumerate(self.program.memories):
            sentence = memory.trespass(self.poison_byte)
            if sentence:
                violation = Violation.MODIFIES_INPUTS if sentence.startswith("input") else Violation.WRITES_OUTSIDE
                return Finding(violation, f"while timed, copy {number + 1} of {self.copies}: {sentence}")
        timed = [{copy: bool(flag) for copy, flag in flags.items()} for flags in self._wrong[: self._timed_rounds]]
        wrong = sum(any(flags.values()) for flags in timed)
        if not wrong:
            return None
        never = [copy for copy in range(self.copies) if all(flags.get(copy, False) for flags in timed)]
        if self._is_graph and never and 0 not in never:
            return Finding(
                Violation.FIRST_ROTATION,
                f"of {self.copies} copies of the memory {len(never)} were wrong in each of {len(timed)} timed rounds, "
                f"copy {never[0] + 1} for one, and copy 1 was right",
            )
        return Finding(
            Violation.NOT_IN_TIMING,
            f"in {wrong} of {len(timed)} timed rounds its outputs were not what it wrote for the same data before",
        )

    def _wrong_passes(self) -> Finding | None:
        """Whether the graph whose passes bound the times did other work than the timed rounds."""
        if not any(bool(flag) for flags in self._wrong[self._timed_rounds :] for flag in flags.values()):
            return None
        what = "its graph writes other bytes than its calls, so that no wall clock bounds their time"
        return Finding(Violation.NOT_CAPTURED, what)

    def _wrong_bytes(self) -> Finding | None:
        """Compare its outputs with the oracles on the data that it was timed on; the violation, or None."""
        for drawn, outcome in self.judged:
            expected, outputs = self.fresh.expected(drawn), outcome.outputs
            if expected.disagreement:
                raise WrongBytesError(Verdict.MISMATCH, expected.disagreement)
            wrong = [n for n, value in expected.values.items() if not self._device.accepts(outputs[n], value)]
            unwritten = any(bool((outputs[name] == self.poison_byte).all()) for name in wrong)
            if unwritten or (wrong and not explain(self._device, self._case, expected, outputs)):
                return self._named(outputs[wrong[0]], wrong)
        return None

    def _named(self, first: Any, wrong: list[str]) -> Finding:
        """The finding for wrong bytes. first: of the first field that is wrong"""
        if bool((first == self.poison_byte).all()):
            if self._is_graph:
                return Finding(Violation.NOT_CAPTURED, f"the graph that was to be timed writes nothing to {wrong[0]}")
            return Finding(Violation.NOT_IN_TIMING, f"right in verification, and timed it writes nothing to {wrong[0]}")
        if all(same(found.outputs, self._references[0].outputs) for found in self._references):
            return Finding(Violation.CACHES_BY_POINTER, f"timed, it writes the same {wrong[0]} whatever data lie there")
        sentence = f"right in verification, and wrong in {', '.join(wrong)} on the data timed"
        return Finding(Violation.NOT_IN_TIMING, sentence)

    def method(self, us: float) -> str:
        how = self._clock.method
        if self._is_graph:
            filled = self.program.memory.nbytes * self.copies / self._l2_bytes
            cold = "cold by construction" if filled >= COLD else "warm"
            how = f"graphs of {self.calls} calls, {cold}: {self.copies} copies fill {filled:.1f}x L2"
        compared = "compared" if self._steady else "looked at for having been written, because no two are alike"
        data = "rows permuted for it" if self.fresh.groups else f"one of {len(self.fresh.sets)} sets of data"
        bound = f"no call below {1e6 * self._wall.least:.2f} us by the wall clock"
        return f"{how}; every round on {data} and poison drawn for it, and {compared}; {bound}"

    def _fill(self, drawn: dict[int, Draw]) -> None:
        for copy, one in drawn.items():
            memory = self.program.memories[copy]
            memory.put(self.fresh.inputs(one, self._uploaded[one.number], self.program.of))
            for guarded in memory.outputs.values():
                guarded.poison(self.poison_byte)

    def _differs(self, copy: int, drawn: Draw) -> Any:
        before, flags = self._references[drawn.number].outputs, []
        for name, guarded in self.program.memories[copy].outputs.items():
            payload = guarded.payload
            wanted = self.fresh.output(name, before[name], drawn, self.program.of) if self._steady else None
            if wanted is not None:
                flags.append((payload != wanted).any())
            elif payload.size:
                flags.append((payload == self.poison_byte).all())
                if drawn.order is not None:
                    flags.append((payload == before[name]).all())
        return reduce(operator.or_, flags, False)
