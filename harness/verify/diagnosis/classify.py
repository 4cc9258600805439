"""The likely cause of a mismatch, by name, or what is seen where no cause is known.

A cause is named only if it gives every wrong byte and makes no other byte wrong: some hypotheses replay the steps with
one choice changed (`changed_steps`), or ask the recipe's oracle with another building block (`changed_blocks`), on
other inputs (`changed_inputs`) or at other places (`places`). If several explain the bytes alike, or the bytes are too
few to tell, the screen says which fit. What only describes the wrong entries is a pattern, and never a cause.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from harness.verify.diagnosis import (
    amax_causes,
    changed_blocks,
    changed_inputs,
    changed_steps,
    code_causes,
    places,
    sum_causes,
)
from harness.verify.diagnosis.casts import E2M1_MIDPOINTS
from harness.verify.diagnosis.difference import compacted, swizzled, unswizzled, wrong_entries
from harness.verify.diagnosis.evidence import FEW, Cause, Evidence, Hypothesis
from harness.verify.diagnosis.other_products import ROUNDINGS
from harness.verify.diagnosis.steps import Steps

NOT_KNOWN = "not known"
UNKNOWN = Cause(NOT_KNOWN, "no known mistake gives these bytes; trace the first wrong block")

_BANDS = (128, 64, 32, 16)
_MANY = 64  # wrong entries; fewer do not tell one rounding from another that is not in the catalogue
# A cause that is not told beside another which says more of the same.
_SAME = {
    "multiplier rounded to bf16": {"fast_math where exact was asked"},
    code_causes.CANDIDATE: {"mae and mse mixed up", "error_math mixed up", "448 and 256 mixed up"},
}
_ONE_KIND = 2  # kinds of wrong scales that say no more than as many entries
_WIDTH = 100  # of what is said of a cause, in columns
APPROXIMATE = Cause("approximate instruction", "PTX leaves the last bits open of what the kernel executed")


def cause_of(evidence: Evidence, approximated: bool = False) -> Cause | None:
    """What explains the earliest wrong field in the dataflow; None if nothing is wrong.

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
            return _named(found, count, hypotheses is not PARTIAL and _is_one_kind(e))
    return _described(_first(PATTERNS, e), e)


def _first(hypotheses: Iterable[Hypothesis], e: Evidence) -> Cause | None:
    return next((found for each in hypotheses if (found := each.cause(e)) is not None), None)


def _all(hypotheses: Iterable[Hypothesis], e: Evidence) -> dict[str, Cause]:
    """All causes that hold, one of each name."""
    found: dict[str, Cause] = {}
    for each in hypotheses:
        if each.name not in found and (cause := each.cause(e)) is not None:
            found[each.name] = cause
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
    fitting = Cause(
        f"fits {', '.join(names)}", f"{count} entries cannot tell {'these' if len(names) > 2 else 'the two'}"
    )
    fitting = fitting._replace(explanation=f"{fitting.explanation} apart")
    if len(str(fitting)) <= _WIDTH:
        return fitting
    said = f"{count} entries fit {len(names)} known mistakes alike, such as"
    return Cause(NOT_KNOWN, f"{said} {_some(names, len(f'{NOT_KNOWN}: {said} , …'))}")


def _some(names: list[str], taken: int) -> str:
    """As many names as fit on the line of which some columns are taken, at least one."""
    most = next(n for n in range(len(names), 0, -1) if n == 1 or len(", ".join(names[:n])) <= _WIDTH - taken)
    return ", ".join(names[:most]) + (", …" if most < len(names) else "")


def _is_one_kind(e: Evidence) -> bool:
    """Whether all wrong scales are the same one or two bytes for the same one or two, as where all blocks are alike."""
    pairs = zip(_bits(e.right)[e.wrong].tolist(), _bits(e.actual)[e.wrong].tolist(), strict=True)
    return e.kind == "scale_inv" and len(set(pairs)) <= _ONE_KIND


