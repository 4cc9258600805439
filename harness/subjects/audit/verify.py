"""Verify one case with a subject: observe it, then run the oracles, then give a verdict."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from harness.contract.case import Case
from harness.device.device import Outcome
from harness.errors import LaunchError
from harness.expected.expected import NUMPY_LARGEST, Expected, expect, expect_on, fields_of, forget, make_inputs
from harness.expected.other_input import WORDS, other_inputs
from harness.oracles import layout
from harness.subjects.audit import conventions
from harness.subjects.audit.findings import Observation, changed, find, observe, same
from harness.subjects.convention import Convention
from harness.subjects.device import SubjectDevice
from harness.subjects.program import SubjectProgram
from harness.subjects.violations import Finding, Violation, ViolationError
from harness.suite.suite import suite_of
from harness.verdict import Result, Verdict
from harness.verify.diagnosis.mismatch import story_of
from harness.verify.digest import of_each_field
from harness.verify.judge import POISONS, Approximation, Wrong, explained, on_host, run_all, wrong_fields
from harness.verify.not_run import keep_note, note_no_corners
from harness.verify.verify import attempt, blank, disagreeing, failed


@dataclass(frozen=True)
class Assessment:
    """One observation compared with the oracles.

    wrong: fields that are not as expected; lines: the conventions that explain all of them, if any
    """

    wrong: tuple[str, ...]
    lines: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether nothing is left to be explained."""
        return not self.wrong or bool(self.lines)


class Judge:
    """Compares observations with the oracles' answers for their data, and caches the result.

    expected: for the case's own data, and for the other data
    """

    def __init__(self, device: SubjectDevice, case: Case, expected: tuple[Expected, Expected]):
        self.device, self.case, self.expected = device, case, expected
        self._found: dict[int, tuple[Observation, Assessment]] = {}

    def __call__(self, seen: Observation) -> Assessment:
        if id(seen) not in self._found:
            self._found[id(seen)] = seen, self._judge(seen)
        return self._found[id(seen)][1]

    def right(self, seen: Observation) -> bool:
        return self(seen).right

    def _judge(self, seen: Observation) -> Assessment:
        expected, outputs = self.expected[seen.other], seen.outcome.outputs
        for before, assessment in self._found.values():
            if before.other == seen.other and same(before.outcome.outputs, outputs):
                return assessment
        wrong = tuple(n for n, value in expected.values.items() if not self.device.accepts(outputs[n], value))
        return Assessment(wrong, explain(self.device, self.case, expected, outputs) if wrong else ())


def explain(device: SubjectDevice, case: Case, expected: Expected, outputs: Mapping) -> tuple[str, ...]:
    """The conventions that the subject declares and that explain every byte that is not ours; none if any is left."""
    declared = device.subject.conventions
    if not declared:
        return ()
    written = {n: device.to_host(outputs[n], field) for n, field in expected.fields.items()}
    return tuple(conventions.explain(case, expected.inputs, expected.values, written, declared) or ())


def audit(case: Case, device: SubjectDevice, numpy_largest: int = NUMPY_LARGEST) -> Result:
    """The verdict on one case. A violation is in the result's `offence` and at the head of its reason."""
    try:
        found = attempt(case, device, lambda empty: _audit(case, device, empty, numpy_largest))
    except ViolationError as error:
        found = accused(blank(case, device), error.finding)
    device.done(found)
    return found


def _audit(case: Case, device: SubjectDevice, empty: Result, numpy_largest: int) -> Result:
    forget()
    inputs, other, fields = make_inputs(case), other_inputs(case), fields_of(case)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a subject's warnings must not become errors
            program = device.prepare(case, device.targets[0], inputs, fields)
            observations = list(observe(program, inputs, other, POISONS, case.mode == "graph"))
            held = program.outcome(0).outputs
            empty = replace(empty, written=of_each_field(device, observations[0].outcome.outputs, fields))
            device.refusals.of(case)  # its refusal may not change now that it has seen data
            where = "cuda" if device.name == "cuda" else "cpu"
            others = expect_on(case, other, where, numpy_largest)
            expected = expect(case, where, numpy_largest)
            judge = Judge(device, case, (expected, others))
            if expected.disagreement:
                return disagreeing(empty, case, expected)
            if others.disagreement:
                return disagreeing(empty, case, others, f"on {WORDS}: ")
            late = changed(held, program.outcome(0).outputs)  # the oracles took far longer than any pause here
            finding = find(program, observations, judge.right)
            if late and not finding:
                finding = Finding(Violation.WRITES_LATE, f"output {late!r} changed while its bytes were judged")
    except ViolationError as error:
        return accused(empty, error.finding)
    if finding:
        return replace(accused(empty, finding), oracles=expected.oracles)
    found = _wrong(case, device, program, observations, judge)
    if found:
        found = _outliving(case, device, program, observations, judge) or found
        return replace(failed(empty, *found), oracles=expected.oracles)
    _note_larger_tensors(case, device)
    lines = next((judge(seen).lines for seen in observations if judge(seen).lines), ())
    return replace(
        empty,
        verdict=Verdict.CONVENTION if lines else Verdict.PASS,
        reason="; ".join(lines),
        bytes_compared=len(observations) * sum(field.nbytes for field in fields.values()),
        oracles=expected.oracles,
        launched=tuple(dict.fromkeys(kernel for seen in observations for kernel in seen.outcome.kernels)),
    )


