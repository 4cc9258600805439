"""One subject on one case: its bytes compared with the oracles', and a word for the difference."""

from __future__ import annotations

import contextlib
import io
import itertools
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np

from evidence.agreement.smallest import smallest
from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.errors import CaseError, HarnessError, UsageError
from harness.expected.expected import Expected, expect, expect_on, make_inputs
from harness.expected.formats import decoded
from harness.subjects import cuda_fp4
from harness.subjects.audit import conventions
from harness.subjects.card.card import Card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.subjects.convention import Convention
from harness.subjects.subject import Arrays, Subject
from harness.verify.diagnosis.difference import compare
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer
from ptx_emulator.schedule import ASCENDING, DESCENDING

POISON = 0x5A
ORDERS = {Convention.SCALE_ORDER, Convention.DIVIDER_ORDER, Convention.ERROR_ORDER, Convention.ROTATION_ORDER}
HEADER = "cuda_fp4"
ON_CPU = ("fouroversix_pytorch", "torchao", HEADER, "flashinfer_contract")
TARGETS = ("compute_90a", "compute_100a")  # the header converts in software on the first, by instructions on the second


class Kind(StrEnum):
    """EQUAL: every byte; ORDER: a last bit by another order of the same operations; CONVENTION: another choice that
    is declared; BUG: bytes that nothing declared explains; NOT_OFFERED: the subject does not take the case."""

    EQUAL = "equal"
    ORDER = "order"
    CONVENTION = "convention"
    BUG = "bug"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True)
class Answer:
    """reasons: the conventions with counts, the first difference of a bug, or why the case is not offered

    cause: for a bug, the known defect whose mending explains everything, and the word for what is left; else empty
    """

    subject: str
    case: Case
    kind: Kind
    reasons: tuple[str, ...] = ()
    cause: str = ""


def answers(subject: Subject, cases: Iterable[Case]) -> Iterator[Answer]:
    """Yield the answer to every case; it is "not offered" if the subject raises.

    Raises UsageError where the oracles disagree.
    """
    absent = subject.absent()
    for case in cases:
        reason = absent or subject.outside(case) or subject.refuses(case)
        yield Answer(subject.name, case, Kind.NOT_OFFERED, (reason,)) if reason else _answer(subject, case)


def _answer(subject: Subject, case: Case) -> Answer:
    expected = expect_on(case, make_inputs(case))  # fields with few different values are fine here
    if expected.disagreement:
        raise UsageError(f"{case.id}: {expected.disagreement}")
    try:
        kind, reasons = asked(subject, case, expected)
    except HarnessError:
        raise
    except Exception as error:  # a package may raise anything
        said = next(iter(str(error).splitlines()), "")[:100]
        return Answer(subject.name, case, Kind.NOT_OFFERED, (f"raises {type(error).__name__}: {said}",))
    if kind is not Kind.BUG:
        return Answer(subject.name, case, kind, reasons)
    reasons = (smallest_input(subject, case, expected) or reasons[0],)
    return Answer(subject.name, case, kind, reasons, _cause(subject, case, expected))


def asked(subject: Subject, case: Case, expected: Expected) -> tuple[Kind, tuple[str, ...]]:
    """The word for what the subject writes, and its reasons.

    A subject that declares choices differs by these alone: by the fewest without which it writes every expected byte.
    """
    written = _written(subject, case, expected)
    if not subject.choices:
        return judged(case, expected, written, subject.conventions)
    kind, reasons = judged(case, expected, written, ())
    if kind is Kind.EQUAL or not _is_equal_without(subject, case, expected, subject.choices):
        return kind, reasons
    counts = range(1, len(subject.choices) + 1)
    sets = itertools.chain.from_iterable(itertools.combinations(subject.choices, count) for count in counts)
    names = next(names for names in sets if _is_equal_without(subject, case, expected, names))
    made = {name: subject.choices[name] for name in names}
    kind = Kind.ORDER if all(choice.order for choice in made.values()) else Kind.CONVENTION
    return kind, tuple(f"{name}: {choice.step}: {choice.says}" for name, choice in made.items())


def _is_equal_without(subject: Subject, case: Case, expected: Expected, names: Iterable[str]) -> bool:
    with contextlib.ExitStack() as mended:
        for name in names:
            mended.enter_context(subject.choices[name].without())
        return judged(case, expected, _written(subject, case, expected), ())[0] is Kind.EQUAL


def _cause(subject: Subject, case: Case, expected: Expected) -> str:
    """The first known defect whose mending leaves no byte unexplained, with the word for the remaining difference."""
    for defect, mend in subject.mends.items():
        with mend():
            kind, reasons = judged(case, expected, _written(subject, case, expected), subject.conventions)
        if kind is not Kind.BUG:
            left = sorted(set(map(named_in, reasons)))
            return f"{defect}; without that: {kind}" + (f" ({', '.join(left)})" if left else "")
    return ""


