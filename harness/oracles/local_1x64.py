"""local_1x64: one amax for every 64 elements of a line. NUMERICS section 5.

Float32; RN marks every rounding, to nearest even. For each output, each 1x64 window of its lines on its own: rows of
the input, or columns for the columnwise output.
  1. amax = max |x| of the window         NaN is dropped; 0 if nothing is left; stored raw
  2. S_enc = fmin(RN(2688 / fmax(amax, 1e-12)), FLT_MAX)                    1 if amax is inf
  3. scale_inv = e4m3(RN(block_amax * RN(S_enc * (1/6))))            per 1x16 block; f32→e4m3 rounds to nearest even
     The code takes 2.4, which has an fmin here; it changes no byte, because e4m3 saturates and no NaN can occur.
  4. m = RN(S_enc / f32(scale_inv))                                         0 where scale_inv is 0
     multiplier=reciprocal: m = fmin(RN(1 / RN(f32(scale_inv) * RN(1 / S_enc))), FLT_MAX)
  5. code = e2m1(RN(x * m))               f32→e2m1 rounds to nearest even; inf * 0 is NaN and encodes 0x7
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

GRANULARITY = "window"
MULTIPLE = nvfp4.WINDOW
PLAIN = {**quantizer.PLAIN, "rht": False, "multiplier": "direct"}


def refuse(case: Case) -> None:
    layout.require_whole_blocks(case, MULTIPLE, no_rows=True)
    quantizer.require(case, "block", "block_1x16", "the sixteen rows of a tile have windows of their own")
    quantizer.require(case, "rht", False, "the window's own amax takes the outliers that a rotation would spread")
    quantizer.require(case, "rounding", "rne", "stochastic rounding is not defined for windows")


def outputs(case: Case) -> dict[str, Field]:
    """Data, scale_inv and amax of each direction; an amax is (rows, cols/64) rowwise and (cols, rows/64) columnwise."""
    refuse(case)
    return quantizer.outputs(case, GRANULARITY)


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`input` (rows, cols)."""
    refuse(case)
    return quantizer.inputs(case, x, GRANULARITY)


def encode_steps(case: Case) -> dict[str, object]:
    return {"granularity": GRANULARITY, "amax_floor": nvfp4.AMAX_FLOOR, "multiplier": case.flags.multiplier}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    refuse(case)
    return quantizer.quantize(case, tensors, GRANULARITY, _encode)


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_numerics
    from harness.oracles import torch_oracle as blocks

    refuse(case)
    floor = torch_numerics.AMAX_FLOOR
    options = {"multiplier": case.flags.multiplier, "amax_floor": floor, "clamp_scale": False}
    return blocks.quantize(case, tensors["input"], GRANULARITY, **options)


def _encode(case: Case, slab: Slab, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 5."""
    s_enc = nvfp4.global_encode_scale(np.fmax(amax, nvfp4.AMAX_FLOOR))  # 2
    scale_inv = nvfp4.scale_inv_multiply(nvfp4.block_amax(slab.v), s_enc)  # 3
    if case.flags.multiplier == "direct":  # 4
        m = nvfp4.multiplier_direct(scale_inv, s_enc)
    else:
        m = nvfp4.multiplier_reciprocal(scale_inv, nvfp4.global_decode_scale(s_enc))
    return scale_inv, nvfp4.e2m1(nvfp4.scaled(slab.v, m))  # 5
