"""Verify one case with a card's kernels: they run like ours, and are compared in the form that the card declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.corner import CornerProgram
from harness.device.device import Outcome
from harness.errors import LaunchError
from harness.expected.expected import NUMPY_LARGEST, Expected, expect, fields_of
from harness.expected.other_input import WORDS, other_expected
from harness.subjects.audit import conventions
from harness.subjects.card.card import MASKED_M, with_masked_m
from harness.subjects.card.device import CardDevice
from harness.subjects.card.form import Form, Promised
from harness.subjects.card.forms import input_fields, tensor_starts
from harness.subjects.card.launches import card_launches
from harness.verdict import Result, Story, Verdict
from harness.verify.corner import expected_at_end, inputs_around, wrong_corner
from harness.verify.judge import POISONS, judge, on_host
from harness.verify.not_run import note_unset
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
    forms = device.card.forms(case)
    expected, other = forms.expected(ours), other_ours and forms.expected(other_ours)
    lines, why, launched = forms.lines(ours), {}, []

    def excuses(demanded: Expected, outcome: Outcome) -> bool:
        contract = other_ours if demanded is other else ours
        written = on_host(device, [outcome], demanded)[0]
        found = by_conventions(case, device, contract, forms.written(contract, written))
        why.update(dict.fromkeys(found))
        return bool(found)

    for target in device.targets:
        prepared = device.prepare(case, target, expected.inputs, expected.fields)
        launched += [f"{target} {each.name}" for each in prepared.launches.of_kernels]
        note_unset(case, prepared)
        program = _OnBoth(prepared, forms.outputs(ours.fields), [expected, other] if other else [expected])
        outcomes, found = judge(case, device, target, program, expected, other, excuses)
        found = found or _wrong_corner(case, device, ours, expected, outcomes[0].outputs)
        if found:
            return replace(failed(empty, *found), oracles=ours.oracles)
    lines = [*lines, *why]
    promised = sum(int(np.count_nonzero(form.promised)) for form in forms.outputs(ours.fields).values())
    compared = len(POISONS) * len(device.targets) * promised
    verdict = Verdict.CONVENTION if lines else Verdict.PASS
    return replace(
        empty, verdict=verdict, reason="; ".join(lines), bytes_compared=compared, oracles=ours.oracles,
        launched=tuple(dict.fromkeys(launched)),
    )  # fmt: skip


def _wrong_corner(
    case: Case, device: CardDevice, ours: Expected, expected: Expected, written: Mapping[str, np.ndarray]
) -> tuple[Verdict, str, Story] | None:
    """`wrong_corner` of a card on the emulator. ours: in the contract's form; written: by the card for the case."""
    if device.name == "cuda":
        return None
    card = device.card

    def prepare(larger: Case) -> Promised:
        why = card.refuses(larger) or ("there are masked rows behind it" if card.masked else "")
        if why:
            raise LaunchError(why)
        forms = card.forms(larger)
        made, around = inputs_around(case, larger, ours.inputs)
        # Arrays that have a shape and no memory.
        stand_ins = {name: np.broadcast_to(np.zeros((), each.dtype), each.shape) for name, each in around.items()}
        whole = input_fields(larger, stand_ins) | fields_of(larger)
        whole = {name: forms.form(name, field).stored for name, field in whole.items()}
        inputs = expected.inputs | {name: array for name, array in made.items() if array.dtype == np.int64}
        if larger.rows <= np.iinfo(np.int32).max:
            inputs, whole[MASKED_M] = with_masked_m(larger, inputs), Field((1,), "int32")
        launches = card_launches(card, larger, card.code, lambda: tensor_starts(forms, stand_ins))
        small = [(each.grids[0],) for each in card_launches(card, case, card.code).of_kernels]
        program = CornerProgram(launches, small, larger, inputs, expected.fields, whole)
        return Promised(program, card.forms(case).outputs(ours.fields), expected.values)

    def demanded(larger: Case) -> Expected:
        end = expected_at_end(larger, case, ours)
        return expected if end is ours else card.forms(case).expected(end)

    return wrong_corner(case, device, device.targets[0], demanded, prepare, written)


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


def by_conventions(case: Case, device: CardDevice, ours: Expected, written: dict | None) -> tuple[str, ...]:
    """The declared conventions that explain every byte that differs from ours; none if any byte stays unexplained."""
    declared = device.card.conventions
    if not declared or written is None:
        return ()
    return tuple(conventions.explain(case, ours.inputs, ours.values, written, declared) or ())
