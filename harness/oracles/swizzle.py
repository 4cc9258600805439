"""swizzle: compact scale bytes into the 128x4 tiles that a GEMM reads. NUMERICS 1.7; a permutation, no numerics.

  1. byte (r, c) of the padded (R, C) matrix goes to
     off(r, c) = ((r/128)*(C/4) + c/4)*512 + (r%32)*16 + ((r%128)/32)*4 + c%4      divisions of integers; nothing rounds
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
    """`swizzled_scale_inv`: (roundup(lines, 128), roundup(length/16, 4)) u8 in 128x4 tiles."""
    refuse(case)
    direction = layout.DIRECTIONS[case.flags.direction]
    return {"swizzled_scale_inv": layout.scale_field(case.rows, case.cols, direction, "block_1x16", swizzled=True)}


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`scale_inv`: the compact padded scale bytes that per_tensor makes of `x` as bf16."""
    refuse(case)
    direction = case.flags.direction
    quantized = quantizer.quantize_plain(case, x, per_tensor, outputs=direction)
    return {"scale_inv": quantized[f"{direction}_scale_inv"]}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    refuse(case)
    return {"swizzled_scale_inv": layout.swizzle(tensors["scale_inv"])}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_layout

    refuse(case)
    return {"swizzled_scale_inv": torch_layout.swizzle(tensors["scale_inv"])}
