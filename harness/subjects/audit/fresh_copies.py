"""Copies of a case's memory for a subject: each gets new data in every round, and is compared afterwards."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from harness.device.device import Outcome
from harness.subjects.audit.fresh_data import Draw, FreshData
from harness.subjects.audit.observations import same
from harness.subjects.cuda_program import CudaSubjectProgram


@dataclass
class Written:
    """The subject's outputs for each set of data as drawn. steady: whether it writes the same each time"""

    outcomes: list[Outcome] = field(default_factory=list)
    steady: bool = True


class FreshCopies:
    """The copies of one program.

    uploaded: the inputs of every set of `fresh`, on the GPU; poison: what outputs hold before each round
    wrong: for each round, whether each copy that it wrote was wrong; drawn: the data of those copies
    """

    def __init__(
        self, program: CudaSubjectProgram, fresh: FreshData, uploaded: Sequence[Mapping[str, Any]], poison: int,
        written: Written,
    ):  # fmt: skip
        self.program, self._fresh, self._uploaded, self._poison = program, fresh, uploaded, poison
        self._written = written
        self.number = len(program.memories)
        self.wrong: list[dict[int, Any]] = []
        self.drawn: dict[int, Draw] = {}

    def capture(self) -> None:
        """Capture the subject's call on every copy, after calling it once."""
        same_data = {copy: Draw(0) for copy in range(self.number)}
        self._fill(same_data)
        self.program.launch(0)
        self.program.capture_timed()
        self._fill(same_data)
        self.program.launch(None)

    def remember(self) -> None:
        """Call the subject twice on each set, and keep its outputs."""
        for number in range(len(self._fresh.sets)):
            first, again = (self._reference(number) for _ in range(2))
            self._written.outcomes.append(first)
            self._written.steady &= same(first.outputs, again.outputs)

    def _reference(self, number: int) -> Outcome:
        self._fill({0: Draw(number)})
        self.program.launch(0)
        return self.program.outcome(self._poison)

    def fill(self, copies: Iterable[int]) -> None:
        """Draw the data of these copies for the next round."""
        self.drawn = {copy: self._fresh.draw() for copy in copies}
        self._fill(self.drawn)

    def compare(self) -> None:
        """Compare the outputs of the last round."""
        if self.drawn:
            self.wrong.append({copy: self._differs(copy, drawn) for copy, drawn in self.drawn.items()})

    def trespass(self) -> str:
        """A sentence on forbidden writes and their copy; empty if there are none."""
        for number, memory in enumerate(self.program.memories):
            sentence = memory.trespass(self._poison)
            if sentence:
                return f"copy {number + 1} of {self.number}: {sentence}"
        return ""

    def outcome(self, copy: int) -> tuple[Draw, Outcome]:
        return self.drawn[copy], self.program.outcome(self._poison, copy)

    def _fill(self, drawn: Mapping[int, Draw]) -> None:
        for copy, one in drawn.items():
            memory = self.program.memories[copy]
            memory.put(self._fresh.inputs(one, self._uploaded[one.number], self.program.of))
            for guarded in memory.outputs.values():
                guarded.poison(self._poison)

    def _differs(self, copy: int, drawn: Draw) -> Any:
        before, flags = self._written.outcomes[drawn.number].outputs, []
        for name, guarded in self.program.memories[copy].outputs.items():
            payload = guarded.payload
            wanted = self._fresh.output(name, before[name], drawn, self.program.of) if self._written.steady else None
            if wanted is not None:
                flags.append((payload != wanted).any())
            elif payload.size:
                flags.append((payload == self._poison).all())
                if drawn.order is not None:
                    flags.append((payload == before[name]).all())
        return reduce(operator.or_, flags, False)
