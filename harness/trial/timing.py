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
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from harness.clock import Clock
from harness.device.device import Outcome
from harness.device.subject import SubjectProgram
from harness.trial.looks import same
from harness.trial.offence import Caught, Offence


class TimedSubject:
    """What a bench needs to know of a subject on a case.

    programs: one on each copy of the case's memory
    data: the inputs it is timed on; judged: which of them, and what it wrote for them
    calls: that a round holds; poison_byte: what outputs hold before each
    """

    def __init__(self, programs: Sequence[SubjectProgram], data: Sequence[Mapping[str, np.ndarray]], clock: Clock):
        self.programs, self.clock, self.data = programs, clock, data
        self.program, self.calls = programs[0], 1
        self.poison_byte = secrets.randbelow(255) + 1
        self._uploaded = [{name: self.program.uploaded(array) for name, array in each.items()} for each in data]
        self._random = random.SystemRandom()
        self._graph: Any = None
        self._chosen: list[int] = []
        self._wrong: list[list[Any]] = []  # of each round: whether each copy was
        self._references: list[Outcome] = []
        self._steady = True  # whether it writes the same each time
        self.judged: list[tuple[int, Outcome]] = []
        self.program.synchronize()

    def begin(self) -> None:
        """Warm up, capture if the case is a graph, and keep what the subject writes. On the clock's stream."""
        self._fill([0] * len(self.programs))
        self.program.call()
        if self.program.case.mode == "graph":
            self._graph = self.program.passes([program.call for program in self.programs], self.clock)
            self.calls = self._graph.calls
        for number in range(len(self.data)):
            first, again = (self._reference(number) for _ in range(2))
            self._references.append(first)
            self._steady &= same(first.outputs, again.outputs)
        self.judged = list(enumerate(self._references))
        # Random bits may be declared to be its own. Of any other, a round is wrong that is not like the first.
        self._steady |= not self.program.subject.conventions

    def enqueue(self) -> None:
        """One round; nothing here waits."""
        if self._graph is None:
            self.program.call()
        else:
            self._graph.launch(self.clock.stream)

    def _reference(self, number: int) -> Outcome:
        self._fill([number] * len(self.programs))
        self.enqueue()
        return self.program.outcome(self.poison_byte)

    def arm(self) -> None:
        """Before a round: compare the last, draw which data each copy gets, and poison."""
        self.compare()
        self._chosen = [self._random.randrange(len(self.data)) for _ in self.programs]
        self._fill(self._chosen)

    def compare(self) -> None:
        """After a round: note which copies are not what the subject wrote for these data before."""
        if self._chosen:
            self._wrong.append([self._differs(*pair) for pair in zip(self.programs, self._chosen, strict=True)])

    def end(self) -> None:
        """Compare the last round, and wait."""
        self.compare()
        if not self._steady:
            for copy in {0, self._random.randrange(len(self.programs)), len(self.programs) - 1}:
                self.judged.append((self._chosen[copy], self.programs[copy].outcome(self.poison_byte)))
        self.program.synchronize()

    def caught(self) -> Caught | None:
        """What the subject did in the timed rounds, as far as it can be told without an oracle. After `compare`."""
        for number, program in enumerate(self.programs):
            sentence = program.memory.trespass(self.poison_byte)
            if sentence:
                offence = Offence.MODIFIES_INPUTS if sentence.startswith("input") else Offence.WRITES_OUTSIDE
                return Caught(offence, f"while timed, copy {number + 1} of {len(self.programs)}: {sentence}")
        rounds = [[bool(flag) for flag in flags] for flags in self._wrong]
        wrong = sum(map(any, rounds))
        if not wrong:
            return None
        count = len(self.programs)
        never = [number for number in range(count) if all(flags[number] for flags in rounds)]
        if never and 0 not in never:
            return Caught(
                Offence.FIRST_ROTATION,
                f"of {count} copies of the memory {len(never)} were wrong in each of {len(rounds)} timed rounds, "
                f"copy {never[0] + 1} for one, and copy 1 was right",
            )
        return Caught(
            Offence.NOT_IN_TIMING,
            f"in {wrong} of {len(rounds)} timed rounds its outputs were not what it wrote for the same data before",
        )

    def stale(self) -> bool:
        """Whether it wrote the same for both sets of data."""
        one, another = (outcome.outputs for outcome in self._references)
        return same(one, another)

    @property
    def words(self) -> str:
        """How it was timed."""
        how = self._graph.words if self._graph else self.clock.words
        compared = "compared" if self._steady else "looked at for having been written, because no two are alike"
        return f"{how}; every round on data and poison drawn for it, and {compared}"

    @property
    def captured(self) -> bool:
        """Whether a graph is timed."""
        return self._graph is not None

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
    """How far data are moved along, twice, as nobody can know before."""
    return secrets.randbits(31), secrets.randbits(31)