def _described(pattern: Cause | None, e: Evidence) -> Cause:
    """No cause, but what all wrong entries have in common."""
    if pattern is None:
        return UNKNOWN
    ties = _ties(e)
    return Cause(f"{NOT_KNOWN} ({pattern.name})", f"{pattern.explanation}{ties}")


def _ties(e: Evidence) -> str:
    """How many wrong codes are of ties, where the products are known."""
    if not _is_encoded_data(e) or e.steps.rounding != "rne":
        return ""
    ties = np.isin(np.abs(e.baseline.product), E2M1_MIDPOINTS)[np.not_equal(*e.codes)]
    if not ties.any():
        return "; none is at a tie"
    return f"; {np.count_nonzero(ties)} of {ties.size} at a tie"


def _unwritten(e: Evidence) -> bool:
    wrong = wrong_entries(e.root, e.expected[e.root], e.actual_of(e.root))
    filled = (
        np.ascontiguousarray(run[e.root][wrong]).view(np.uint8) == poison
        for run, poison in zip(e.runs, e.poisons, strict=False)
    )
    return bool(e.poisons) and all(part.all() for part in filled)


def _runs_differ(e: Evidence) -> bool:
    first = e.actual_of(e.root)
    return any(wrong_entries("", first, e.actual_of(e.root, run)).any() for run in range(1, len(e.runs)))


def _nibble_swap(e: Evidence) -> bool:
    """Also in fields of a user's own names, as long as they are bytes and no scales."""
    if e.right.dtype != np.uint8 or e.kind in ("amax", "scale_inv"):
        return False
    return np.array_equal(e.actual, e.right >> 4 | e.right << 4)


def _nibble_swap_in_part(e: Evidence) -> bool:
    right = e.right[e.wrong]
    return e.kind == "data" and right.size >= FEW and np.array_equal(e.actual[e.wrong], right >> 4 | right << 4)


def _row_column_mix(e: Evidence) -> bool:
    other = _other_direction(e)
    if other is None or other.size != e.actual.size or (e.kind != "amax" and np.count_nonzero(e.wrong) < FEW):
        return False
    return _same(other.reshape(e.actual.shape)[e.wrong], e.actual[e.wrong])


def _other_direction(e: Evidence) -> np.ndarray | None:
    """The expected field of the same kind in the other direction, in array order; replayed if it is no output."""
    side = {"rowwise": "columnwise", "columnwise": "rowwise"}.get(e.side)
    if side is None:
        return None
    if f"{side}_{e.kind}" in e.expected:
        return e.expected[f"{side}_{e.kind}"]
    steps = Steps.of(e.case, side)
    if steps is None or e.kind == "scale_inv" or e.case.rows * e.case.cols > 1 << 22:
        return None
    x = e.tensors["input"]
    amax = steps.amax(x)
    if e.kind == "amax":
        return amax
    numbers = np.arange(e.case.cols if side == "columnwise" else e.case.rows)
    return steps.encode(steps.lines(x, numbers), numbers, amax).data


def _layout_mix(e: Evidence) -> bool:
    if not e.kind.endswith("scale_inv") or len(e.right) % 128:  # a card may keep scales without padding
        return False
    other = e.right if e.field.swizzled else swizzled(e.right)
    return _same(e.actual_of(e.root), other)


def _swizzled_twice(e: Evidence) -> bool:
    once = e.expected[e.root]
    return e.kind.endswith("scale_inv") and e.field.swizzled and _same(e.actual_of(e.root), swizzled(once))


def _transposed_tiles(e: Evidence) -> bool:
    return e.kind.endswith("scale_inv") and e.field.swizzled and _same(e.actual_of(e.root), unswizzled(e.right))


def _zero_sign(e: Evidence) -> bool:
    if e.kind not in ("output", "data"):
        return False
    right, actual, sign = _wrong_values(e)
    return bool(((right == sign) & (actual == 0)).all())


