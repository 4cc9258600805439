"""Run one side of a pair: check its bytes, and whether they depend on unpromised bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.device.device import Device
from harness.expected.expected import Expected
from harness.subjects.card.device import with_card
from harness.subjects.card.form import MASKED, Form, Promised
from harness.subjects.card.verify import by_conventions
from harness.subjects.handshake.pair import Side
from harness.subjects.handshake.poison import RANDOM, Inputs, Leak, Poisoning, overwritten
from harness.verdict import Result, Story, Verdict
from harness.verify.judge import Approximation, Wrong, explained, on_host, run_all, wrong_fields
from harness.verify.verify import attempt, disagreeing, failed


@dataclass(frozen=True)
class Given:
    """An array handed to a side: its bytes in memory, a flat mask of the promised ones, and its producer's name."""

    content: np.ndarray
    promised: np.ndarray
    source: str


@dataclass(frozen=True)
class Done:
    """The verdict on one side. written: its outputs in memory form; poisoned: unpromised bytes, by array"""

    result: Result
    written: Mapping[str, np.ndarray]
    poisoned: Mapping[str, int] = field(default_factory=dict)


class Worker:
    """A side on a device."""

    def __init__(self, side: Side, device: Device):
        self.side = side
        self.device: Any = with_card(device, side.card) if side.card else device

    def work(self, case: Case, ours: Expected, given: Mapping[str, Given]) -> Done:
        """Run the side on the given arrays, and judge it. ours: the contract's values, in the case's own form."""
        found: list[Done] = []

        def run(empty: Result) -> Result:
            found.append(_Run(self, case, ours, given).judged(empty))
            return found[-1].result

        result = attempt(case, self.device, run)
        return replace(found[-1], result=result) if found else Done(result, {})


