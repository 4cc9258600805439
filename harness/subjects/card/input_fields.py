"""The arrays that a case reads, as fields: which ones are padded scale bytes, and their layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import gemm_flags, layout, nvfp4

_SIDE = {"dequantize": "outputs", "swizzle": "direction", "swizzle_grouped": "direction"}  # the flag that names a copy
_PRODUCTS = ("gemm", "gemm_ordered", "gemm_grouped")


def input_fields(case: Case, arrays: Mapping[str, np.ndarray]) -> dict[str, Field]:
    """A field for each array that the case reads."""
    fields = {name: Field(array.shape, array.dtype.name) for name, array in arrays.items()}
    # The oracle only describes the tensor, so the padding of a larger allocation is unknown.
    scales = {name: field for name, field in _scales(case).items() if field.size == fields[name].size}
    return fields | {name: replace(field, shape=fields[name].shape) for name, field in scales.items()}


def read_side(case: Case, name: str) -> str:
    """The copy of a quantized tensor that an input array belongs to, `rowwise` or `columnwise`; else empty."""
    if case.recipe in _SIDE:
        return str(case.flags[_SIDE[case.recipe]])
    if case.recipe in _PRODUCTS and name[:2] in ("a_", "b_"):
        return gemm_flags.direction(case, name[0]).name
    return ""


def _scales(case: Case) -> dict[str, Field]:
    if case.recipe in _PRODUCTS:
        operands = {name: [_of_operand(part, name) for part in case.parts] for name in "ab"}
        return {f"{name}_scale_inv": Field.joined(of) if case.is_group else of[0] for name, of in operands.items()}
    if case.recipe not in _SIDE:
        return {}
    flags, direction = case.flags, layout.DIRECTIONS[read_side(case, "")]
    if case.recipe == "dequantize":
        swizzled = flags.scale_layout == "swizzled"
        return {"scale_inv": layout.scale_field(case.rows, case.cols, direction, str(flags.block), swizzled)}
    swizzled = flags.to == "compact"
    extents = case.problem.tensors if case.is_group else [(case.rows, case.cols)]
    parts = [layout.scale_field(*each, direction, "block_1x16", swizzled) for each in extents]
    return {"swizzled_scale_inv" if swizzled else "scale_inv": Field.joined(parts) if case.is_group else parts[0]}


def _of_operand(case: Case, name: str) -> Field:
    valid = gemm_flags.lines(case, name), case.cols // nvfp4.BLOCK
    return Field(
        layout.padded_shape(*valid), "uint8", valid=valid, swizzled=case.flags[f"{name}_scale_layout"] == "swizzled"
    )
