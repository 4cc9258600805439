"""Verify one case with a card's kernels: they run like ours, and are compared in the form that the card declares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.contract.case import Case
from harness.subjects.audit import conventions
from harness.subjects.card.corner import wrong_corner
from harness.subjects.card.device import CardDevice
from harness.subjects.card.promised import Promised
from harness.verdict import Result, Verdict
from harness.verify.expected import NUMPY_LARGEST, Expected, expect
from harness.verify.verify import POISONS, attempt, failed, judge, on_host


def verify_card(case: Case, device: CardDevice, numpy_largest: int = NUMPY_LARGEST) -> Result:
    """The verdict on one case: PASS, CONVENTION by what the card declares, or a failure."""
    return attempt(case, device, lambda empty: _verify(case, device, empty, numpy_largest))


def _verify(case: Case, device: CardDevice, empty: Result, numpy_largest: int) -> Result:
    ours = expect(case, "cuda" if device.name == "cuda" else "cpu", numpy_largest)
    if ours.disagreement:
        return failed(empty, Verdict.SETUP_ERROR, ours.disagreement)
    keeping = device.card.keeping(case)
    expected = keeping.expected(ours)
    lines = keeping.lines(ours)
    for target in device.targets:
        program = Promised(
            device.prepare(case, target, expected.inputs, expected.fields),
            keeping.outputs(ours.fields),
            expected.values,
        )
        outcomes, found = judge(case, device, target, program, expected)
        if found and found[0] is Verdict.MISMATCH:
            written = on_host(device, outcomes[:1], expected)[0]
            why = explained(case, device, ours, keeping.written(ours, written))
            lines, found = ([*lines, *why], None) if why else (lines, found)
        found = found or wrong_corner(case, device, ours, outcomes[0].outputs)
        if found:
            verdict, reason, story = found
            return replace(failed(empty, verdict, reason, story), oracles=ours.oracles)
    promised = sum(int(np.count_nonzero(form.promised)) for form in keeping.outputs(ours.fields).values())
    compared = len(POISONS) * len(device.targets) * promised
    verdict = Verdict.CONVENTION if lines else Verdict.PASS
    return replace(empty, verdict=verdict, reason="; ".join(lines), bytes_compared=compared, oracles=ours.oracles)


def explained(case: Case, device: CardDevice, ours: Expected, written: dict | None) -> tuple[str, ...]:
    """The declared conventions that explain every byte that differs from ours; none if any byte stays unexplained."""
    declared = device.card.conventions
    if not declared or written is None:
        return ()
    return tuple(conventions.explain(case, ours.inputs, ours.values, written, declared) or ())
