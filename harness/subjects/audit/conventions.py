"""Whether other bytes are another convention or a bug.

Public implementations of NVFP4 agree on the format and not on every rounding. What they declare, they are allowed:
each difference must be one that a declared convention makes, at the place where it makes one. Anything else is a bug.
Written values are compared with exact arithmetic, in float64: how far a chain of float32 operations may be from that
is known, so two chains differ only where the exact value is that close to a rounding boundary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval
from harness.expected.expected import fields_of
from harness.oracles import activations, layout, nvfp4
from harness.subjects.audit.differing import LARGEST_E2M1, Arrays, Differing, differing
from harness.subjects.convention import Convention

# Five float32 operations of one rounding each are the longest chain in use, S_enc to product; each moves its result by
# 2^-24 of it at most.
TIE = 5 * 2.0**-24
# A rotated value near a tie may round to the other bf16, because its sixteen terms were added in another order.
ROTATION_TIE = TIE + 2.0**-8
ROTATED_APART = 2.0**-10  # the largest share of codes that may differ for this reason
# The largest difference between two orders of a sum of 16 rounded terms, in units of its largest input.
ERROR_TIE = 64 * 2.0**-24
LEAST_AMAX = 2.0**-110  # below, S_enc or its reciprocal is not normal, and implementations differ


@np.errstate(all="ignore")
def explain(
    case: Case, inputs: Arrays, expected: Mapping[str, Demand], actual: Arrays, declared: frozenset[str]
) -> tuple[str, ...] | None:
    """A sentence with a count for every declared convention that explains bytes; None if it leaves any unexplained.

    inputs, expected, actual: arrays, or intervals, by name in the shapes and dtypes of the case's inputs and fields
    declared: `Convention`s; if nothing differs there are no sentences
    """
    if case.is_gemm:
        return _zeros_of_products(expected, actual, declared)
    if any(isinstance(value, Interval) for value in expected.values()):
        return None
    wrong = [name for name in expected if expected[name].tobytes() != actual[name].tobytes()]
    if not wrong:
        return ()
    x = inputs.get("input")
    if x is None or case.is_group or not set(wrong) <= _QUANTIZED:
        return None
    known = {**expected, **inputs}
    if not all(_is_nvfp4(fields_of(case), known, name) for name in layout.DIRECTIONS):
        return None
    x = activations.quantized(case, inputs)
    signs = _signs_of_zeros(wrong, expected, actual)
    if signs and Convention.ZERO_SIGN in declared:
        return _described({Convention.ZERO_SIGN: signs}, declared)
    if not np.isfinite(x).all() or _degenerate(inputs, expected):
        pairs = [[part[name].reshape(-1).view(np.uint8) for part in (expected, actual)] for name in wrong]
        return _described({Convention.SPECIALS: sum(np.count_nonzero(a != b) for a, b in pairs)}, declared)
    if any(name.endswith("_amax") for name in wrong):
        return None
    found: dict[str, int] = {}
    compared, total = 0, 0
    for direction in layout.DIRECTIONS.values():
        name = direction.name
        if f"{name}_data" not in expected:
            continue
        field = fields_of(case)[f"{name}_scale_inv"]
        blocks = differing(case, direction, field, x, known[f"{name}_amax"], expected, actual)
        one = _classify(case, blocks, bool(case.flags.get("rht")) and direction.transposed)
        if one is None:
            return None
        compared, total = compared + blocks.x.shape[0], total + blocks.total
        for convention, count in one.items():
            found[convention] = found.get(convention, 0) + count
    return _described(found, declared, "" if compared == total else f" in {compared:,} of {total:,} blocks that differ")


_UNITS = dict.fromkeys((Convention.SCALE_ORDER, Convention.ERROR_ORDER, Convention.SCALE_FLOOR), "scales")
_UNITS |= dict.fromkeys((Convention.SPECIALS, Convention.PADDING), "bytes")
_QUANTIZED = {f"{side}_{part}" for side in layout.DIRECTIONS for part in ("data", "scale_inv", "amax")}


def _is_nvfp4(fields: Mapping[str, Field], known: Iterable[str], name: str) -> bool:
    """Whether a direction writes 4-bit codes and a scale for 16 of them, under an amax: a user's recipe may not."""
    data, scales = fields.get(f"{name}_data"), fields.get(f"{name}_scale_inv")
    if data is None or scales is None:
        return data is scales
    blocks = math.prod(scales.valid or scales.shape)
    return data.nbytes == blocks * nvfp4.BLOCK // 2 and f"{name}_amax" in known and not scales.format


