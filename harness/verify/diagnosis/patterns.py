"""Byte patterns: what wrong entries are like, and whether the root is a rearrangement of right bytes.

`FACTS` are so whatever the cause, `REARRANGED` give every byte of the root, and `PATTERNS` only describe the wrong
entries: they say what is seen where no cause is known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.expected.formats import format_of
from harness.verify.diagnosis import causes, places
from harness.verify.diagnosis.casts import SMALL_FLUSHED
from harness.verify.diagnosis.difference import swizzled, unswizzled, wrong_entries
from harness.verify.diagnosis.evidence import FEW, Evidence, Hypothesis
from harness.verify.diagnosis.steps import Steps

_BANDS = (128, 64, 32, 16)


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
    """Also in fields of a user's own names, as long as they are bytes, no scales and no 8-bit codes."""
    if e.right.dtype != np.uint8 or e.kind in ("amax", "scale_inv") or e.field.format not in ("", "e2m1x2"):
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


def is_encoded_data(e: Evidence) -> bool:
    return e.kind == "data" and isinstance(e.steps, Steps)


def _underflowed(e: Evidence) -> bool:
    if not is_encoded_data(e):
        return False
    underflowed = np.repeat(e.baseline.scale_inv == 0, 16, axis=1)
    return bool(underflowed[np.not_equal(*e.codes)].all())


def _zeros(e: Evidence) -> bool:
    return e.kind != "amax" and np.count_nonzero(e.wrong) >= 16 and not bits_of(e.actual)[e.wrong].any()


def _permutation(e: Evidence) -> bool:
    right, actual = bits_of(e.right)[e.wrong], bits_of(e.actual)[e.wrong]
    return right.size > 2 and np.array_equal(np.sort(right), np.sort(actual))


def _stored_off(e: Evidence) -> bool:
    """Whether all scales are one step off, up or down alike, and nothing else of the side is wrong."""
    if not e.kind.endswith("scale_inv") or any(name in e.differences for name in e.of_side if name != e.root):
        return False
    largest = 0xFE if e.field.format in ("e8m0", "ue5m3") else 0x7E
    right, actual = (bits_of(array)[e.valued].astype(np.int64) for array in (e.right, e.actual))
    inner = (right > 0) & (right < largest)
    return any((actual[inner] - right[inner] == step).all() for step in (1, -1)) and bool(inner.any())


def _scales_alone(e: Evidence) -> tuple[np.ndarray, np.ndarray] | None:
    """The right and the actual bytes of scales, int64, if they are of eight steps a binade and all that is wrong."""
    alone = not any(name in e.differences for name in e.of_side if name != e.root)
    if not (alone and e.kind.endswith("scale_inv") and format_of(e.root, e.field.format) in ("e4m3", "ue5m3")):
        return None
    right, actual = (bits_of(array)[e.valued].astype(np.int64) for array in (e.right, e.actual))
    return right, actual


def _stored_by_another_bias(e: Evidence) -> bool:
    """Whether all scales of a normal format's are stored twice or half as large, and codes are of the right ones."""
    found = _scales_alone(e)
    if found is None:
        return False
    right, actual = found
    inner = (right >= 16) & (right < 0x70)  # normal before and after, in either format
    return bool(inner.any()) and any((actual[inner] - right[inner] == step).all() for step in (8, -8))


def _stored_without_subnormals(e: Evidence) -> bool:
    found = _scales_alone(e)
    return found is not None and np.array_equal(np.where(found[0] < 8, 0, found[0]), found[1])


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
    right, actual = e.codes if e.kind == "data" else (bits_of(e.right), bits_of(e.actual))
    wrong = right != actual
    sign = 8 if e.kind == "data" else 1 << (8 * right.itemsize - 1)
    return right[wrong].astype(np.int64), actual[wrong].astype(np.int64), sign


def _of(
    kinds: tuple[str, ...], holds: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
) -> Callable[[Evidence], bool]:
    """Whether something holds for all wrong entries of a root of one of these kinds. holds: of `_wrong_values`"""
    return lambda e: e.kind in kinds and bool(holds(*_wrong_values(e)).all())