def _note_larger_tensors(case: Case, device: SubjectDevice) -> None:
    """Keep a note for the end of the run on each larger tensor that a kernel of ours would be judged at the end of."""
    if device.name != "cuda":
        note_no_corners(case)
        for problem in suite_of(case.recipe).corners(case):
            keep_note(case.id, str(problem), "only our kernels and cards run there, a function does not")


def accused(blank: Result, finding: Finding) -> Result:
    return replace(failed(blank, finding.violation.verdict, finding.reason), offence=str(finding.violation))


def _wrong(
    case: Case, device: SubjectDevice, program: SubjectProgram, observations: Sequence[Observation], judge: Judge
) -> Wrong | None:
    """The verdict on wrong bytes where no rule was broken; None if all are right."""
    target, own = device.targets[0], judge.expected[0]
    for kind in ("call", "replay"):
        runs = [seen for seen in observations if seen.kind == kind and not seen.other]
        wrong = dict.fromkeys(n for seen in runs if not judge.right(seen) for n in judge(seen).wrong)
        # A convention allows a different value, but not a different one each time, nor an unwritten one.
        wrong |= dict.fromkeys(n for n in own.values if not all(_same(case, device, seen, runs[0], n) for seen in runs))
        if wrong:
            return _explained(case, device, program, own, list(wrong), [seen.outcome for seen in runs])
    for seen in observations:
        if not judge.right(seen):
            expected, reason = (judge.expected[seen.other], f"{target}: bytes differ in {', '.join(judge(seen).wrong)}")
            if seen.other:
                found = _by_order(case, device, program, own, expected) if seen.outcome.kernels else None
                if found:
                    return found
                reason += f" on {WORDS}"
            story = story_of(case, target, expected, on_host(device, [seen.outcome], expected), (seen.poison,))
            return Wrong(Verdict.MISMATCH, reason, story)
    runs = [seen for seen in observations if not seen.other]
    if not all(_same(case, device, seen, runs[0], n) for seen in runs for n in own.values):
        reason = f"{target}: a graph, a busy stream and calls do not write the same bytes"
        return Wrong(Verdict.NONDETERMINISTIC, reason)
    return None


def _outliving(
    case: Case, device: SubjectDevice, program: SubjectProgram, observations: Sequence[Observation], judge: Judge
) -> Wrong | None:
    """The verdict if calls are wrong on the other data alone, wrong again, and right in a fresh process; else None."""
    wrong = [seen for seen in observations if not judge.right(seen)]
    calls = [seen for seen in wrong if seen.kind == "call"]
    if not calls or not all(seen.other for seen in wrong):
        return None
    (seen, *_), expected = calls, judge.expected[True]
    with suppress(ViolationError, LaunchError):
        program.put(expected.inputs)
        again = replace(seen, outcome=program.run(seen.poison, 1))
        device.child.end()
        program = device.prepare(case, device.targets[0], expected.inputs, expected.fields)
        anew = replace(seen, outcome=program.run(seen.poison, 1))
        if judge.right(anew) and not judge.right(again):
            fields = ", ".join(judge(seen).wrong)
            reason = f"{device.targets[0]}: bytes differ in {fields} on {WORDS}, and are right in a fresh process"
            cause = "state outlives the call: the same data are right in a fresh process"
            runs = on_host(device, [seen.outcome], expected)
            story = story_of(case, device.targets[0], expected, runs, (seen.poison,), cause=cause)
            return Wrong(Verdict.MISMATCH, f"{reason}: state outlives the call", story)
    return None


def _explained(
    case: Case, device: SubjectDevice, program: SubjectProgram, expected: Expected, wrong: list[str],
    outcomes: Sequence[Outcome],
) -> Wrong:  # fmt: skip
    approximation = Approximation(program, expected, outcomes)
    return explained(case, device.targets[0], expected, wrong, on_host(device, outcomes, expected), approximation)


def _by_order(
    case: Case, device: SubjectDevice, program: SubjectProgram, own: Expected, other: Expected
) -> Wrong | None:
    """The verdict if the order of launches on the emulator changes the bytes written for the other data; else None."""
    program.put(other.inputs)
    outcomes, _ = run_all(program)
    wrong = wrong_fields(device, outcomes, other) if len(outcomes) == len(POISONS) else []
    found = _explained(case, device, program, other, wrong, outcomes) if wrong else None
    program.put(own.inputs)
    if found is None or found.verdict is not Verdict.NONDETERMINISTIC:
        return None
    return found._replace(reason=f"{found.reason} on {WORDS}")


def _same(case: Case, device: SubjectDevice, one: Observation, another: Observation, name: str) -> bool:
    """Whether two runs on the same data wrote the same, unless the subject's conventions allow them to differ."""
    declared, field = device.subject.conventions, fields_of(case)[name]
    if Convention.RANDOM_BITS in declared and case.flags.get("rounding", "sr") == "sr":
        return True
    ours, theirs = (seen.outcome.outputs[name] for seen in (one, another))
    if bool((_raw(ours) == _raw(theirs)).all()):
        return True
    if Convention.PADDING not in declared or field.valid is None or field.parts:
        return False
    order, (lines, blocks) = "swizzled" if field.swizzled else "compact", field.valid
    ours, theirs = (
        layout.gather(device.to_host(array, field), field.shape, order)[:lines, :blocks] for array in (ours, theirs)
    )
    return bool((ours == theirs).all())


def _raw(array: Any) -> Any:
    """A NumPy or CuPy array viewed as bytes, because NaN does not equal itself."""
    return array.reshape(-1).view("uint8")
