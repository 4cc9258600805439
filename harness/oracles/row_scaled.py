"""row_scaled: one amax for every row. NUMERICS section 4, in float32, RN at every operation.

Per output, over lines of the input (rows, or columns for the columnwise output), each line on its own:
  1. amax = max |x| of the line, NaN dropped, 0 if nothing is left.
  2. S_enc = fmin(RN(2688/amax), FLT_MAX); 1 if amax is 0 or inf.
  3. S_dec = RN(1/S_enc).
  4. scale_inv = e4m3(fmin(RN(block_amax * RN(S_enc * (1/6))), FLT_MAX)) of every 1x16 block.
  5. m = fmin(RN(1/RN(f32(scale_inv) * S_dec)), FLT_MAX).
  6. code = e2m1(RN(x * m)), nearest-even.
stage=amax ends after 1; stage=encode is given the amaxes and starts at 2.
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


def refuse(case: Case) -> None:
    """Raise ContractError for a size or combination of flags that row_scaled does not define."""
    layout.require_whole_blocks(case)
    quantizer.require(case, "block", "block_1x16", "the sixteen rows of a tile have amaxes of their own")
    quantizer.require(case, "rht", False, "the rotation is defined for one amax per tensor, and per token")
    quantizer.require(case, "rounding", "rne", "stochastic rounding is defined for one amax per tensor, and per token")


def outputs(case: Case) -> dict[str, Field]:
    """The arrays this case writes; `rowwise_amax` is (rows,) and `columnwise_amax` (cols,)."""
    refuse(case)
    return quantizer.outputs(case, "row")


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays the kernel reads: `input` (rows, cols), and for stage=encode the amaxes, float32."""
    refuse(case)
    return quantizer.inputs(case, x, "row")


def encode_steps(case: Case) -> dict[str, object]:
    """Choices of the diagnosis' `Steps` that are this recipe's."""
    return {"granularity": "row", "multiplier": "reciprocal"}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The bytes of every field of `outputs(case)`."""
    refuse(case)
    return quantizer.quantize(case, tensors, "row", _encode)


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same fields from the independent torch oracle, on the device the tensors are on."""
    from harness.oracles import torch_oracle as blocks

    refuse(case)
    given = quantizer.given_amaxes(case, tensors, "row")
    return blocks.quantize(case, tensors["input"], granularity="row", amax=given or None)


def _encode(case: Case, slab: Slab, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 6."""
    s_enc = nvfp4.global_encode_scale(amax)  # 2
    s_dec = nvfp4.global_decode_scale(s_enc)  # 3
    scale_inv = nvfp4.scale_inv_multiply(nvfp4.block_amax(slab.v), s_enc)  # 4
    m = nvfp4.multiplier_reciprocal(scale_inv, s_dec)  # 5
    return scale_inv, nvfp4.e2m1(nvfp4.scaled(slab.v, m))  # 6