def _signs_of_zeros(wrong: Iterable[str], expected: Arrays, actual: Arrays) -> int:
    """How many codes differ, if they differ only in the sign of zeros; else 0. Valid for any scale and arithmetic."""
    count = 0
    for name in wrong:
        if not name.endswith("_data"):
            return 0
        ours, theirs = nvfp4.unpack(expected[name]), nvfp4.unpack(actual[name])
        other = ours != theirs
        if ((ours | theirs)[other] & 7).any():
            return 0
        count += int(np.count_nonzero(other))
    return count


def _zeros_of_products(
    expected: Mapping[str, Demand], actual: Arrays, declared: frozenset[str]
) -> tuple[str, ...] | None:
    """How many values of products are a zero of the other sign, if nothing else differs."""
    count = 0
    for name, right in expected.items():
        theirs = np.ascontiguousarray(actual[name])
        ours = np.ascontiguousarray(right.nearest(theirs) if isinstance(right, Interval) else right)
        bits = f"u{theirs.dtype.itemsize}"
        other = ours.view(bits) != theirs.view(bits)
        if (ours[other] != 0).any() or (theirs[other] != 0).any():
            return None
        count += int(np.count_nonzero(other))
    if count and Convention.ZERO_SIGN not in declared:
        return None
    return (f"{Convention.ZERO_SIGN}: {count:,} values",) if count else ()


def _degenerate(inputs: Arrays, expected: Arrays) -> bool:
    amaxes = [value for name, value in {**expected, **inputs}.items() if name.endswith("_amax")]
    return any(bool((~np.isfinite(amax) | (amax < LEAST_AMAX)).any()) for amax in amaxes)


def _described(found: Mapping[str, int], declared: Iterable[str], where: str = "") -> tuple[str, ...] | None:
    if not set(found) <= set(declared):
        return None
    return tuple(f"{each}: {found[each]:,} {_UNITS.get(each, 'codes')}{where}" for each in Convention if each in found)


def _classify(case: Case, blocks: Differing, rotated: bool) -> dict[str, int] | None:
    """How many scales and codes each convention explains; None if one is left unexplained."""
    found: dict[str, int] = {}

    def count(convention: Convention, mask: np.ndarray) -> None:
        if number := int(np.count_nonzero(mask)):
            found[convention] = found.get(convention, 0) + number

    if blocks.padding:
        found[Convention.PADDING] = blocks.padding
    scale = _scale_reasons(case, blocks)
    if scale is None:
        return None
    for convention, mask in scale.items():
        count(convention, mask)
    codes, theirs = blocks.codes, blocks.their_codes
    # Under a zero scale every code decodes to zero, so any code is allowed.
    nothing = np.broadcast_to(blocks.their_scale[:, None] == 0, codes.shape)
    random = case.flags.get("rounding") == "sr"
    rounded = _neighbours if random else _nearest
    fits = nothing | rounded(case, blocks, TIE)
    if not fits.all():
        few = np.count_nonzero(~fits) <= max(1, ROTATED_APART * case.elements)
        if not (rotated and few and (nothing | rounded(case, blocks, ROTATION_TIE)).all()):
            return None
        count(Convention.ROTATION_ORDER, ~fits)
    other, same_scale = blocks.other_codes, ~blocks.other_scale[:, None]
    other_size = (codes & 7) != (theirs & 7)
    count(Convention.ZERO_SCALE_CODES, nothing & other)
    count(Convention.ZERO_SIGN, ~nothing & other & ((theirs & 7) == 0) & (((codes ^ theirs) & 8) != 0))
    other_size &= ~nothing & other & same_scale & fits
    count(Convention.RANDOM_BITS if random else Convention.DIVIDER_ORDER, other_size)
    return found


