"""Compiled code on the same cases: the launches of a card, on the emulator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evidence.agreement.answers import Answer, Kind, named
from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import expect
from harness.subjects.card.card import Card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card


def answers(card: Card, cases: Iterable[Case]) -> Iterator[Answer]:
    """Yield the answer to every case; an error that the emulator finds is a bug. Raises UsageError for a wrong card."""
    cases, device = list(cases), with_card(EmulatorDevice(), card)
    card.check(case for case in cases if not card.refuses(case))
    for case in cases:
        reason = card.refuses(case) or expect(case).disagreement  # such as too few different values
        if reason:
            yield Answer(card.name, case, Kind.NOT_OFFERED, (reason,))
            continue
        result = verify_card(case, device)
        lines = tuple(filter(None, result.reason.split("; ")))
        if result.verdict.right:
            yield Answer(card.name, case, *named(lines))
        else:
            kind = Kind.BUG if result.verdict.judges else Kind.NOT_OFFERED
            yield Answer(card.name, case, kind, (result.reason,))
