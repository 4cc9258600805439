"""One case with a subject: run it in every way that could tell on it, then ask the oracles, then give a verdict."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.diagnosis.mismatch import render
from harness.subjects.audit import conventions
from harness.subjects.audit.findings import name
from harness.subjects.audit.fresh_data import moved_along
from harness.subjects.audit.observations import Look, same, take
from harness.subjects.audit.violations import Caught, OffenceError
from harness.subjects.device import SubjectDevice
from harness.verdict import Result, Verdict
from harness.verify.expected import NUMPY_LARGEST, Expectation, expect, expect_on, fields_of, forget, make_inputs
from harness.verify.verify import POISONS, attempt, explained, failed, on_host


@dataclass(frozen=True)
class Judgement:
    """Of one look. wrong: fields that are not as demanded; lines: the conventions that explain all of them, if any"""

    wrong: tuple[str, ...]
    lines: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether nothing is left to be explained."""
        return not self.wrong or bool(self.lines)


class Judge:
    """Holds looks against what the oracles demand of their data, and keeps what it found.

    expected: for the case's own data, and for the others
    """

    def __init__(self, device: SubjectDevice, case: Case, expected: tuple[Expectation, Expectation]):
        self.device, self.case, self.expected = device, case, expected
        self._found: dict[int, tuple[Look, Judgement]] = {}

    def __call__(self, look: Look) -> Judgement:
        """The judgement, made once."""
        if id(look) not in self._found:
            self._found[id(look)] = look, self._judge(look)
        return self._found[id(look)][1]

    def right(self, look: Look) -> bool:
        """Whether the look shows what is demanded, conventions allowed for."""
        return self(look).right

    def _judge(self, look: Look) -> Judgement:
        expected, outputs = self.expected[look.other], look.outcome.outputs
        for before, judgement in self._found.values():
            if before.other == look.other and same(before.outcome.outputs, outputs):
                return judgement
        wrong = tuple(n for n, value in expected.values.items() if not self.device.accepts(outputs[n], value))
        return Judgement(wrong, explain(self.device, self.case, expected, outputs) if wrong else ())


def explain(device: SubjectDevice, case: Case, expected: Expectation, outputs: Mapping) -> tuple[str, ...]:
    """The conventions that the subject declares and that explain every byte that is not ours; none if any is left."""
    declared = device.subject.conventions
    if not declared:
        return ()
    written = {n: device.to_host(outputs[n], field) for n, field in expected.fields.items()}
    return tuple(conventions.explain(case, expected.inputs, expected.values, written, declared) or ())


def audit(case: Case, device: SubjectDevice, numpy_largest: int = NUMPY_LARGEST) -> Result:
    """The verdict on one case. An offence is in the result's `offence` and at the head of its reason."""
    return attempt(case, device, lambda blank: _audit(case, device, blank, numpy_largest))


def _audit(case: Case, device: SubjectDevice, blank: Result, numpy_largest: int) -> Result:
    forget()
    inputs, other, fields = make_inputs(case), moved_along(case), fields_of(case)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of others are not ours to fail for
            program = device.prepare(case, device.targets[0], inputs, fields)
            looks = list(take(program, inputs, other, POISONS, case.mode == "graph"))
            where = "cuda" if device.name == "cuda" else "cpu"
            others = expect_on(case, other, where, numpy_largest)
            expected = expect(case, where, numpy_largest)
            judge = Judge(device, case, (expected, others))
            disagreement = expected.disagreement or others.disagreement
            if disagreement:
                return failed(blank, Verdict.MISMATCH, disagreement)
            caught = name(program, looks, judge.right)
    except OffenceError as error:
        return accused(blank, error.caught)
    if caught:
        return replace(accused(blank, caught), oracles=expected.witnesses)
    found = _wrong(case, device, looks, judge)
    if found:
        return replace(failed(blank, *found), oracles=expected.witnesses)
    lines = next((judge(look).lines for look in looks if judge(look).lines), ())
    return replace(
        blank,
        verdict=Verdict.CONVENTION if lines else Verdict.PASS,
        reason="; ".join(lines),
        bytes_compared=len(looks) * sum(field.nbytes for field in fields.values()),
        oracles=expected.witnesses,
    )


def accused(blank: Result, caught: Caught) -> Result:
    """The result of a case in which a subject was caught."""
    return replace(failed(blank, caught.offence.verdict, caught.reason), offence=str(caught.offence))


def _wrong(case: Case, device: SubjectDevice, looks: Sequence[Look], judge: Judge) -> tuple[Verdict, str, str] | None:
    """Verdict, reason and story of bytes that are merely wrong; None if they are right."""
    target, own = device.targets[0], judge.expected[0]
    for kind in ("call", "replay"):
        runs = [look for look in looks if look.kind == kind and not look.other]
        wrong = dict.fromkeys(n for look in runs if not judge.right(look) for n in judge(look).wrong)
        bounded = [n for n, value in own.values.items() if isinstance(value, Interval)]
        wrong |= dict.fromkeys(n for n in bounded if not all(_same(look, runs[0], n) for look in runs))
        if wrong:
            return explained(case, target, own, list(wrong), on_host(device, [look.outcome for look in runs], own))
    for look in looks:
        if not judge.right(look):
            expected, reason = judge.expected[look.other], f"{target}: bytes differ in {', '.join(judge(look).wrong)}"
            if look.other:
                reason += " on other data at the same addresses"
            story = render(case, target, expected, on_host(device, [look.outcome], expected), (look.poison,))
            return Verdict.MISMATCH, reason, story
    if bounded and not all(same(look.outcome.outputs, runs[0].outcome.outputs) for look in looks if not look.other):
        return Verdict.NONDETERMINISTIC, f"{target}: a graph, a busy stream and calls do not write the same bytes", ""
    return None


def _same(one: Look, another: Look, field: str) -> bool:
    return bool((one.outcome.outputs[field] == another.outcome.outputs[field]).all())