def _sign(e: Evidence) -> bool:
    if e.kind not in ("output", "data", "e4m3_data"):
        return False
    right, actual, sign = _wrong_values(e)
    return bool(((right ^ actual) == sign).all())


def _nan_lost(e: Evidence) -> bool:
    return e.kind == "output" and bool((np.isnan(e.right) & ~np.isnan(e.actual))[e.wrong].all())


def _is_encoded_data(e: Evidence) -> bool:
    return e.kind == "data" and isinstance(e.steps, Steps)


def _nan_code(e: Evidence) -> bool:
    return _is_encoded_data(e) and bool(np.isnan(e.baseline.product)[np.not_equal(*e.codes)].all())


def _nan_bits(e: Evidence) -> bool:
    return e.kind == "output" and bool((np.isnan(e.right) & np.isnan(e.actual))[e.wrong].all())


def _underflowed(e: Evidence) -> bool:
    if not _is_encoded_data(e):
        return False
    underflowed = np.repeat(e.baseline.scale_inv == 0, 16, axis=1)
    return bool(underflowed[np.not_equal(*e.codes)].all())


def _scale_nan(e: Evidence) -> bool:
    return e.kind == "scale_inv" and bool((e.actual[e.wrong] & 0x7F == 0x7F).all())


def _zeros(e: Evidence) -> bool:
    return e.kind != "amax" and np.count_nonzero(e.wrong) >= 16 and not _bits(e.actual)[e.wrong].any()


def _permutation(e: Evidence) -> bool:
    right, actual = _bits(e.right)[e.wrong], _bits(e.actual)[e.wrong]
    return right.size > 2 and np.array_equal(np.sort(right), np.sort(actual))


def _one_scale_off(e: Evidence) -> bool:
    if e.kind != "scale_inv":
        return False
    right, actual, _ = _wrong_values(e)
    return bool((np.abs(right - actual) == 1).all())


def _stored_off(e: Evidence) -> bool:
    """Whether all scales are one step off, up or down alike, and nothing else of the side is wrong."""
    if e.kind != "scale_inv" or any(name in e.differences for name in e.of_side if name != e.root):
        return False
    right, actual = (_bits(array)[e.valued].astype(np.int64) for array in (e.right, e.actual))
    inner = (right > 0) & (right < 0x7E)
    return any((actual[inner] - right[inner] == step).all() for step in (1, -1)) and bool(inner.any())


def _one_code_off(e: Evidence) -> bool:
    if e.kind != "data":
        return False
    right, actual, _ = _wrong_values(e)
    return bool(((np.abs((right & 7) - (actual & 7)) == 1) & (right >> 3 == actual >> 3)).all())


def _one_ulp_off(e: Evidence) -> bool:
    if e.kind not in ("output", "amax"):
        return False
    right, actual, _ = _wrong_values(e)
    return bool((np.abs(right - actual) == 1).all())


def _tile_edge(e: Evidence) -> bool:
    if e.wrong.ndim != 2 or e.kind == "amax":
        return False
    first = [int(np.argmax((e.wrong & e.valued).any(axis=1 - axis))) for axis in (0, 1)]
    extents = e.field.valid or e.field.shape
    return any(
        0 < (extent - 1) * size // band * band <= start * size
        for start, extent, size in zip(first, extents, (1, e.field.block[1]), strict=True)
        for band in _BANDS
    )


def _wrong_values(e: Evidence) -> tuple[np.ndarray, np.ndarray, int]:
    """Expected and actual codes of data, or bits of other fields, int64, where they differ; and their sign bit."""
    right, actual = e.codes if e.kind == "data" else (_bits(e.right), _bits(e.actual))
    wrong = right != actual
    sign = 8 if e.kind == "data" else 1 << (8 * right.itemsize - 1)
    return right[wrong].astype(np.int64), actual[wrong].astype(np.int64), sign


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.array_equal(_bits(one), _bits(other))