def _written(subject: Subject, case: Case, expected: Expected) -> dict[str, np.ndarray]:
    import torch

    written = {name: np.empty(field.shape, field.dtype) for name, field in expected.fields.items()}
    for array in written.values():
        array.reshape(-1).view(np.uint8)[...] = POISON
    quantize = emulated if subject.name == HEADER else subject.quantize
    torch.manual_seed(0)  # so that a subject draws the same random bits each time
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")  # a subject's warnings must not become errors
        quantize(case, expected.inputs, written)
    return written


def smallest_input(subject: Subject, case: Case, expected: Expected, name: str = "") -> str:
    """The smallest input of a case that shows a difference: of the choice or convention `name`, or else a bug."""

    def shown(small: Case, of: Expected) -> str | None:
        kind, reasons = asked(subject, small, of)
        there = any(named_in(reason) == name for reason in reasons) if name else kind is Kind.BUG
        return first_difference(of, _written(subject, small, of)) if there else None

    return smallest(case, expected, _written(subject, case, expected), shown)


def smallest_inputs(subject: Subject, found: Iterable[Answer]) -> dict[tuple[str, str], str]:
    """The smallest input of each choice and convention, by the names of the subject and of it, in its smallest case."""
    cases: dict[str, Case] = {}
    for answer in sorted(found, key=lambda answer: (answer.case.elements, answer.case.id)):
        for reason in answer.reasons if answer.kind in (Kind.ORDER, Kind.CONVENTION) else ():
            cases.setdefault(named_in(reason), answer.case)
    return {
        (subject.name, name): smallest_input(subject, case, expect_on(case, make_inputs(case)), name)
        for name, case in cases.items()
    }


def judged(case: Case, expected: Expected, written: Arrays, declared: Collection[str]) -> tuple[Kind, tuple[str, ...]]:
    """The word for written bytes, and its reasons. declared: the subject's declared conventions"""
    lines = conventions.explain(case, expected.inputs, expected.values, written, frozenset(declared))
    return (Kind.BUG, (first_difference(expected, written),)) if lines is None else named(lines)


def named(lines: Collection[str]) -> tuple[Kind, tuple[str, ...]]:
    """The word for a set of conventions, each given with its counts behind a colon."""
    names = set(map(named_in, lines))
    kind = Kind.EQUAL if not names else Kind.ORDER if names <= ORDERS else Kind.CONVENTION
    return kind, tuple(lines)


def named_in(reason: str) -> str:
    """The convention or choice that a reason begins with."""
    return reason.partition(":")[0]


def first_difference(expected: Expected, written: Mapping[str, np.ndarray]) -> str:
    """The first entry of the first field that differs, decoded."""
    for name, field in expected.fields.items():
        found = compare(name, field, expected.values[name], written[name])
        if found:
            values = (array[found.index] for array in (written[name], expected.values[name]))
            one, other = (decoded(name, value, field.format) for value in values)
            return f"{name}{list(found.index)} is {one}, must be {other}; {found.count} of {found.total} entries differ"
    return "no field differs"


@cache
def _header_kernel(target: str) -> Module:
    return Module(cuda_fp4.built(target).ptx)


def emulated(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    """Run the kernel on cuda_fp4.h on the emulator, in an order for each of its two ways to convert.

    Raises CaseError if these write different bytes.
    """
    names = ("input", "rowwise_amax", "rowwise_data", "rowwise_scale_inv")
    found = []
    for target, schedule in zip(TARGETS, (ASCENDING, DESCENDING), strict=True):
        outputs["rowwise_scale_inv"][...] = 0
        arrays = {**inputs, **outputs}
        buffers = [Buffer(name, arrays[name].view(np.uint8).reshape(-1)) for name in names]
        blocks = case.elements // 16
        grid, block = (-(-blocks // cuda_fp4.THREADS), 1, 1), (cuda_fp4.THREADS, 1, 1)
        numbers = (blocks, case.cols // 16, outputs["rowwise_scale_inv"].shape[1])
        launch(_header_kernel(target), "cuda_fp4_rowwise", grid, block, [*buffers, *numbers], schedule=schedule)
        found.append([array.tobytes() for array in outputs.values()])
    if found[0] != found[1]:
        raise CaseError(f"{' and '.join(TARGETS)} write different bytes")


def card_answers(card: Card, cases: Iterable[Case]) -> Iterator[Answer]:
    """Yield a card's answers, on the emulator; an error that it finds is a bug. Raises UsageError for a wrong card."""
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
