"""row_scaled: one amax for every row. NUMERICS section 4.

Float32; RN marks every rounding, to nearest even. For each output, each of its lines on its own: rows of the input, or
columns for the columnwise output.
  1. amax = max |x| of the line           NaN is dropped; 0 if nothing is left
  2. S_enc = fmin(RN(2688 / amax), FLT_MAX)                                 1 if amax is 0 or inf
  3. S_dec = RN(1 / S_enc)
  4. scale_inv = e4m3(fmin(RN(block_amax * RN(S_enc * (1/6))), FLT_MAX))    f32→e4m3 rounds to nearest even
     A block is 1x16.
  5. m = fmin(RN(1 / RN(f32(scale_inv) * S_dec)), FLT_MAX)
  6. code = e2m1(RN(x * m))               f32→e2m1 rounds to nearest even
stage=amax ends after step 1; stage=encode is given the amaxes and starts at step 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import layout, nvfp4, quantizer
from harness.oracles.layout import Slab

if TYPE_CHECKING:
    import torch

GRANULARITY = "row"
MULTIPLE = nvfp4.BLOCK
PLAIN = {**quantizer.PLAIN, "rht": False}


def refuse(case: Case) -> None:
    layout.require_whole_blocks(case, MULTIPLE, no_rows=True)
    quantizer.require(case, "block", "block_1x16", "the sixteen rows of a tile have amaxes of their own")
    quantizer.require(case, "rht", False, "the rotation is defined for one amax per tensor, and per token")
    quantizer.require(case, "rounding", "rne", "stochastic rounding is defined for one amax per tensor, and per token")


def outputs(case: Case) -> dict[str, Field]:
    """Data, scale_inv and amax of each direction; `rowwise_amax` is (rows,) and `columnwise_amax` (cols,)."""
    refuse(case)
    return quantizer.outputs(case, GRANULARITY)


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`input` (rows, cols), and for stage=encode the amaxes, float32."""
    refuse(case)
    return quantizer.inputs(case, x, GRANULARITY)


def encode_steps(case: Case) -> dict[str, object]:
    return {"granularity": GRANULARITY, "multiplier": "reciprocal"}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    refuse(case)
    return quantizer.quantize(case, tensors, GRANULARITY, _encode)


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_oracle as blocks

    refuse(case)
    return blocks.quantize(case, tensors["input"], GRANULARITY, tensors)


def _encode(case: Case, slab: Slab, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 6."""
    s_enc = nvfp4.global_encode_scale(amax)  # 2
    s_dec = nvfp4.global_decode_scale(s_enc)  # 3
    scale_inv = nvfp4.scale_inv_multiply(nvfp4.block_amax(slab.v), s_enc)  # 4
    m = nvfp4.multiplier_reciprocal(scale_inv, s_dec)  # 5
    return scale_inv, nvfp4.e2m1(nvfp4.scaled(slab.v, m))  # 6
