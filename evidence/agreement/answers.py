"""One subject on one case: its bytes compared with the oracles', and a word for the difference."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial

import numpy as np

from harness.contract.case import Case
from harness.contract.problem import Dense
from harness.device.emulator import EmulatorDevice
from harness.errors import CaseError, HarnessError, UsageError
from harness.expected.expected import Expected, expect, expect_on, make_inputs, oracle_of
from harness.expected.formats import decoded
from harness.oracles import layout
from harness.subjects import cuda_fp4
from harness.subjects.audit import conventions
from harness.subjects.audit.differing import differing
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
ON_CPU = ("fouroversix_pytorch", "torchao", HEADER)
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
        reason = absent or subject.refuses(case)
        yield Answer(subject.name, case, Kind.NOT_OFFERED, (reason,)) if reason else _answer(subject, case)


def _answer(subject: Subject, case: Case) -> Answer:
    expected = expect_on(case, make_inputs(case))  # fields with few different values are fine here
    if expected.disagreement:
        raise UsageError(f"{case.id}: {expected.disagreement}")
    try:
        written = _written(subject, case, expected)
    except HarnessError:
        raise
    except Exception as error:  # a package may raise anything
        said = next(iter(str(error).splitlines()), "")[:100]
        return Answer(subject.name, case, Kind.NOT_OFFERED, (f"raises {type(error).__name__}: {said}",))
    kind, reasons = judged(case, expected, written, subject.conventions)
    if kind is not Kind.BUG:
        return Answer(subject.name, case, kind, reasons)
    reasons = (smallest(case, expected, written, partial(_unexplained, subject)) or reasons[0],)
    return Answer(subject.name, case, kind, reasons, _cause(subject, case, expected))


def _cause(subject: Subject, case: Case, expected: Expected) -> str:
    """The first known defect whose mending leaves no byte unexplained, with the word for the remaining difference."""
    for defect, mend in subject.mends.items():
        with mend():
            kind, reasons = judged(case, expected, _written(subject, case, expected), subject.conventions)
        if kind is not Kind.BUG:
            left = sorted({reason.partition(":")[0] for reason in reasons})
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


def _unexplained(subject: Subject, case: Case, expected: Expected) -> str | None:
    kind, reasons = judged(case, expected, _written(subject, case, expected), subject.conventions)
    return reasons[0] if kind is Kind.BUG else None


def judged(case: Case, expected: Expected, written: Arrays, declared: Collection[str]) -> tuple[Kind, tuple[str, ...]]:
    """The word for written bytes, and its reasons. declared: the subject's declared conventions"""
    lines = conventions.explain(case, expected.inputs, expected.values, written, frozenset(declared))
    return (Kind.BUG, (first_difference(expected, written),)) if lines is None else named(lines)


def named(lines: Collection[str]) -> tuple[Kind, tuple[str, ...]]:
    """The word for a set of conventions, each given with its counts behind a colon."""
    names = {line.partition(":")[0] for line in lines}
    kind = Kind.EQUAL if not names else Kind.ORDER if names <= ORDERS else Kind.CONVENTION
    return kind, tuple(lines)


def first_difference(expected: Expected, written: Mapping[str, np.ndarray]) -> str:
    """The first entry of the first field that differs, decoded."""
    for name, field in expected.fields.items():
        found = compare(name, field, expected.values[name], written[name])
        if found:
            one, other = (decoded(name, array[found.index]) for array in (written[name], expected.values[name]))
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


MOST = 64  # at most this many blocks of a case are tried
SHAPE = (32, 16)

# A subject's and the expected bytes for a case and inputs; None if they are equal or explained.
Unexplained = Callable[[Case, Expected], str | None]


def smallest(case: Case, expected: Expected, written: Arrays, unexplained: Unexplained) -> str:
    """A sentence with 16 values and an amax, or an empty one if no block of the case is wrong by itself."""
    for direction, values, amax in _blocks(case, expected, written):
        x = np.zeros(SHAPE, expected.inputs["input"].dtype)
        x[0], x[-1, -1] = values, amax
        x = np.ascontiguousarray(x.T) if direction.transposed else x
        small = replace(case, problem=Dense(*x.shape), seed_of=case.seed_name)
        found = unexplained(small, expect_on(small, oracle_of(case.recipe).inputs(small, x=x)))
        if found:
            shown = ", ".join(f"{value:.9g}" for value in values)
            return f"a block of {shown} beside an amax of {amax:.9g}: {found}"
    return ""


def _blocks(case: Case, expected: Expected, written: Arrays) -> Iterator[tuple[layout.Direction, np.ndarray, float]]:
    """The differing blocks: direction, 16 values, and the amax of their tensor."""
    for direction in layout.DIRECTIONS.values():
        name = direction.name
        if f"{name}_data" not in expected.fields or case.flags.get("rht"):
            continue
        amax = {**expected.values, **expected.inputs}[f"{name}_amax"]
        field, x = expected.fields[f"{name}_scale_inv"], expected.inputs["input"]
        blocks = differing(case, direction, field, x, amax, expected.values, written)
        for values, granule in list(zip(blocks.x, blocks.amax, strict=True))[:MOST]:
            yield direction, values, float(granule)


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