def _of_nans(holds: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Evidence], bool]:
    """`_of` for outputs, by where they are NaN. holds: given where the right values are, and the actual ones"""
    return lambda e: e.kind == "output" and bool(holds(np.isnan(e.right), np.isnan(e.actual))[e.wrong].all())


one_ulp_off = _of(("output", "amax"), lambda right, actual, sign: np.abs(right - actual) == 1)


def bits_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.array_equal(bits_of(one), bits_of(other))


# Facts that need no cause: the first that holds is told, and nothing else.
FACTS = (
    Hypothesis("unwritten or stale", "every wrong byte still holds the pattern from before the run", _unwritten),
    Hypothesis("differs between runs", "a race, a clock, or state that a run left behind", _runs_differ),
    Hypothesis("padding not zeroed", "every value is right; bytes that belong to no block are not 0",
               lambda e: not (e.wrong & e.valued).any()),
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
    Hypothesis("scale stored under another bias", "scales are stored twice or half as large as those that codes are of",
               _stored_by_another_bias),
    Hypothesis(SMALL_FLUSHED, "scales that are subnormal are stored as 0, and codes are of them",
               _stored_without_subnormals),
    *causes.EXACT,
)  # fmt: skip
NIBBLES_IN_PART = Hypothesis("nibble swap", "the two codes of every wrong byte changed places", _nibble_swap_in_part)
# What all wrong entries have in common: the first that holds is told.
PATTERNS = (
    Hypothesis("sign of zero dropped", "every wrong value is +0.0 for -0.0",
               _of(("output", "data", "e4m3_data"), lambda right, actual, sign: (right == sign) & (actual == 0))),
    Hypothesis("NaN lost", "every wrong value is a number where a NaN belongs",
               _of_nans(lambda right, actual: right & ~actual)),
    Hypothesis("NaN code", "every wrong code belongs to a NaN product, which must give 0x7",
               lambda e: is_encoded_data(e) and bool(np.isnan(e.baseline.product)[np.not_equal(*e.codes)].all())),
    Hypothesis("NaN code", "every wrong code belongs to a NaN, which must give 0x7F",
               _of(("e4m3_data",), lambda right, actual, sign: right == 0x7F)),
    Hypothesis("NaN bits", "a NaN is there, with other bits than the hardware's conversion gives",
               _of_nans(lambda right, actual: right & actual)),
    Hypothesis("underflowed blocks", "every wrong code is in a block whose scale underflowed to 0", _underflowed),
    Hypothesis("NaN scales", "every wrong scale is a NaN",
               lambda e: e.kind == "scale_inv" and bool((e.actual[e.wrong] & 0x7F == 0x7F).all())),
    Hypothesis("sign of a value", "every wrong value is the right one with the other sign",
               _of(("output", "data", "e4m3_data"), lambda right, actual, sign: right ^ actual == sign)),
    Hypothesis("zeros written", "every wrong byte is 0", _zeros),
    *causes.OF_CODES,
    *causes.OF_SUMS,
    *causes.OF_AMAXES,
    Hypothesis("1-ulp scale", "every wrong scale byte is the neighbour of the right one",
               _of(("scale_inv", "e8m0_scale_inv"), lambda right, actual, sign: np.abs(right - actual) == 1)),
    Hypothesis("one code off", "every wrong code is the neighbour of the right one",
               _of(("data", "e4m3_data"), lambda right, actual, sign: (np.abs(right % sign - actual % sign) == 1)
                   & (right & sign == actual & sign))),
    Hypothesis("1-ulp value", "every wrong value is the neighbour of the right one", one_ulp_off),
    Hypothesis("right bytes in other places", "", places.moved),
    Hypothesis("right bytes in other places", "the wrong entries hold the right bytes, in another order", _permutation),
    Hypothesis("gradient before it is quantized",
               "dbias and what is quantized are wrong: they have the gradient in common",
               lambda e: "dbias" in e.differences and len(e.differences) > 1),
    Hypothesis("tile edge", "only the last, perhaps incomplete, band of rows or columns is wrong", _tile_edge),
)  # fmt: skip
