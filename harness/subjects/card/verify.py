"""Verify one case with a card's kernels: they run like ours, and are compared in the form that the card declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.device import Outcome
from harness.subjects.audit import conventions
from harness.subjects.card.corner import wrong_corner
from harness.subjects.card.device import CardDevice
from harness.subjects.card.form import Form
from harness.subjects.card.promised import Promised
from harness.verdict import Result, Verdict
from harness.verify.expected import NUMPY_LARGEST, Expected, expect
from harness.verify.judge import POISONS, judge, on_host
from harness.verify.not_run import note_unset
from harness.verify.other_input import WORDS, other_expected
from harness.verify.verify import attempt, disagreeing, failed


def verify_card(case: Case, device: CardDevice, numpy_largest: int = NUMPY_LARGEST) -> Result:
    """The verdict on one case: PASS, CONVENTION by what the card declares, or a failure."""
    return attempt(case, device, lambda empty: _verify(case, device, empty, numpy_largest))


def _verify(case: Case, device: CardDevice, empty: Result, numpy_largest: int) -> Result:
    where = "cuda" if device.name == "cuda" else "cpu"
    ours = expect(case, where, numpy_largest)
    if ours.disagreement:
        return disagreeing(empty, case, ours)
    other_ours = other_expected(case, ours, where)
    if other_ours and other_ours.disagreement:
        return disagreeing(empty, case, other_ours, f"on {WORDS}: ")
    keeping = device.card.keeping(case)
    expected, other = keeping.expected(ours), other_ours and keeping.expected(other_ours)
    lines, why = keeping.lines(ours), {}

    def excuses(demanded: Expected, outcome: Outcome) -> bool:
        contract = other_ours if demanded is other else ours
        written = on_host(device, [outcome], demanded)[0]
        found = explained(case, device, contract, keeping.written(contract, written))
        why.update(dict.fromkeys(found))
        return bool(found)

    for target in device.targets:
        launches = device.prepare(case, target, expected.inputs, expected.fields)
        note_unset(case, launches)
        program = _OnBoth(launches, keeping.outputs(ours.fields), [expected, other] if other else [expected])
        outcomes, found = judge(case, device, target, program, expected, other, excuses)
        found = found or wrong_corner(case, device, ours, outcomes[0].outputs)
        if found:
            return replace(failed(empty, *found), oracles=ours.oracles)
    lines = [*lines, *why]
    promised = sum(int(np.count_nonzero(form.promised)) for form in keeping.outputs(ours.fields).values())
    compared = len(POISONS) * len(device.targets) * promised
    verdict = Verdict.CONVENTION if lines else Verdict.PASS
    return replace(empty, verdict=verdict, reason="; ".join(lines), bytes_compared=compared, oracles=ours.oracles)


class _OnBoth(Promised):
    """A program whose unpromised bytes are those of the input that it has. expectations: of each, the first in place"""

    def __init__(self, program: Any, forms: Mapping[str, Form], expectations: Sequence[Expected]):
        super().__init__(program, forms, expectations[0].values)
        self._expectations = expectations

    def resplit(self, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> None:
        self.program.resplit(inputs, fields)
        self.promise(next(each.values for each in self._expectations if each.inputs is inputs))

    def renew(self) -> bool:
        return self.program.renew()


def explained(case: Case, device: CardDevice, ours: Expected, written: dict | None) -> tuple[str, ...]:
    """The declared conventions that explain every byte that differs from ours; none if any byte stays unexplained."""
    declared = device.card.conventions
    if not declared or written is None:
        return ()
    return tuple(conventions.explain(case, ours.inputs, ours.values, written, declared) or ())
