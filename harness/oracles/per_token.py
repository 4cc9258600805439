"""per_token: one amax for every row and one for every column. NUMERICS section 7, in float32, RN at every operation.

Per output, over lines of the input (rows, or columns for the columnwise output), each line on its own:
  0. rht, columnwise only: every 16 elements of a line are rotated. Their r stay as the butterflies leave them, float32
     and four times too long; h = 0.25 stands wherever that matters. Otherwise r = x and h = 1.
  1. amax = RN(h * max |r|) of the line, NaN dropped, 0 if nothing is left; written as it is.
  2. S_enc = fmin(RN(2688/fmax(amax, 1e-12)), FLT_MAX); 1 if amax is inf.
  3. scale_inv = e4m3(RN(block_amax * RN(S_enc * (1/6)))) of every 1x16 block, block_amax = RN(h * max |r|) of it.
     Step 2.4 has an fmin here that the contract leaves out; it changes no byte, because e4m3 saturates.
  4. m = RN(S_enc/f32(scale_inv)), 0 where scale_inv is 0.
  5. code = e2m1(RN(r * RN(m * h))), nearest-even or stochastic; inf*0 is NaN and encodes 0x7.
weight_2d: per_tensor with 16x16 blocks instead, steps 2 to 6 of section 3. Its one amax, whose S_enc has no floor,
stands in every entry of both amax fields.
scale_layout=swizzled: the rowwise scale bytes only; the columnwise ones stay compact.
stage=amax ends after 1; stage=encode is given the amaxes and starts at 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.errors import ContractError
from harness.oracles import layout, nvfp4, quantizer
from harness.oracles.layout import COLUMNWISE, Slab

if TYPE_CHECKING:
    import torch


def refuse(case: Case) -> None:
    """Raise ContractError for a size or combination of flags that per_token does not define."""
    layout.require_whole_blocks(case, layout.TILE_ROWS)
    quantizer.require(case, "dtype", "bf16", "one amax per token is defined for bf16 inputs")
    if case.flags.weight_2d:
        quantizer.require(case, "rht", False, "weight_2d has 16x16 blocks, which a rotation along columns would mix")


def outputs(case: Case) -> dict[str, Field]:
    """The arrays this case writes; `rowwise_amax` is (rows,) and `columnwise_amax` (cols,)."""
    refuse(case)
    fields = quantizer.outputs(_shared(case, case.flags.stage), "row")
    if case.flags.scale_layout == "swizzled" and "rowwise_scale_inv" in fields:
        fields["rowwise_scale_inv"] = replace(fields["rowwise_scale_inv"], swizzled=True)
    return fields


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays the kernel reads: `input` (rows, cols), and for stage=encode the amaxes, float32."""
    refuse(case)
    return {"input": x, **(_amaxes(case, x) if case.flags.stage == "encode" else {})}


def encode_steps(case: Case) -> dict[str, object]:
    """Choices of the diagnosis' `Steps` that are this recipe's."""
    if case.flags.weight_2d:
        return {"granularity": "tensor", "square": True, "multiplier": "reciprocal"}
    return {"granularity": "row", "amax_floor": nvfp4.AMAX_FLOOR, "multiplier": "direct", "rotation_rounded": False}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The bytes of every field of `outputs(case)`."""
    refuse(case)
    x = tensors["input"]
    written = _given_amaxes(case, tensors) or _amaxes(case, x)
    if case.flags.stage != "amax":
        written |= _encoded(case, x, written)
    return {name: written[name] for name in outputs(case)}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same fields from the independent torch oracle, on the device the tensors are on."""
    from harness.oracles import torch_oracle as blocks

    refuse(case)
    given = _given_amaxes(case, tensors)
    return blocks.per_token(case, tensors["input"], amax=given or None)


def _given_amaxes(case: Case, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The amax fields that stage=encode reads; ContractError if they cannot be what the flags say."""
    given = quantizer.given_amaxes(case, tensors, "row")
    for name, amax in given.items():
        if case.flags.weight_2d and (amax != amax[0]).any():
            raise ContractError(
                f"{case.recipe}: with weight_2d every entry of {name} is the amax of the whole tensor, "
                f"and entry {int((amax != amax[0]).nonzero()[0][0])} differs from entry 0"
            )
    return given


def _shared(case: Case, stage: str) -> Case:
    """One stage of the case in the flags that `quantizer` reads. Its seed is another, so nothing is drawn from it."""
    block = "block_16x16" if case.flags.weight_2d else "block_1x16"
    return replace(case, flags=case.flags.replace(stage=stage, block=block, scale_layout="compact"))


def _amaxes(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """Step 1. The largest of all RN(h * |r|) is RN(h * max |r|), because rounding is monotone."""
    granularity = "tensor" if case.flags.weight_2d else "row"
    amaxes = quantizer.quantize(_shared(case, "amax"), {"input": x}, granularity, partial(_encode, case), _quartered)
    lines = {"rowwise_amax": case.rows, "columnwise_amax": case.cols}
    return {name: np.resize(amax, lines[name]) for name, amax in amaxes.items()}


def _encoded(case: Case, x: np.ndarray, amaxes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Steps 2 to 5."""
    tensors = {"input": x, **amaxes}
    written = quantizer.quantize(_shared(case, "encode"), tensors, "row", partial(_encode, case), _rotated)
    if case.flags.scale_layout == "swizzled" and "rowwise_scale_inv" in written:
        written["rowwise_scale_inv"] = layout.swizzle(written["rowwise_scale_inv"])
    return written


def _rotates(case: Case, slab: Slab) -> bool:
    return case.flags.rht and slab.direction is COLUMNWISE


def _rotated(case: Case, slab: Slab) -> np.ndarray:
    """Step 0: r."""
    return nvfp4.hadamard(slab.v, case.flags.sign_mask) if _rotates(case, slab) else slab.v


@nvfp4.ieee
def _quartered(case: Case, slab: Slab) -> np.ndarray:
    """RN(h * r), which is not what is encoded."""
    return _rotated(case, slab) * (nvfp4.RHT_NORM if _rotates(case, slab) else nvfp4.ONE)


@nvfp4.ieee
def _encode(case: Case, _shared: Case, slab: Slab, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 5 of a slab of r."""
    if case.flags.weight_2d:
        s_enc = nvfp4.global_encode_scale(amax)
        scale_inv = nvfp4.scale_inv_multiply(nvfp4.tile_amax(slab.v), s_enc)
        m = nvfp4.multiplier_reciprocal(scale_inv, nvfp4.global_decode_scale(s_enc))
    else:
        h = nvfp4.RHT_NORM if _rotates(case, slab) else nvfp4.ONE
        s_enc = nvfp4.global_encode_scale(np.fmax(amax, nvfp4.AMAX_FLOOR))  # 2
        scale_inv = nvfp4.scale_inv_multiply(nvfp4.block_amax(slab.v) * h, s_enc)  # 3
        m = nvfp4.multiplier_direct(scale_inv, s_enc) * h  # 4
    return scale_inv, quantizer.cast(case, slab, nvfp4.scaled(slab.v, m))  # 5
