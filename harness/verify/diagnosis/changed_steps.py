"""Hypotheses that replay the steps with one choice changed, and ask whether that gives the bytes a kernel wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from harness.contract.case import Case
from harness.verify.diagnosis.decode_steps import DecodeSteps
from harness.verify.diagnosis.evidence import OTHER_GRANULE, Cause, Evidence, Hypothesis
from harness.verify.diagnosis.steps import Steps

_DEFAULT_MASK = 0xD7E8


@dataclass(frozen=True)
class Change:
    """choices: the changed fields of the steps, in all variants that bear this name, for the steps and case at hand.

    of: the steps it is a change of; subtle: what looks at the bytes alone has a better name for, and so is asked first
    """

    cause: Cause
    choices: Callable[[Steps, Case], Iterable[dict[str, object]]]
    of: type = Steps
    subtle: bool = False


def _halves_swapped(seed: int) -> int:
    return (seed >> 32) | (seed & 0xFFFFFFFF) << 32


def _multiplier(base: str, other: str) -> Callable[[Steps, Case], Iterable[dict[str, object]]]:
    return lambda steps, case: [{"multiplier": other}] if steps.multiplier == base else []


CHANGES = (
    Change(
        Cause("divide instead of multiply scale form", "RN(RN(block_amax / 6) * S_enc) gives these scale bytes"),
        lambda steps, case: [{"scale_form": "divide"}],
    ),
    Change(
        Cause("zeros for an underflowed block", "the multiplier of a block whose scale is 0 was 0"),
        lambda steps, case: [{"underflow": 0.0}] if steps.multiplier == "reciprocal" else [],
    ),
    Change(
        Cause("direct instead of reciprocal multiplier", "S_enc / scale_inv gives these codes"),
        _multiplier("reciprocal", "direct"),
    ),
    Change(
        Cause("reciprocal instead of direct multiplier", "1 / (scale_inv * S_dec) gives these codes"),
        _multiplier("direct", "reciprocal"),
    ),
    Change(
        Cause("fast_math where exact was asked", "the multiplier was rounded to bf16"),
        _multiplier("reciprocal", "fast"),
    ),
    Change(
        Cause("fast_math ignored", "the multiplier was not rounded to bf16"),
        lambda steps, case: [{"multiplier": m} for m in ("reciprocal", "direct") if steps.multiplier == "fast"],
    ),
    Change(
        Cause("1-ulp multiplier", "the multiplier, one last bit more or less, gives these codes"),
        lambda steps, case: [{"multiplier_ulps": ulps} for ulps in (1, -1)],
        subtle=True,
    ),
    Change(
        Cause(
            "multiplier of the scale before its cast", "the scale that is stored is not what the multiplier is made of"
        ),
        lambda steps, case: [{"multiplier_of": "scale"}],
    ),
    Change(
        Cause("S_enc without its clamp", "S_enc is inf, and not FLT_MAX, for these amaxes"),
        lambda steps, case: [{"encode_clamped": False}],
    ),
    Change(
        Cause("S_enc of an infinite amax", "S_enc is 0, and not 1, for an amax that is inf"),
        lambda steps, case: [{"encode_of_inf": 0.0}],
    ),
    Change(
        Cause("sr and rne mixed up", "the other rounding gives these codes"),
        lambda steps, case: [{"rounding": "rne" if steps.rounding == "sr" else "sr"}],
    ),
    Change(
        Cause("sr bits of the other direction", "the third Philox counter word belongs to the other output"),
        lambda steps, case: [{"random_direction": 1 - steps.direction}],
    ),
    Change(
        Cause("sr bits in another order", "the bytes of each random word were served last first, or others exchanged"),
        lambda steps, case: [{"random_order": order} for order in ((3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1))],
    ),
    Change(
        Cause("sum of sr not rounded", "a value and its random share were not rounded to float32 when added"),
        lambda steps, case: [{"random_sum": np.float64}],
    ),
    Change(
        Cause("sr key", "the Philox key was swapped, cut to its low word, or left at 0"),
        lambda steps, case: [{"seed": s} for s in (_halves_swapped(steps.seed), steps.seed & 0xFFFFFFFF, 0)],
    ),
    Change(
        Cause("sr bits of the first tensor", "the Philox offset lacks the number of the tensor in its group"),
        lambda steps, case: [{"offset": 0}] if steps.offset else [],
    ),
    Change(
        Cause("rht skipped", "the unrotated columns give these bytes"),
        lambda steps, case: [{"rotation": None}],
    ),
    Change(
        Cause("sign_mask ignored", "the rotation used no sign mask, the default one, or the mask's bits in reverse"),
        lambda steps, case: [
            {"rotation": mask}
            for mask in (0, _DEFAULT_MASK, int(f"{steps.rotation or 0:016b}"[::-1], 2))
            if steps.rotation is not None
        ],
    ),
    Change(
        Cause("a stage of the rht left out", "the rotation without the butterflies of one stride gives these bytes"),
        lambda steps, case: [
            {"rotation_strides": tuple(stride for stride in (1, 2, 4, 8) if stride != left_out)}
            for left_out in (1, 2, 4, 8)
            if steps.rotation is not None
        ],
    ),
    Change(
        Cause("rht of another length", "the rotated values were not multiplied by 1/4"),
        lambda steps, case: [
            {"rotation_norm": norm} for norm in (1.0, 0.5, 0.125, 0.0625) if steps.rotation is not None
        ],
    ),
    Change(
        Cause("rht of another sign", "the butterflies with b - a for a - b give these bytes"),
        lambda steps, case: [{"rotation_turned": True}] if steps.rotation is not None else [],
    ),
    Change(
        Cause("rht where none belongs", "this output was rotated and must not be"),
        lambda steps, case: [
            {"rotation": int(case.flags.get("sign_mask", _DEFAULT_MASK))} for _ in range(steps.rotation is None)
        ],
    ),
    Change(
        Cause("amax before rounding", "the amax is that of the rotated float32 values, before they became bf16"),
        lambda steps, case: [{"amax_of": "rotated_fp32"}],
    ),
    Change(
        Cause("rht kept in float32", "the rotated values were not rounded to bf16"),
        lambda steps, case: [{"rotation_rounded": False}],
    ),
    Change(
        Cause("rht rounded to bf16", "the rotated values must stay float32"),
        lambda steps, case: [{"rotation_rounded": True}] if steps.rotation is not None else [],
    ),
    Change(
        Cause("amax without abs", "negative values were left out of an amax"),
        lambda steps, case: [{"amax_of": "values"}],
    ),
    Change(
        Cause("amax of a part", "the amax is that of some elements and not of all"),
        lambda steps, case: [{"amax_of": "even"}],
    ),
    Change(
        Cause("NaN kept in the amax", "an amax drops NaN and this one did not"),
        lambda steps, case: [{"amax_of": "nan_kept"}],
    ),
    Change(
        Cause("amax of the wrong granule", "S_enc came from an amax per row or window, or from one for the tensor"),
        lambda steps, case: [
            {"granularity": kind}
            for kind in ("tensor", "row", "window")
            if kind != "window" or not (case.rows % 64 or case.cols % 64)
        ],
    ),
    Change(
        OTHER_GRANULE,
        lambda steps, case: [
            {"granule": granule} for granule in ("neighbour", "first") if steps.granularity in ("row", "window")
        ],
    ),
    Change(
        OTHER_GRANULE,
        lambda steps, case: [{"granule": "first"}] if steps.granularity != "tensor" else [],
        DecodeSteps,
    ),
    Change(
        Cause("no floor under the amax", "S_enc was computed from an amax below 1e-12"),
        lambda steps, case: [{"amax_floor": 0.0}] if steps.amax_floor else [],
    ),
    Change(
        Cause("another floor under the amax", "S_enc was computed from an amax of a power of ten that is not 1e-12"),
        lambda steps, case: [{"amax_floor": 10.0**-p} for p in range(4, 17) if p != 12] if steps.amax_floor else [],
    ),
    Change(
        Cause("448 and 256 mixed up", "the bytes fit the other e4m3_max"),
        lambda steps, case: [{"e4m3_max": 448 + 256 - steps.e4m3_max}],
    ),
    Change(
        Cause("1x16 and 16x16 blocks mixed up", "the other block shape gives these bytes"),
        lambda steps, case: [{"square": not steps.square}],
    ),
    Change(
        Cause("scale and amax reassociated", "scale_inv * (amax * C) gives these values"),
        lambda steps, case: [{"order": "amax_first"}],
        DecodeSteps,
    ),
    Change(
        Cause("448 and 256 mixed up", "the values fit the other e4m3_max"),
        lambda steps, case: [{"e4m3_max": 448 + 256 - steps.e4m3_max}],
        DecodeSteps,
    ),
    Change(
        Cause("compact and swizzled mixed up", "the scale bytes were read in the other layout"),
        lambda steps, case: [{"layout": "compact" if steps.layout == "swizzled" else "swizzled"}],
        DecodeSteps,
    ),
    Change(
        Cause("nibble swap", "the two codes of a byte changed places"),
        lambda steps, case: [{"low_nibble_first": False}],
        DecodeSteps,
    ),
)


def hypotheses(exactly: bool) -> list[Hypothesis]:
    """One for each change; `exactly` as in `Evidence.explained_by`."""

    def holds(change: Change) -> Callable[[Evidence], bool]:
        def explains(e: Evidence) -> bool:
            if type(e.steps) is not change.of or not (e.wrong & e.valued).any():
                return False
            candidates = (replace(e.steps, **choice) for choice in change.choices(e.steps, e.case))
            strictly = exactly or change.subtle
            return any(other != e.steps and e.explained_by(other, strictly) for other in candidates)

        return explains

    return [Hypothesis(change.cause, holds(change)) for change in CHANGES if not (exactly and change.subtle)]
