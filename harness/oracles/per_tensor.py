"""per_tensor: one amax for the whole tensor; the baseline. NUMERICS section 3.

Float32; RN marks every rounding, to nearest even. For each output, over its lines: rows of the input, or columns for
the columnwise output. With an activation x is silu(gate) * up, or its gradients, by `activations.gated`.
  0. x = bf16(RN(rht(x) * 0.25))          f32→bf16 rounds to nearest even
     columnwise with rht only, 16 elements at a time
  1. amax = max |x|                       NaN is dropped; 0 if nothing is left
     global_scale=false: there is no amax, and S_enc and S_dec are 1
  2. S_enc = fmin(RN(2688 / amax), FLT_MAX)                                 1 if amax is 0 or inf
  3. S_dec = RN(1 / S_enc)
  4. scale_inv = e4m3(fmin(RN(block_amax * RN(S_enc * (1/6))), FLT_MAX))    f32→e4m3 rounds to nearest even
     scale_format=ue5m3: f32→ue5m3, and 688128 in place of 2688
     A block is 1x16, or a 16x16 tile whose byte stands in each of its 16 lines.
  5. m = fmin(RN(1 / RN(f32(scale_inv) * S_dec)), FLT_MAX)
     fast_math: m = bf16(fmin(RN(S_enc / f32(scale_inv)), BF16_MAX))        f32→bf16 rounds to nearest even
  6. code = e2m1(RN(x * m))               f32→e2m1 rounds to nearest even, or stochastically by 2.9
stage=amax ends after step 1; stage=encode is given the amax and starts at step 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.errors import ContractError
from harness.oracles import activations, layout, nvfp4, quantizer
from harness.oracles.layout import COLUMNWISE, Slab

if TYPE_CHECKING:
    import torch

GRANULARITY = "tensor"
MULTIPLE = nvfp4.BLOCK
PLAIN = {**quantizer.PLAIN, "rht": False, "fast_math": False, "activation": "none"}
SCALE_FORMATS = ("e4m3", "ue5m3")


def refuse(case: Case) -> None:
    flags = case.flags
    layout.require_whole_blocks(case, MULTIPLE, no_rows=True)
    if flags.rht and flags.dtype != "bf16":
        raise ContractError(f"{case.recipe}: rht rotates bf16 inputs only, not {flags.dtype}")
    if flags.rht and flags.block != "block_1x16":
        raise ContractError(f"{case.recipe}: rht goes with block_1x16 only, not {flags.block}")
    if flags.fast_math and (flags.dtype != "bf16" or flags.block != "block_1x16"):
        raise ContractError(
            f"{case.recipe}: fast_math is defined for bf16 and block_1x16, not {flags.dtype} and {flags.block}"
        )
    quantizer.require_one_of(case, "activation", ("none", *activations.GATED))
    activations.refuse_gated(case)
    if case.scale_format not in SCALE_FORMATS:
        raise ContractError(f"{case.recipe}: scale_format must be e4m3 or ue5m3, not {case.scale_format}")
    if (case.scale_format != "e4m3" or not case.two_levels) and flags.activation != "none":
        raise ContractError(f"{case.recipe}: {flags.activation} is defined with e4m3 scales under an amax only")
    if not case.two_levels and flags.stage != "full":
        raise ContractError(f"{case.recipe}: without a global scale there is no amax, so no stage {flags.stage}")


def outputs(case: Case) -> dict[str, Field]:
    """Data, scale_inv and, with a global scale, amax of each direction; an amax has the shape (1,)."""
    refuse(case)
    return quantizer.outputs(case, GRANULARITY)


def inputs(case: Case, x: np.ndarray, act_input: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """`input` (rows, cols), and for stage=encode the amaxes, (1,) float32.

    With an activation `input` is (rows, 2*cols) for swiglu, and (rows, cols/2) beside `act_input` (rows, cols) for
    dswiglu; x and act_input are what `activations.gated_inputs` takes.
    """
    refuse(case)
    if case.flags.activation == "none":
        return quantizer.inputs(case, x, GRANULARITY, _values)
    read = activations.gated_inputs(case.flags.activation, x, act_input)
    return quantizer.inputs(case, activations.quantized(case, read), GRANULARITY, _values) | read


def encode_steps(case: Case) -> dict[str, object]:
    return {
        "granularity": GRANULARITY,
        "square": case.flags.block == "block_16x16",
        "multiplier": "fast" if case.flags.fast_math else "reciprocal",
        "scale_format": case.scale_format,
        "two_levels": case.two_levels,
    }


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    refuse(case)
    return quantizer.quantize(
        case, {**tensors, "input": activations.quantized(case, tensors)}, GRANULARITY, _encode, _values
    )


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_activations
    from harness.oracles import torch_oracle as blocks

    refuse(case)
    return blocks.quantize(case, torch_activations.quantized(case, tensors), GRANULARITY, tensors)


def _values(case: Case, slab: Slab) -> np.ndarray:
    """Step 0."""
    rotated = case.flags.rht and slab.direction is COLUMNWISE
    return nvfp4.rht(slab.v, case.flags.sign_mask) if rotated else slab.v


def _encode(case: Case, slab: Slab, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 6."""
    flags = case.flags
    s_enc = nvfp4.global_encode_scale(amax, case.scale_max) if case.two_levels else np.ones_like(amax)  # 2
    s_dec = nvfp4.global_decode_scale(s_enc)  # 3
    block_amax = nvfp4.tile_amax(slab.v) if flags.block == "block_16x16" else nvfp4.block_amax(slab.v)  # 4
    if case.scale_format == "ue5m3":
        scale_inv = nvfp4.scale_inv_ue5m3(block_amax, s_enc)
        m = nvfp4.multiplier_ue5m3(scale_inv, s_enc, fast=flags.fast_math)  # 5
    else:
        scale_inv = nvfp4.scale_inv_multiply(block_amax, s_enc)
        direct, reciprocal = nvfp4.multiplier_fast, nvfp4.multiplier_reciprocal
        m = direct(scale_inv, s_enc) if flags.fast_math else reciprocal(scale_inv, s_dec)  # 5
    return scale_inv, quantizer.cast(case, slab, nvfp4.scaled(slab.v, m))  # 6
