"""A subject's calls as a bench times them: every round on data drawn for it, and every round's bytes compared.

Two sets of data are drawn when the timing begins, by numbers that the operating system gives, so that no answer to them
exists in this process until the timing is over. Before each round every copy of the case's memory gets one of the two,
and poison in its outputs; after it the outputs must be what the subject itself wrote for these data before. That is
what the oracles then judge. A subject with random bits of its own, if it declares so, is judged by the last round, too.
"""

from __future__ import annotations

import operator
import random
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

from harness.bench.cold_copies import COLD, Passes, copies_for
from harness.bench.gpu_timer import GpuClock
from harness.bench.timed import Timed, WrongBytesError
from harness.contract.case import Case
from harness.device.device import Outcome
from harness.subjects import streams
from harness.subjects.audit.fresh_data import moved_along
from harness.subjects.audit.observations import same
from harness.subjects.audit.verify import explain
from harness.subjects.audit.violations import Finding, Violation, ViolationError
from harness.subjects.device import SubjectDevice
from harness.subjects.program import SubjectProgram
from harness.verdict import Verdict
from harness.verify.expected import NUMPY_LARGEST_TIMED, expect_on, fields_of


class TimedSubject(Timed):
    """A subject on one set of data and then another; a graph on as many copies as one of our kernels.

    programs: one on each copy of the case's memory
    data: the inputs it is timed on; judged: which of them, and what it wrote for them
    poison_byte: what outputs hold before each round
    """

    launches = 0

    def __init__(self, device: SubjectDevice, case: Case, clock: GpuClock):
        self._device, self._case, self._clock = device, case, clock
        self.data = [moved_along(case, distance) for distance in fresh_distances()]
        fields = fields_of(case)
        self.moved = sum(array.nbytes for array in self.data[0].values()) + sum(f.nbytes for f in fields.values())
        self.program, self.calls = device.prepare(case, device.targets[0], self.data[0], fields), 1
        self._l2_bytes = int(device.identity()["l2_bytes"])
        copies = copies_for(self.program.memory.nbytes, self._l2_bytes) if case.mode == "graph" else 1
        self.programs = [self.program, *(self.program.twin() for _ in range(copies - 1))]
        self.poison_byte = secrets.randbelow(255) + 1
        self._uploaded = [{name: self.program.uploaded(array) for name, array in each.items()} for each in self.data]
        self._random = random.SystemRandom()
        self._graph: Passes | None = None
        self._chosen: list[int] = []
        self._wrong: list[list[Any]] = []  # of each round: whether each copy was
        self._references: list[Outcome] = []
        self._steady = True  # whether it writes the same each time
        self.judged: list[tuple[int, Outcome]] = []
        self.program.synchronize()

    def current(self) -> AbstractContextManager[Any]:
        return streams.current(self._clock.stream)

    def begin(self) -> None:
        """Warm up, capture if the case is a graph, and keep what the subject writes."""
        self._fill([0] * len(self.programs))
        self.program.call()
        if self._case.mode == "graph":
            with streams.errors(self._case.id):
                graph = streams.Graph(self._clock.stream, [program.call for program in self.programs])
                self._graph = Passes(self._clock, graph, len(self.programs))
            self.calls = self._graph.calls
        for number in range(len(self.data)):
            first, again = (self._reference(number) for _ in range(2))
            self._references.append(first)
            self._steady &= same(first.outputs, again.outputs)
        self.judged = list(enumerate(self._references))
        # Random bits may be declared to be its own. Of any other, a round is wrong that is not like the first.
        self._steady |= not self.program.subject.conventions

    def enqueue(self) -> None:
        if self._graph is None:
            self.program.call()
        else:
            self._graph.launch(self._clock.stream)

    def _reference(self, number: int) -> Outcome:
        self._fill([number] * len(self.programs))
        self.enqueue()
        return self.program.outcome(self.poison_byte)

    def before_round(self) -> None:
        """Compare the last round, draw which data each copy gets, and poison."""
        self._compare()
        self._chosen = [self._random.randrange(len(self.data)) for _ in self.programs]
        self._fill(self._chosen)

    def _compare(self) -> None:
        if self._chosen:
            self._wrong.append([self._differs(*pair) for pair in zip(self.programs, self._chosen, strict=True)])

    def end(self) -> None:
        self._compare()
        if not self._steady:
            for copy in {0, self._random.randrange(len(self.programs)), len(self.programs) - 1}:
                self.judged.append((self._chosen[copy], self.programs[copy].outcome(self.poison_byte)))
        self.program.synchronize()

    def check(self) -> None:
        """Raise ViolationError if the subject did wrong in the timed rounds, or on the data that it was timed on."""
        finding = self._wrong_rounds() or self._wrong_bytes()
        if finding:
            raise ViolationError(finding.violation, finding.sentence)

    def _wrong_rounds(self) -> Finding | None:
        """What the subject did, as far as it shows without an oracle."""
        for number, program in enumerate(self.programs):
            sentence = program.memory.trespass(self.poison_byte)
            if sentence:
                violation = Violation.MODIFIES_INPUTS if sentence.startswith("input") else Violation.WRITES_OUTSIDE
                return Finding(violation, f"while timed, copy {number + 1} of {len(self.programs)}: {sentence}")
        rounds = [[bool(flag) for flag in flags] for flags in self._wrong]
        wrong = sum(map(any, rounds))
        if not wrong:
            return None
        count = len(self.programs)
        never = [number for number in range(count) if all(flags[number] for flags in rounds)]
        if never and 0 not in never:
            return Finding(
                Violation.FIRST_ROTATION,
                f"of {count} copies of the memory {len(never)} were wrong in each of {len(rounds)} timed rounds, "
                f"copy {never[0] + 1} for one, and copy 1 was right",
            )
        return Finding(
            Violation.NOT_IN_TIMING,
            f"in {wrong} of {len(rounds)} timed rounds its outputs were not what it wrote for the same data before",
        )

    def _wrong_bytes(self) -> Finding | None:
        """Compare its outputs with the oracles, which see the timed data only now; the violation, or None."""
        for number, inputs in enumerate(self.data):
            where = "cuda" if self._device.name == "cuda" else "cpu"
            expected = expect_on(self._case, inputs, where, NUMPY_LARGEST_TIMED)
            if expected.disagreement:
                raise WrongBytesError(Verdict.MISMATCH, expected.disagreement)
            for outputs in (outcome.outputs for which, outcome in self.judged if which == number):
                wrong = [n for n, value in expected.values.items() if not self._device.accepts(outputs[n], value)]
                if wrong and not explain(self._device, self._case, expected, outputs):
                    return self._named(outputs[wrong[0]], wrong)
        return None

    def _named(self, first: Any, wrong: list[str]) -> Finding:
        """The finding for wrong bytes. first: of the first field that is wrong"""
        if bool((first == self.poison_byte).all()):
            if self._graph is not None:
                return Finding(Violation.NOT_CAPTURED, f"the graph that was to be timed writes nothing to {wrong[0]}")
            return Finding(Violation.NOT_IN_TIMING, f"right in verification, and timed it writes nothing to {wrong[0]}")
        if same(*(outcome.outputs for outcome in self._references)):
            return Finding(Violation.CACHES_BY_POINTER, f"timed, it writes the same {wrong[0]} whatever data lie there")
        sentence = f"right in verification, and wrong in {', '.join(wrong)} on the data timed"
        return Finding(Violation.NOT_IN_TIMING, sentence)

    def method(self, us: float) -> str:
        how = self._clock.method
        if self._graph is not None:
            filled = self.program.memory.nbytes * len(self.programs) / self._l2_bytes
            cold = "cold by construction" if filled >= COLD else "warm"
            how = f"graphs of {self.calls} calls, {cold}: {len(self.programs)} copies fill {filled:.1f}x L2"
        compared = "compared" if self._steady else "looked at for having been written, because no two are alike"
        return f"{how}; every round on data and poison drawn for it, and {compared}"

    def _fill(self, chosen: Sequence[int]) -> None:
        for program, number in zip(self.programs, chosen, strict=True):
            program.memory.put(self._uploaded[number])
            program.poison(self.poison_byte)

    def _differs(self, program: SubjectProgram, number: int) -> Any:
        reference, outputs = self._references[number].outputs, program.memory.outputs
        if self._steady:
            flags = [(guarded.payload != reference[name]).any() for name, guarded in outputs.items()]
        else:
            flags = [
                (guarded.payload == self.poison_byte).all() for guarded in outputs.values() if guarded.payload.size
            ]
        return reduce(operator.or_, flags, False)


def fresh_distances() -> tuple[int, int]:
    """Two distances for `moved_along` that no subject can know before."""
    return secrets.randbits(31), secrets.randbits(31)