# What is so whatever the cause: the first that holds is told, and nothing else.
FACTS = (
    Hypothesis("unwritten or stale", "every wrong byte still holds the pattern from before the run", _unwritten),
    Hypothesis("differs between runs", "a race, or state that a run left behind", _runs_differ),
    Hypothesis("padding not zeroed", "every value is right; bytes that belong to no block are not 0",
               lambda e: not (e.wrong & e.valued).any()),
)  # fmt: skip
# Each gives all bytes of the root's side, the right ones too.
REPLAYED = (
    *changed_steps.hypotheses(),
    *changed_blocks.hypotheses(),
    *changed_inputs.hypotheses(),
    *places.OF_INPUTS,
    *code_causes.CHOICES,
)  # fmt: skip
# Each gives all bytes of the root.
REARRANGED = (
    Hypothesis("nibble swap", "the two codes of a byte changed places", _nibble_swap),
    Hypothesis("row/column mix", "the bytes are those of the other direction", _row_column_mix),
    Hypothesis("compact and swizzled mixed up", "the scale bytes lie in the other layout", _layout_mix),
    Hypothesis("swizzled twice", "the permutation was applied to bytes already in tiles", _swizzled_twice),
    Hypothesis("swizzled backwards", "the inverse of the permutation was applied", _transposed_tiles),
    *places.OF_OUTPUTS,
    Hypothesis("1-ulp scale", "every scale that is stored is one step from the one that codes are of", _stored_off),
    *amax_causes.EXACT,
)  # fmt: skip
# Each gives all wrong bytes, in a part of the tensor or for a choice that is not made alike everywhere.
PARTIAL = (
    *changed_steps.hypotheses(in_part=True),
    *changed_blocks.hypotheses(in_part=True),
    Hypothesis("nibble swap", "the two codes of every wrong byte changed places", _nibble_swap_in_part),
    *sum_causes.HYPOTHESES,
    *code_causes.HYPOTHESES,
    *amax_causes.HYPOTHESES,
)  # fmt: skip
# What all wrong entries have in common: the first that holds is told.
PATTERNS = (
    Hypothesis("sign of zero dropped", "every wrong value is +0.0 for -0.0", _zero_sign),
    Hypothesis("NaN lost", "every wrong value is a number where a NaN belongs", _nan_lost),
    Hypothesis("NaN code", "every wrong code belongs to a NaN product, which must give 0x7", _nan_code),
    Hypothesis("NaN bits", "a NaN is there, with other bits than the hardware's conversion gives", _nan_bits),
    Hypothesis("underflowed blocks", "every wrong code is in a block whose scale underflowed to 0", _underflowed),
    Hypothesis("NaN scales", "every wrong scale is a NaN", _scale_nan),
    Hypothesis("signs", "every wrong value is the right one with the other sign", _sign),
    Hypothesis("zeros written", "every wrong byte is 0", _zeros),
    *code_causes.PATTERNS,
    *sum_causes.PATTERNS,
    *amax_causes.PATTERNS,
    Hypothesis("1-ulp scale", "every wrong scale byte is the neighbour of the right one", _one_scale_off),
    Hypothesis("one code off", "every wrong code is the neighbour of the right one", _one_code_off),
    Hypothesis("1-ulp value", "every wrong value is the neighbour of the right one", _one_ulp_off),
    Hypothesis("right bytes in other places", "", places.moved),
    Hypothesis("right bytes in other places", "the wrong entries hold the right bytes, in another order", _permutation),
    Hypothesis("gradient before it is quantized",
               "dbias and what is quantized are wrong: they have the gradient in common",
               lambda e: "dbias" in e.differences and len(e.differences) > 1),
    Hypothesis("tile edge", "only the last, perhaps incomplete, band of rows or columns is wrong", _tile_edge),
)  # fmt: skip
HYPOTHESES = (*FACTS, *REPLAYED, *REARRANGED, *PARTIAL, *PATTERNS)
