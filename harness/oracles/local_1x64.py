"""local_1x64: one amax for every 64 elements of a line. NUMERICS section 5, in float32, RN at every operation.

Per output, over lines of the input (rows, or columns for the columnwise output), each 1x64 window on its own:
  1. amax = max |x| of the window, NaN dropped, 0 if nothing is left; written as it is.
  2. S_enc = fmin(RN(2688/fmax(amax, 1e-12)), FLT_MAX); 1 if amax is inf.
  3. scale_inv = e4m3(RN(block_amax * RN(S_enc * (1/6)))) of each of the window's four 1x16 blocks. Step 2.4 has an
     fmin here that the contract leaves out; it changes no byte, because e4m3 saturates and no NaN can occur.
  4. m = RN(S_enc/f32(scale_inv)), 0 where scale_inv is 0;
     multiplier=reciprocal: m = fmin(RN(1/RN(f32(scale_inv) * RN(1/S_enc))), FLT_MAX).
  5. code = e2m1(RN(x * m)), nearest-even; inf*0 is NaN and encodes 0x7.
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

PLAIN = {"multiplier": "direct"}  # for `quantize_plain`


def refuse(case: Case) -> None:
    """Raise ContractError for a size or combination of flags that local_1x64 does not define."""
    layout.require_whole_blocks(case, nvfp4.WINDOW)
    quantizer.require(case, "block", "block_1x16", "the sixteen rows of a tile have windows of their own")
    quantizer.require(case, "rht", False, "the window's own amax takes the outliers that a rotation would spread")
    quantizer.require(case, "rounding", "rne", "stochastic rounding is not defined for windows")


def outputs(case: Case) -> dict[str, Field]:
    """The arrays this case writes; `rowwise_amax` is (rows, cols/64) and `columnwise_amax` (cols, rows/64)."""
    refuse(case)
    return quantizer.outputs(case, "window")


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """The array the kernel reads: `input` (rows, cols)."""
    refuse(case)
    return quantizer.inputs(case, x, "window")


def encode_steps(case: Case) -> dict[str, object]:
    """Choices of the diagnosis' `Steps` that are this recipe's."""
    return {"granularity": "window", "amax_floor": nvfp4.AMAX_FLOOR, "multiplier": case.flags.multiplier}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The bytes of every field of `outputs(case)`."""
    refuse(case)
    return quantizer.quantize(case, tensors, "window", _encode)


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same fields from the independent torch oracle, on the device the tensors are on."""
    from harness.oracles import torch_numerics
    from harness.oracles import torch_oracle as blocks

    refuse(case)
    return blocks.quantize(
        case,
        tensors["input"],
        granularity="window",
        multiplier=case.flags.multiplier,
        amax_floor=torch_numerics.AMAX_FLOOR,
        clamp_scale=False,
    )


def _encode(case: Case, slab: Slab, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 5."""
    s_enc = nvfp4.global_encode_scale(np.fmax(amax, nvfp4.AMAX_FLOOR))  # 2
    scale_inv = nvfp4.scale_inv_multiply(nvfp4.block_amax(slab.v), s_enc)  # 3
    if case.flags.multiplier == "direct":  # 4
        m = nvfp4.multiplier_direct(scale_inv, s_enc)
    else:
        m = nvfp4.multiplier_reciprocal(scale_inv, nvfp4.global_decode_scale(s_enc))
    return scale_inv, nvfp4.e2m1(nvfp4.scaled(slab.v, m))  # 5