def _scale_reasons(case: Case, blocks: Differing) -> dict[Convention, np.ndarray] | None:
    """Mask of the differing scales by the convention that explains them; None if one is left unexplained."""
    other = blocks.other_scale
    if not other.any():
        return {}
    expected, theirs = blocks.scale, blocks.their_scale
    base = np.minimum(blocks.block_amax / LARGEST_E2M1 * _encode_scale(case, blocks), float(nvfp4.E4M3_MAX))
    if case.recipe == "four_over_six":
        four = np.minimum(base * 1.5, float(nvfp4.E4M3_MAX))
        ways = [(_reached(expected, way), _reached(theirs, way)) for way in (base, four)]
        order = np.logical_or.reduce([ours & their for ours, their in ways])
        chosen = np.logical_or.reduce([their for _, their in ways]) & _errors_alike(case, blocks)
    else:
        order, chosen = _reached(theirs, base), np.zeros(other.shape, bool)
    raised = other & ~order & ~chosen
    floors = np.unique(theirs[raised])
    # They must share one byte, and that byte must not replace a larger one.
    if floors.size > 1 or (floors.size and bool((expected[raised] >= floors[0]).any())) or (floors >= 0x7F).any():
        return None
    return {
        Convention.SCALE_ORDER: other & order,
        Convention.ERROR_ORDER: other & chosen & ~order,
        Convention.SCALE_FLOOR: raised,
    }


def _encode_scale(case: Case, blocks: Differing) -> np.ndarray:
    return LARGEST_E2M1 * case.e4m3_max / blocks.amax


_SCALES = nvfp4.E4M3_VALUES[: nvfp4.E4M3_NAN].astype(np.float64)
_STEPS = nvfp4.E2M1_VALUES[:8].astype(np.float64)


def _between(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The interval of numbers that round to each of the ascending `values`: lower and upper ends."""
    middle = (values[1:] + values[:-1]) / 2
    return np.append(-np.inf, middle), np.append(middle, np.inf)


def _reached(byte: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Whether a scale rounds to a byte, or is so close to a tie that another order of operations would round to it."""
    low, high = _between(_SCALES)
    known = byte < nvfp4.E4M3_NAN
    at = np.where(known, byte, 0)
    return known & (value >= low[at] * (1 - TIE)) & (value <= high[at] * (1 + TIE))


def _sizes(case: Case, blocks: Differing) -> np.ndarray:
    """|x| under the written scale, in units of e2m1: (n, 16)."""
    known = (blocks.their_scale > 0) & (blocks.their_scale < nvfp4.E4M3_NAN)
    scale = np.where(known, _SCALES[np.where(known, blocks.their_scale, 1)], np.nan)
    return np.abs(blocks.x) * (_encode_scale(case, blocks) / scale)[:, None]


def _sign_fits(blocks: Differing) -> np.ndarray:
    negative = (blocks.their_codes & 8) != 0
    return (negative == np.signbit(blocks.x)) | ((blocks.their_codes & 7) == 0)


def _nearest(case: Case, blocks: Differing, tie: float) -> np.ndarray:
    """(n, 16) bool: x rounds to the written code under the written scale, or could because of a near tie."""
    low, high = _between(_STEPS)
    sizes, code = _sizes(case, blocks), blocks.their_codes & 7
    return _sign_fits(blocks) & (sizes >= low[code] * (1 - tie)) & (sizes <= high[code] * (1 + tie))


def _neighbours(case: Case, blocks: Differing, tie: float) -> np.ndarray:
    """(n, 16) bool: the written code is one of the two next to x under the written scale."""
    below, above = np.append(-np.inf, _STEPS[:-1]), np.append(_STEPS[1:], np.inf)
    sizes, code = _sizes(case, blocks), blocks.their_codes & 7
    return _sign_fits(blocks) & (sizes * (1 + tie) >= below[code]) & (sizes * (1 - tie) <= above[code])


def _errors_alike(case: Case, blocks: Differing) -> np.ndarray:
    """(n,) bool: the written codes decode as close to x as the expected ones, within float32 rounding."""

    def error(scale: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        known = np.where(scale < nvfp4.E4M3_NAN, scale, 0)
        factor = _SCALES[known] / _encode_scale(case, blocks)
        d = np.abs(nvfp4.E2M1_VALUES[codes].astype(np.float64) * factor[:, None] - blocks.x)
        power = d if case.flags.error == "mae" else d * d
        slack = ERROR_TIE * blocks.block_amax[:, None] * (1 if case.flags.error == "mae" else 2 * d)
        return _summed(blocks, power.sum(axis=1)), _summed(blocks, slack.max(axis=1))

    ours, slack = error(blocks.scale, blocks.codes)
    theirs, more = error(blocks.their_scale, blocks.their_codes)
    return np.abs(ours - theirs) <= slack + more + ERROR_TIE * ours


def _summed(blocks: Differing, value: np.ndarray) -> np.ndarray:
    """Sum errors over the blocks that share one scale."""
    _, where = np.unique(blocks.group, return_inverse=True)
    return np.bincount(where, value)[where]
