"""Hypotheses that replay the steps with one choice changed, and ask whether that gives the bytes a kernel wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from harness.contract.case import OWN, Case
from harness.verify.diagnosis import casts, changed_blocks, other_products
from harness.verify.diagnosis.changed_blocks import part_of
from harness.verify.diagnosis.decode_steps import DecodeSteps
from harness.verify.diagnosis.difference import compacted, wrong_entries
from harness.verify.diagnosis.evidence import OTHER_GRANULE, Evidence, Hypothesis
from harness.verify.diagnosis.steps import E4M3_BOUNDS, Steps

_DEFAULT_MASKS = 0xD7E8, 0xACE1  # sign masks of per_tensor and per_token

_GRANULES = "first", *(f"xor {n}" for n in (1, 2, 4, 8, 16, 32)), *(f"{n:+d}" for n in (1, -1, 2, -2, 4, -4, 8, -8))

Choices = Callable[[Steps, Case], Iterable[dict[str, object]]]


class Choice(NamedTuple):
    """A possible mistake, and the changed fields of the steps in all variants of it.

    of: the class of steps that it changes
    """

    name: str
    explanation: str
    choices: Choices
    of: type = Steps


def _with(field: str, *values: object, when: Callable[[Steps], object] = lambda steps: True) -> Choices:
    """Make one choice for each value of a field, if `when` is true for the right steps."""
    return lambda steps, case: [{field: value} for value in values if when(steps)]


def _is_rotated(steps: Steps) -> bool:
    return steps.rotation is not None


def _is_reciprocal(steps: Steps) -> bool:
    return steps.multiplier == "reciprocal"


def _seeds(steps: Steps, case: Case) -> list[dict[str, object]]:
    low, high = steps.seed & 0xFFFFFFFF, steps.seed >> 32
    return [*({"seed": seed} for seed in (high | low << 32, low, 0)), {"offset": 0}]


def _first_offsets(steps: Steps, case: Case) -> list[dict[str, object]]:
    return [{"offset": (case.offset - case.philox_offset) % (1 << 32)}] if case.philox_offset else []


def _masks(steps: Steps, case: Case) -> list[dict[str, object]]:
    if steps.rotation is None:
        return []
    return [{"rotation": mask} for mask in (0, *_DEFAULT_MASKS, int(f"{steps.rotation:016b}"[::-1], 2))]


def _rotations(steps: Steps, case: Case) -> list[dict[str, object]]:
    if steps.rotation is not None or not steps.direction:  # the kernels rotate columns alone
        return []
    given = case.flags.get("sign_mask", OWN)
    masks = _DEFAULT_MASKS if given == OWN else (int(given),)
    return [{"rotation": mask} for mask in masks]


def _flushed(steps: Steps, case: Case) -> list[dict[str, object]]:
    return [{"encode_flushed": True}, {"encode_flushed": True, "encode_of_inf": 0.0}]


def _nans(steps: Steps, case: Case) -> list[dict[str, object]]:
    both = {"amax_of": "nan_kept", "block_nans": "kept"}
    return [{"amax_of": "nan_kept"}, {"block_nans": "kept"}, {"block_nans": "kept_alone"}, both]


def _granularities(steps: Steps, case: Case) -> list[dict[str, object]]:
    windows = [] if case.rows % 64 or case.cols % 64 else ["window"]
    return [{"granularity": kind} for kind in ("tensor", "row", *windows)]


CHANGES = (
    Choice("divide instead of multiply scale form", "RN(RN(block_amax / 6) * S_enc) gives these scale bytes",
           _with("scale_form", "divide")),
    Choice("zeros for an underflowed block", "the multiplier of a block whose scale is 0 was 0",
           _with("underflow", 0.0, when=_is_reciprocal)),
    Choice("direct instead of reciprocal multiplier", "S_enc / scale_inv gives these codes",
           _with("multiplier", "direct", when=_is_reciprocal)),
    Choice("reciprocal instead of direct multiplier", "1 / (scale_inv * S_dec) gives these codes",
           _with("multiplier", "reciprocal", when=lambda steps: steps.multiplier == "direct")),
    Choice("fast_math where exact was asked", "the multiplier was rounded to bf16",
           _with("multiplier", "fast", when=_is_reciprocal)),
    Choice("fast_math ignored", "the multiplier was not rounded to bf16",
           _with("multiplier", "reciprocal", "direct", when=lambda steps: steps.multiplier == "fast")),
    Choice("1-ulp multiplier", "the multiplier, one last bit more or less, gives these codes",
           _with("multiplier_ulps", 1, -1)),
    Choice("multiplier of the scale before its cast", "the scale that is stored is not what the multiplier is made of",
           _with("multiplier_of", "scale")),
    Choice("S_enc without its clamp", "S_enc is inf, and not FLT_MAX, for these amaxes",
           _with("encode_clamped", False)),
    Choice("S_enc of an infinite amax", "S_enc is 0, and not 1, for an amax that is inf", _with("encode_of_inf", 0.0)),
    Choice("S_enc of a huge amax", "the division gave 0 for an amax above 2^126, as __fdividef does", _flushed),
    Choice("sr and rne mixed up", "the other rounding gives these codes", _with("rounding", "rne", "sr")),
    Choice("sr bits of the other direction", "the third Philox counter word belongs to the other output",
           lambda steps, case: [{"random_direction": 1 - steps.direction}]),
    Choice("sr bits in another order", "the bytes of each random word were served last first, or others exchanged",
           _with("random_order", (3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1))),
    Choice("sum of sr not rounded", "a value and its random share were not rounded to float32 when added",
           _with("random_sum", np.float64)),
    Choice("sr key", "the Philox key was swapped or cut to its low word, or it or the offset was left at 0", _seeds),
    Choice("sr bits of the first tensor", "the Philox offset lacks the number of the tensor in its group",
           _first_offsets),
    Choice("rht skipped", "the unrotated columns give these bytes", _with("rotation", None)),
    Choice("sign_mask ignored", "the rotation used no sign mask, the default one, or the mask's bits in reverse",
           _masks),
    Choice("a stage of the rht left out", "the rotation without the butterflies of one stride gives these bytes",
           _with("rotation_strides", (2, 4, 8), (1, 4, 8), (1, 2, 8), (1, 2, 4), when=_is_rotated)),
    Choice("rht of another length", "the rotated values were not multiplied by 1/4",
           _with("rotation_norm", 1.0, 0.5, 0.125, 0.0625, when=_is_rotated)),
    Choice("rht of another sign", "the butterflies with b - a for a - b give these bytes",
           _with("rotation_turned", True, when=_is_rotated)),
    Choice("rht where none belongs", "this output was rotated and must not be", _rotations),
    Choice("amax before rounding", "the amax is that of the rotated float32 values, before they became bf16",
           _with("amax_of", "rotated_fp32")),
    Choice("rht kept in float32", "the rotated values were not rounded to bf16", _with("rotation_rounded", False)),
    Choice("rht rounded to bf16", "the rotated values must stay float32",
           _with("rotation_rounded", True, when=_is_rotated)),
    Choice("amax without abs", "negative values were left out of an amax", _with("amax_of", "values")),
    Choice("amax of a part", "the amax is that of some elements and not of all", _with("amax_of", "even")),
    Choice("NaN kept in the amax", "an amax drops NaN and this one did not", _nans),
    Choice("amax of the wrong granule", "S_enc came from an amax per row or window, or from one for the tensor",
           _granularities),
    Choice(*OTHER_GRANULE,
           _with("granule", *_GRANULES, when=lambda steps: steps.granularity in ("row", "window"))),
    Choice(*OTHER_GRANULE, _with("granule", "first", when=lambda steps: steps.granularity != "tensor"), DecodeSteps),
    Choice("no floor under the amax", "S_enc was computed from an amax below 1e-12", _with("amax_floor", 0.0)),
    Choice("another floor under the amax", "S_enc was computed from an amax of a power of ten that is not 1e-12",
           _with("amax_floor", *(10.0**-p for p in range(4, 17) if p != 12), when=lambda steps: steps.amax_floor)),
    Choice("e4m3_max mixed up", "the bytes fit another e4m3_max", _with("e4m3_max", *E4M3_BOUNDS)),
    Choice("global scale mixed up", "an amax was used where there is none", _with("two_levels", True)),
    Choice("an amax of 0 or none", "S_enc is 1, as without an amax or with one of 0, which empty tensors have",
           _with("two_levels", False)),
    Choice("global scale mixed up", "where there is no amax, S_enc is that of an amax of 1",
           lambda steps, case: [] if steps.two_levels else [{"encode_of_none": 6.0 * case.scale_max}]),
    Choice("1x16 and 16x16 blocks mixed up", "the other block shape gives these bytes", _with("square", True, False)),
    Choice("scale and amax reassociated", "scale_inv * (amax * C) gives these values", _with("order", "amax_first"),
           DecodeSteps),
    Choice("e4m3_max mixed up", "the values fit another e4m3_max", _with("e4m3_max", *E4M3_BOUNDS), DecodeSteps),
    Choice("compact and swizzled mixed up", "the scale bytes were read in the other layout",
           _with("layout", "compact", "swizzled"), DecodeSteps),
    Choice("nibble swap", "the two codes of a byte changed places", _with("low_nibble_first", False), DecodeSteps),
)  # fmt: skip


_DIRECTLY = (("scale_product", other_products.SCALE_PRODUCTS),)
_AFTER = ("product_by", other_products.PRODUCTS), ("code_cast", casts.CODE_CASTS)
# For cases that are too large for `changed_blocks`.
LARGE = (
    *(
        Choice(way.name, way.explanation, _with(field, way.function))
        for field, ways in (*_DIRECTLY, *_AFTER)
        for way in ways
    ),
    *(
        Choice(way.name, way.explanation,
               _with("scale_cast", way.function, when=lambda steps, name=name: steps.scale_format == name))
        for name, ways in casts.SCALE_CASTS.items()
        for way in ways
    ),
    *(
        Choice(way.name, way.explanation,
               _with("multiplier_by", way.function, when=lambda steps, kind=kind: steps.multiplier == kind))
        for kind, ways in other_products.MULTIPLIERS.items()
        for way in ways
    ),
)  # fmt: skip


def hypotheses(in_part: bool = False) -> list[Hypothesis]:
    """A hypothesis for each change: that it was made everywhere, or `in_part` in some part of the tensor alone."""
    return [
        Hypothesis(c.name, c.explanation, partial(_in_part if in_part else _everywhere, c)) for c in (*CHANGES, *LARGE)
    ]


def _everywhere(change: Choice, e: Evidence) -> bool:
    return any(e.explained_by(other) and not e.overflowed_by(other) for other in _others(change, e))


def _in_part(change: Choice, e: Evidence) -> str:
    for other in _others(change, e):
        made = e.replay(other)
        before = list(made)[: list(made).index(e.kind)] if e.kind in made else None
        if before is None or any(_contradicted(e, kind, made[kind]) for kind in before):
            continue
        found = part_of(e, made[e.kind], e.lines)
        if found and not e.overflowed_by(other):
            return f"{change.explanation}, {found}"
    return ""


def _contradicted(e: Evidence, kind: str, array: np.ndarray) -> bool:
    """Whether a field before the root in the dataflow, which is right, would not be."""
    name = f"{e.side}_{kind}"
    if name not in e.fields:
        return False
    actual = e.sampled(name, compacted(e.fields[name], e.actual_of(name)))
    return actual.shape == array.shape and bool(wrong_entries("", actual, array).any())


def _others(change: Choice, e: Evidence) -> list[Steps | DecodeSteps]:
    if type(e.steps) is not change.of or not (e.wrong & e.valued).any():
        return []
    if change in LARGE and e.case.work <= changed_blocks.LARGEST:
        return []
    candidates = (replace(e.steps, **choice) for choice in change.choices(e.steps, e.case))
    return [other for other in candidates if other != e.steps]
