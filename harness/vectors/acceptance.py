"""The other results that a convention allows, stored beside the expected bytes so that no checker computes them.

A field may have, for each convention, one of

  either    an array of its shape: a code, or a byte of scales, may be the one there in place of the expected one
  skip      an array of its shape: bits that are set are not compared
  zero      zeros of either sign are alike
  nan       every NaN is alike

`either` is found in float64. A chain of five float32 operations is within TIE of the exact value, so an order of them
that is not the contract's gives another code only where the exact value is that close to where two codes meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.files import recipe_dir
from harness.oracles import activations, layout, nvfp4
from harness.subjects.audit.conventions import LEAST_AMAX, TIE
from harness.subjects.audit.differing import LARGEST_E2M1, Differing, differing
from harness.vectors.description import AMAX, CODES, holds

ZERO_SIGN, NAN, PADDING = "sign-of-zero", "nan", "padding"
ZERO_SCALE, NAN_CODES = "codes-under-zero-scale", "codes-of-nan"
DIVISION, RANDOM = "order-of-division", "random-bits"
MEANINGS = {
    ZERO_SIGN: "a zero may have either sign: codes 0x0 and 0x8, scale bytes 0x00 and 0x80, values +0 and -0",
    NAN: "where a NaN is expected, every NaN will do, in scale bytes and values",
    PADDING: "padding of scales may hold anything; the contract has it 0",
    ZERO_SCALE: "codes of a block whose scale is 0 may be any, because each decodes to a zero",
    NAN_CODES: "the code of an element that is NaN may be any; the contract has 0x7",
    DIVISION: "a code may be the other one of two that the exact quotient is within five roundings of float32 between",
    RANDOM: "a code rounded at random may be either neighbour of the value, so that other random bits pass",
}

Arrays = Mapping[str, np.ndarray]

UNSIGNED = ("e8m0", "ue5m3")  # formats of bytes that have no zero with a sign, and one NaN


class Accepted(NamedTuple):
    """The bytes that one convention allows in one field: `kind` as above, and its array if it has one."""

    convention: str
    kind: str
    array: np.ndarray | None = None


@np.errstate(all="ignore")
def accepted(case: Case, inputs: Arrays, fields: Mapping[str, Field], values: Mapping[str, object]) -> dict[str, list]:
    """Field → what each convention allows in it. values: the oracles' answer"""
    found: dict[str, list[Accepted]] = {name: list(_of_field(name, field)) for name, field in fields.items()}
    if recipe_dir(case.recipe) is not None:
        return found  # whoever made the recipe says how it divides and what it makes of a NaN
    for direction in layout.DIRECTIONS.values():
        name = f"{direction.name}_data"
        if "input" in inputs and not case.is_group and case.elements and name in fields:
            blocks = _blocks(case, direction, inputs, fields, values)
            found[name] += _of_codes(case, direction, blocks, fields[name]) if blocks else ()
    return found


def _of_field(name: str, field: Field) -> Iterator[Accepted]:
    held = field.format or holds(name)
    if held not in (AMAX, *UNSIGNED):
        yield Accepted(ZERO_SIGN, "zero")
    if held not in (AMAX, CODES, *UNSIGNED):
        yield Accepted(NAN, "nan")
    mask = padding(field)
    if field.dtype == "uint8" and mask.any():
        yield Accepted(PADDING, "skip", mask)


def padding(field: Field) -> np.ndarray:
    """0xFF where a field of bytes is padding, else 0."""
    mask = np.zeros(field.shape, np.uint8)
    for number in range(len(field.parts)):
        field.part(mask, number)[...] = padding(field.parts[number])
    if field.valid is not None:
        corner = np.full(field.shape, 0xFF, np.uint8)
        corner[tuple(slice(extent) for extent in field.valid)] = 0
        mask = layout.swizzle(corner) if field.swizzled else corner
    return mask


def _blocks(
    case: Case, direction: layout.Direction, inputs: Arrays, fields: Mapping[str, Field], values: Mapping
) -> Differing | None:
    """Every block of one output, as if all its bytes differed; None for rotated values, ue5m3 scales and no amax."""
    if (direction.transposed and case.flags.get("rht")) or case.scale_format != "e4m3" or not case.two_levels:
        return None
    name = direction.name
    other = {key: ~values[key] for key in (f"{name}_data", f"{name}_scale_inv")}
    amax = {**values, **inputs}[f"{name}_amax"]
    return differing(
        case, direction, fields[f"{name}_scale_inv"], activations.quantized(case, inputs), amax, values, other
    )


def _of_codes(case: Case, direction: layout.Direction, blocks: Differing, field: Field) -> Iterator[Accepted]:
    def packed(codes: np.ndarray) -> np.ndarray:
        return nvfp4.pack(codes.astype(np.uint8)).reshape(field.shape)

    nothing = np.broadcast_to((blocks.scale == 0)[:, None], blocks.codes.shape)
    for convention, mask in ((ZERO_SCALE, nothing), (NAN_CODES, np.isnan(blocks.x))):
        if mask.any():
            yield Accepted(convention, "skip", packed(np.where(mask, 0xF, 0)))
    random = case.flags.get("rounding") == "sr"
    if case.flags.get("fast_math"):
        return  # a different multiplier, not just a different order
    codes = _other(case, blocks, random)
    if (codes != blocks.codes).any():
        yield Accepted(RANDOM if random else DIVISION, "either", packed(codes))


def _other(case: Case, blocks: Differing, random: bool) -> np.ndarray:
    """(n, 16): the other code that each element may have, or its own if there is none."""
    steps = nvfp4.E2M1_VALUES[:8].astype(np.float64)
    largest = LARGEST_E2M1 * case.e4m3_max
    scale = nvfp4.E4M3_VALUES[blocks.scale].astype(np.float64)
    size = np.abs(blocks.x) * (largest / blocks.amax / scale)[:, None]
    code = (blocks.codes & 7).astype(np.int64)
    if random:
        below = np.searchsorted(steps, size, side="right") - 1
        other = np.where(code == below, below + (size > steps[np.maximum(below, 0)]), below)
    else:
        middle = (steps[1:] + steps[:-1]) / 2
        up = (code < 7) & (size >= middle[np.minimum(code, 6)] * (1 - TIE))
        down = (code > 0) & (size <= middle[np.maximum(code, 1) - 1] * (1 + TIE))
        other = code + up - (down & ~up)
    # Recipes with an amax floor use it for all smaller amaxes.
    least = float(nvfp4.AMAX_FLOOR) if case.recipe in ("local_1x64", "per_token") else LEAST_AMAX
    known = (scale > 0) & np.isfinite(scale) & np.isfinite(blocks.amax) & (blocks.amax >= least)
    sound = known[:, None] & np.isfinite(size) & (np.abs(other - code) == 1) & (other >= 0) & (other <= 7)
    return np.where(sound, blocks.codes & 8 | other, blocks.codes)