class _Run:
    def __init__(self, worker: Worker, case: Case, ours: Expected, given: Mapping[str, Given]):
        self.side, self.device, self.case, self.ours = worker.side, worker.device, case, ours
        self.given, self.card_forms = given, worker.side.forms(case)
        self.expected = self.card_forms.expected(ours)
        self.forms = self.card_forms.outputs(ours.fields)
        self.read: Mapping[str, Form] = self.card_forms.inputs(ours.inputs)
        self.unpromised = self._unpromised(given)
        inputs = self.expected.inputs | {name: each.content for name, each in given.items()}
        self.inputs: Inputs = inputs | {
            name: overwritten(inputs[name], mask, 0) for name, mask in self.unpromised.items()
        }

    def _unpromised(self, given: Mapping[str, Given]) -> dict[str, np.ndarray]:
        """Masks of the unpromised bytes: of the arrays handed over, and of masked rows in all others."""
        found = {name: form.regions == MASKED for name, form in self.read.items() if form.masked and name not in given}
        found |= {name: ~each.promised for name, each in given.items()}
        return {name: mask for name, mask in found.items() if mask.any()}

    def judged(self, empty: Result) -> Done:
        if self.ours.disagreement:
            return Done(disagreeing(empty, self.case, self.ours), {})
        written: dict[str, np.ndarray] = {}
        lines: tuple[str, ...] = ()
        for target in self.device.targets:
            program = self._prepared(target, self.inputs, {})
            outcomes, trespass = run_all(program)
            if trespass:
                return Done(failed(empty, Verdict.OUT_OF_BOUNDS, f"{target}: {trespass}"), {})
            wrong = wrong_fields(self.device, outcomes, self.expected)
            runs = on_host(self.device, outcomes, self.expected)
            written = runs[0]
            if wrong:
                found = self._explained(target, wrong, runs, Approximation(program, self.expected, outcomes))
                lines = self._conventions(runs[0]) if found.verdict is Verdict.MISMATCH else ()
                if not lines:
                    return Done(failed(empty, *found), {})
            poisoning = Poisoning(
                self.inputs, self.unpromised, outcomes[0].outputs,
                lambda inputs, marks, target=target: self._prepared(target, inputs, marks),
                self.device.name != "cuda",
            )  # fmt: skip
            done = self._poisoned(empty, poisoning)
            if done:
                return done
        return self._right(empty, written, lines)

    def _poisoned(self, empty: Result, poisoning: Poisoning) -> Done | None:
        counts = self._counts()
        for name in self.unpromised:
            read = poisoning.forbidden(name) if self._must_not_read(name) else ""
            if read:
                result = failed(empty, Verdict.UNWRITTEN, f"{name} is declared `reads: promised`, and {read}")
                return Done(result, {}, counts)
        leak = poisoning.leak()
        if leak is None:
            return None
        reason = f"what it writes depends on bytes of {leak.array} that the producer does not define"
        return Done(failed(empty, Verdict.UNWRITTEN, reason, self._story(leak)), {}, counts)

    def _story(self, leak: Leak) -> Story:
        place = f"{leak.array}: masked rows, byte {leak.byte}"
        if leak.array in self.given:
            what, at = self.read[leak.array].place(leak.byte)
            source = self.given[leak.array].source
            place = f"{leak.array}, the producer's {source}: {what}, entry {at}, byte {leak.byte}"
        rows = [("array", place), *([("read", leak.read)] if leak.read else [])]
        if leak.output:
            fill = "random bytes" if leak.fill == RANDOM else f"0x{leak.fill:02X}"
            before, after = f"0x{leak.before:02X} with zeros in their place", f"0x{leak.after:02X} with {fill}"
            rows.append(("changes", f"{leak.count} bytes of {leak.output}, the first is {leak.at}: {before}, {after}"))
        head = f"{Verdict.UNWRITTEN}  {self.case.id}  reads bytes that the producer does not define"
        return Story(head, tuple(rows))

    def _right(self, empty: Result, written: Mapping[str, np.ndarray], lines: tuple[str, ...]) -> Done:
        promised = sum(int(np.count_nonzero(form.promised)) for form in self.forms.values())
        result = replace(
            empty, verdict=Verdict.CONVENTION if lines else Verdict.PASS, reason="; ".join(lines),
            bytes_compared=promised * len(self.device.targets), oracles=self.ours.oracles,
        )  # fmt: skip
        return Done(result, written, self._counts())

    def _counts(self) -> dict[str, int]:
        return {name: int(np.count_nonzero(mask)) for name, mask in self.unpromised.items()}

    def _must_not_read(self, name: str) -> bool:
        said = self.side.array_forms.get(name)
        return said is not None and said.reads == "promised"

    def _prepared(self, target: str, inputs: Inputs, marks: Mapping[str, np.ndarray]) -> Promised:
        program = self.device.prepare(self.case, target, inputs, self.expected.fields)
        if marks:
            program.unwritten = marks
        return Promised(program, self.forms, self.expected.values)

    def _explained(
        self, target: str, wrong: list[str], runs: list[dict[str, np.ndarray]], approximation: Approximation
    ) -> Wrong:
        """Explain wrong fields in the contract's form, which has no masked rows."""
        if not self.card_forms.masked:
            return explained(self.case, target, self.expected, wrong, runs, approximation)
        for name in wrong:
            rest = np.ascontiguousarray(runs[0][name]).reshape(-1).view(np.uint8)[self.forms[name].regions == MASKED]
            if rest.any():  # unpromised bytes were replaced by zero, so these are promised
                count = f"{np.count_nonzero(rest)} of {rest.size} bytes of the masked rows of {name}"
                return Wrong(Verdict.UNWRITTEN, f"{target}: {count} are not zero, as is promised")
        taken = [self.card_forms.written(self.ours, run) for run in runs]
        if any(run is None for run in taken):
            return Wrong(Verdict.MISMATCH, f"{target}: bytes differ in {', '.join(wrong)}")
        return explained(self.case, target, self.ours, wrong, [run for run in taken if run is not None], approximation)

    def _conventions(self, run: dict[str, np.ndarray]) -> tuple[str, ...]:
        """Sentences on the card's conventions if they explain every byte that differs from ours, else none."""
        if not self.side.card:
            return ()
        return by_conventions(self.case, self.device, self.ours, self.card_forms.written(self.ours, run))
