"""swizzle: compact scale bytes into the 128x4 tiles that a GEMM reads, or back. NUMERICS 1.7; a permutation.

  1. to=swizzled: byte (r, c) of the padded (R, C) matrix goes to
     off(r, c) = ((r/128)*(C/4) + c/4)*512 + (r%32)*16 + ((r%128)/32)*4 + c%4      divisions of integers; nothing rounds
  2. to=compact: the byte at off(r, c) goes to (r, c)
Padding moves with the rest and stays 0. Both directions take the one formula; columnwise is the transpose's matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import layout, per_tensor, quantizer

if TYPE_CHECKING:
    import torch


def refuse(case: Case) -> None:
    layout.require_whole_blocks(case)


def outputs(case: Case) -> dict[str, Field]:
    """`swizzled_scale_inv`, or `scale_inv`: (roundup(lines, 128), roundup(length/16, 4)) u8."""
    refuse(case)
    direction, swizzled = layout.DIRECTIONS[case.flags.direction], case.flags.to == "swizzled"
    return {field_name(swizzled): layout.scale_field(case.rows, case.cols, direction, "block_1x16", swizzled)}


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`scale_inv`, or `swizzled_scale_inv`: the padded scale bytes that per_tensor makes of `x` as bf16."""
    refuse(case)
    direction, swizzled = case.flags.direction, case.flags.to == "compact"
    flags = {"outputs": direction, "scale_layout": "swizzled" if swizzled else "compact"}
    quantized = quantizer.quantize_plain(case, x, per_tensor, **flags)
    return {field_name(swizzled): quantized[f"{direction}_scale_inv"]}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    refuse(case)
    if case.flags.to == "compact":
        return {"scale_inv": layout.unswizzle(tensors["swizzled_scale_inv"])}
    return {"swizzled_scale_inv": layout.swizzle(tensors["scale_inv"])}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_layout

    refuse(case)
    if case.flags.to == "compact":
        return {"scale_inv": torch_layout.unswizzle(tensors["swizzled_scale_inv"])}
    return {"swizzled_scale_inv": torch_layout.swizzle(tensors["scale_inv"])}


def field_name(swizzled: bool) -> str:
    """The array of a layout."""
    return "swizzled_scale_inv" if swizzled else "scale_inv"
