"""The likely cause of a mismatch, by name, or what is seen where no cause is known.

A cause is named only if it gives every wrong byte and makes no other byte wrong: some hypotheses replay the steps with
one choice changed (`changed_steps`), or ask the recipe's oracle with another building block (`changed_blocks`), on
other inputs (`changed_inputs`) or at other places (`places`). If several explain the bytes alike, or the bytes are too
few to tell, the screen says which fit. What only describes the wrong entries is a pattern, and never a cause.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from harness.expected.formats import E2M1_MIDPOINTS
from harness.verify.diagnosis import causes, changed_blocks, changed_inputs, changed_steps, places
from harness.verify.diagnosis.difference import compacted
from harness.verify.diagnosis.evidence import FEW, Cause, Evidence, Hypothesis
from harness.verify.diagnosis.other_products import ROUNDINGS
from harness.verify.diagnosis.patterns import (
    FACTS,
    NIBBLES_IN_PART,
    PATTERNS,
    REARRANGED,
    bits_of,
    is_encoded_data,
    one_ulp_off,
)
from harness.verify.diagnosis.steps import Steps

NOT_KNOWN = "not known"
UNKNOWN = Cause(NOT_KNOWN, "no known mistake gives these bytes; trace the first wrong block")

_MANY = 64  # wrong entries; fewer do not tell one rounding from another that is not in the catalogue
# A cause that is not told beside another which says more of the same.
_SAME = {
    "multiplier rounded to bf16": {"fast_math where exact was asked"},
    causes.CANDIDATE: {"mae and mse mixed up", "error_math mixed up", "e4m3_max mixed up"},
}
_ONE_KIND = 2
_WIDTH = 100  # of what is said of a cause, in columns
APPROXIMATE = Cause("approximate instruction", "PTX leaves the last bits open of what the kernel executed")


def cause_of(evidence: Evidence, approximated: bool = False) -> Cause | None:
    """The cause of the earliest wrong field in the dataflow; None if nothing is wrong.

    approximated: whether the kernel executed instructions whose last bits are open, which a few wrong entries also fit
    """
    if not evidence.differences:
        return None
    if not evidence.comparable:
        return Cause("wrong dtype, shape or strides", "the array is not what the field says, so no entry was compared")
    e = evidence.by_line
    fact = _first(FACTS, e)
    if fact is not None:
        return fact
    for hypotheses in (REPLAYED, REARRANGED, PARTIAL):
        found = _all(hypotheses, e)
        if found:
            count = _independent(e) if hypotheses is REPLAYED else e.differences[e.root].count
            if approximated and (count < FEW or len(found) > 1):
                found |= {APPROXIMATE.name: APPROXIMATE}
            return _named(found, count, _is_one_kind(e))
    return _described(_first(DESCRIPTIONS, e), e)


def _first(hypotheses: Iterable[Hypothesis], e: Evidence) -> Cause | None:
    return next((found for each in hypotheses if (found := each.cause(e)) is not None), None)


def _all(hypotheses: Iterable[Hypothesis], e: Evidence) -> dict[str, Cause]:
    """All causes that hold, one of each name."""
    found: dict[str, Cause] = {}
    for each in hypotheses:
        if each.name not in found and (cause := each.cause(e)) is not None:
            found[cause.name] = cause
    return found


def _independent(e: Evidence) -> int:
    """How many wrong entries say why they are wrong: the root's, or all of its side where the root does not spoil them.

    A wrong amax makes scales and codes wrong, which then say nothing; but where they are not those that it gives, the
    mistake was made in them as well.
    """
    count = e.differences[e.root].count
    if e.kind != "amax" or not isinstance(e.steps, Steps) or e.actual.shape != e.right.shape:
        return count
    given = e.steps.encode(e.steps.lines(e.tensors["input"], e.lines), e.lines, e.actual)
    for kind, made in (("scale_inv", given.scale_inv), ("data", given.data)):
        name = f"{e.side}_{kind}"
        if name in e.differences:
            actual = e.sampled(name, compacted(e.fields[name], e.actual_of(name)))
            if actual.shape != made.shape or (actual != made).any():
                return sum(e.differences[other].count for other in e.of_side if other in e.differences)
    return count


def _named(found: dict[str, Cause], count: int, alike: bool) -> Cause:
    """The one cause, or all that fit where the wrong entries do not tell them apart; none if they are too few.

    count: of the root's wrong entries; what they spoil further on says nothing about why they are wrong
    alike: whether these are so much alike that they say no more than one
    """
    names = sorted(found, key=lambda name: name.startswith("1-ulp"))  # stable; what has a reason comes first
    names = [name for name in names if not _SAME.get(name, set()) & set(names)]
    roundings = set(found) <= {*ROUNDINGS, APPROXIMATE.name}
    if count < FEW or alike or (roundings and count < _MANY):
        entries = "1 entry fits" if count == 1 else f"{count} entries{', all alike,' if alike else ''} fit"
        name = f"{NOT_KNOWN} (a rounding)" if roundings else NOT_KNOWN
        return Cause(name, f"{entries} {_some(names, len(f'{name}: {entries} , …'))}")
    if len(names) == 1:
        return found[names[0]]
    these = "these" if len(names) > 2 else "the two"
    fitting = Cause(f"fits {', '.join(names)}", f"{count} entries cannot tell {these} apart")
    if len(str(fitting)) <= _WIDTH:
        return fitting
    said = f"{count} entries fit {len(names)} known mistakes alike, such as"
    return Cause(NOT_KNOWN, f"{said} {_some(names, len(f'{NOT_KNOWN}: {said} , …'))}")


def _some(names: list[str], taken: int) -> str:
    """The names that fit on the rest of a line, at least one."""
    most = next(n for n in range(len(names), 0, -1) if n == 1 or len(", ".join(names[:n])) <= _WIDTH - taken)
    return ", ".join(names[:most]) + (", …" if most < len(names) else "")


def _is_one_kind(e: Evidence) -> bool:
    """Whether the wrong entries are so much alike that many say no more than one.

    Scales are if they are the same one or two bytes for the same one or two, as where all blocks are alike. Values are
    if they are the same one or two, as zeros, or if a few are each the neighbour of the right one.
    """
    if e.kind in ("data", "amax"):
        return False
    right, actual = (bits_of(array)[e.wrong].tolist() for array in (e.right, e.actual))
    if e.kind.endswith("scale_inv"):
        return len(set(zip(right, actual, strict=True))) <= _ONE_KIND
    return len(set(actual)) <= _ONE_KIND or (len(actual) < _MANY and one_ulp_off(e))


def _described(pattern: Cause | None, e: Evidence) -> Cause:
    """No cause, but what all wrong entries have in common."""
    if pattern is None:
        return UNKNOWN
    ties = _ties(e)
    return Cause(f"{NOT_KNOWN} ({pattern.name})", f"{pattern.explanation}{ties}")


def _ties(e: Evidence) -> str:
    """How many wrong codes are of ties, where the products are known."""
    if not is_encoded_data(e) or e.steps.rounding != "rne":
        return ""
    ties = np.isin(np.abs(e.baseline.product), E2M1_MIDPOINTS)[np.not_equal(*e.codes)]
    if not ties.any():
        return "; none is at a tie"
    return f"; {np.count_nonzero(ties)} of {ties.size} at a tie"


# Each gives all bytes of the root's side, the right ones too.
REPLAYED = (
    *changed_steps.hypotheses(),
    *changed_blocks.hypotheses(),
    *changed_inputs.hypotheses(),
    *places.OF_INPUTS,
    *causes.CHOICES,
)  # fmt: skip
# Each gives all wrong bytes, in a part of the tensor or for a choice that is not made alike everywhere.
PARTIAL = (
    *changed_steps.hypotheses(in_part=True),
    *changed_blocks.hypotheses(in_part=True),
    NIBBLES_IN_PART,
    *causes.SUMS,
    *causes.CODES,
    *causes.AMAXES,
)  # fmt: skip
DESCRIPTIONS = (*changed_inputs.patterns(), *PATTERNS)
HYPOTHESES = (*FACTS, *REPLAYED, *REARRANGED, *PARTIAL, *DESCRIPTIONS)
