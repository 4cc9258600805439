"""per_token: one amax for every row and one for every column. NUMERICS section 7.

Float32; RN marks every rounding, to nearest even. For each output, each of its lines on its own: rows of the input, or
columns for the columnwise output.
  0. r = rht(x), h = 0.25 columnwise with rht: 16 elements at a time, float32, four times too long; else r = x, h = 1
  1. amax = RN(h * max |r|) of the line   NaN is dropped; 0 if nothing is left; stored raw
  2. S_enc = fmin(RN(2688 / fmax(amax, 1e-12)), FLT_MAX)       1 if amax is inf
  3. scale_inv = e4m3(RN(block_amax * RN(S_enc * (1/6))))      per 1x16 block; f32→e4m3 rounds to nearest even
     block_amax = RN(h * max |r|) of the block. The code takes 2.4, which has an fmin here; it changes no byte.
  4. m = RN(S_enc / f32(scale_inv))                            0 where scale_inv is 0
  5. code = e2m1(RN(r * RN(m * h)))       f32→e2m1 rounds to nearest even, or stochastically by 2.9; a NaN encodes 0x7
weight_2d: steps 1 to 6 of section 3 with 16x16 blocks; the one amax, without a floor, fills both amax fields.
scale_layout=swizzled: the rowwise scale bytes only; the columnwise ones stay compact.
stage=amax ends after step 1; stage=encode is given the amaxes and starts at step 2.
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

GRANULARITY = "row"
MULTIPLE = nvfp4.BLOCK
PLAIN = {**quantizer.PLAIN, "rht": False, "weight_2d": False}


def refuse(case: Case) -> None:
    layout.require_whole_blocks(case, MULTIPLE, no_rows=True)
    quantizer.require(case, "dtype", "bf16", "one amax per token is defined for bf16 inputs")
    if case.flags.weight_2d:
        quantizer.require(case, "rht", False, "weight_2d has 16x16 blocks, which a rotation along columns would mix")


def outputs(case: Case) -> dict[str, Field]:
    """Data, scale_inv and amax of each direction; `rowwise_amax` is (rows,) and `columnwise_amax` (cols,)."""
    refuse(case)
    fields = quantizer.outputs(_shared(case, case.flags.stage), GRANULARITY)
    if case.flags.scale_layout == "swizzled" and "rowwise_scale_inv" in fields:
        fields["rowwise_scale_inv"] = replace(fields["rowwise_scale_inv"], swizzled=True)
    return fields


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`input` (rows, cols), and for stage=encode the amaxes, float32."""
    refuse(case)
    return {"input": x, **(_amaxes(case, x) if case.flags.stage == "encode" else {})}


def encode_steps(case: Case) -> dict[str, object]:
    if case.flags.weight_2d:
        return {"granularity": "tensor", "square": True, "multiplier": "reciprocal"}
    return {
        "granularity": GRANULARITY,
        "amax_floor": nvfp4.AMAX_FLOOR,
        "multiplier": "direct",
        "rotation_rounded": False,
    }


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    refuse(case)
    x = tensors["input"]
    written = _given_amaxes(case, tensors) or _amaxes(case, x)
    if case.flags.stage != "amax":
        written |= _encoded(case, x, written)
    return {name: written[name] for name in outputs(case)}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_oracle as blocks

    refuse(case)
    return blocks.per_token(case, tensors["input"], _given_amaxes(case, tensors))


def _given_amaxes(case: Case, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The amax fields that stage=encode reads. Raises ContractError if their shapes or entries are impossible."""
    given = quantizer.given_amaxes(case, tensors, GRANULARITY)
    for name, amax in given.items():
        if case.flags.weight_2d and (amax != amax[:1]).any():
            raise ContractError(
                f"{case.recipe}: with weight_2d every entry of {name} is the amax of the whole tensor, "
                f"and entry {int((amax != amax[0]).nonzero()[0][0])} differs from entry 0"
            )
    return given


def _shared(case: Case, stage: str) -> Case:
    """One stage of the case, with the flags that `quantizer` reads.

    Its seed differs, so nothing may be drawn from it.
    """
    block = "block_16x16" if case.flags.weight_2d else "block_1x16"
    return replace(case, flags=case.flags.replace(stage=stage, block=block, scale_layout="compact"))


def _amaxes(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """Step 1. The largest of all RN(h * |r|) is RN(h * max |r|), because rounding is monotone."""
    granularity = "tensor" if case.flags.weight_2d else GRANULARITY
    amaxes = quantizer.quantize(_shared(case, "amax"), {"input": x}, granularity, partial(_encode, case), _quartered)
    lines = {"rowwise_amax": case.rows, "columnwise_amax": case.cols}
    return {name: np.resize(amax, lines[name]) if lines[name] else amax[:0] for name, amax in amaxes.items()}


def _encoded(case: Case, x: np.ndarray, amaxes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Steps 2 to 5."""
    tensors = {"input": x, **amaxes}
    written = quantizer.quantize(_shared(case, "encode"), tensors, GRANULARITY, partial(_encode, case), _rotated)
    if case.flags.scale_layout == "swizzled" and "rowwise_scale_inv" in written:
        written["rowwise_scale_inv"] = layout.swizzle(written["rowwise_scale_inv"])
    return written


def _rotates(case: Case, slab: Slab) -> bool:
    return case.flags.rht and slab.direction is COLUMNWISE


def _rotated(case: Case, slab: Slab) -> np.ndarray:
    """Step 0."""
    return nvfp4.hadamard(slab.v, case.flags.sign_mask) if _rotates(case, slab) else slab.v


@nvfp4.ieee
def _quartered(case: Case, slab: Slab) -> np.ndarray:
    """RN(h * r), for step 1; the encoding takes r itself."""
    return _rotated(case, slab) * (nvfp4.RHT_NORM if _rotates(case, slab) else nvfp4.ONE)


@nvfp4.ieee
def _encode(case: Case, _shared: Case, slab: Slab, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 5, from a slab of r."""
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
