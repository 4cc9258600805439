"""dequantize: NVFP4 back to a float tensor. NUMERICS section 9.

Float32; RN marks every rounding, to nearest even. E is `e4m3_max`, or 114688 for scale_format=ue5m3.
  1. f = RN(RN(f32(scale_inv) * amax) * C), C = RN(1 / (6*E))    one f per 1x16 block; not reassociated
     The amax is the one of the block's tensor, row or 1x64 window.
     global_scale=false: none is given, and it is 6*E.
  2. out = cast(RN(q * f))         f32→bf16, fp16 rounds to nearest even; overflow gives inf; q of code 8 is -0.0
  3. columnwise: a line of the copy is a column of the output
A NaN scale byte (e4m3's 0x7F and 0xFF, ue5m3's 0xFF) makes its 16 elements NaN, also where the code is 0; an infinite
amax makes codes of 0 NaN. A NaN is stored as the hardware's conversions write it: 0x7FFF in bf16 and fp16, 0x7FFFFFFF
in fp32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.errors import ContractError
from harness.oracles import four_over_six, layout, local_1x64, nvfp4, per_tensor, quantizer, row_scaled

if TYPE_CHECKING:
    import torch

EXHAUSTIVE_AMAX = np.float32(np.pi)  # a full mantissa: no product of step 1 or 2 is exact
QUANTIZERS = {oracle.GRANULARITY: oracle for oracle in (per_tensor, row_scaled, local_1x64)}


def refuse(case: Case) -> None:
    flags = case.flags
    if flags.granularity not in QUANTIZERS:
        *others, last = QUANTIZERS
        raise ContractError(
            f"{case.recipe}: reads one amax per {', '.join(others)} or {last}, not one per {flags.granularity}"
        )
    layout.require_whole_blocks(case, QUANTIZERS[flags.granularity].MULTIPLE, no_rows=True)
    quantizer.require_one_of(case, "e4m3_max", nvfp4.E4M3_BOUNDS)
    if flags.granularity != "tensor":
        quantizer.require(
            case, "block", "block_1x16", f"no recipe has 16x16 blocks and one amax per {flags.granularity}"
        )
    if flags.granularity == "row" and flags.outputs == "columnwise":
        quantizer.require(case, "e4m3_max", nvfp4.E4M3_MAX, "four_over_six has no amax of a column")
    if flags.granularity == "window":
        quantizer.require(case, "e4m3_max", nvfp4.E4M3_MAX, "no recipe has windows and another e4m3_max")
    if case.scale_format not in per_tensor.SCALE_FORMATS:
        raise ContractError(f"{case.recipe}: scale_format must be e4m3 or ue5m3, not {case.scale_format}")
    if case.scale_format != "e4m3" or not case.two_levels:
        because = "ue5m3 scales, and none above them, are defined for per_tensor alone"
        quantizer.require(case, "granularity", "tensor", because)
        quantizer.require(case, "e4m3_max", nvfp4.E4M3_MAX, because)


def outputs(case: Case) -> dict[str, Field]:
    """`output` (rows, cols) in `flags.dtype`."""
    refuse(case)
    return {"output": Field((case.rows, case.cols), nvfp4.DTYPES[case.flags.dtype].name)}


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`data` (lines, length/2) u8, `scale_inv` whole allocation u8, `amax` float32 by granularity, of one direction.

    They come from `x` in the case's dtype, by the recipe that has this granularity and e4m3_max. The input `exhaustive`
    ignores `x` and has every scale byte meet every code: the 16 codes in order in each block, scale byte = number of
    the block mod 256, and another amax for every granule.
    """
    refuse(case)
    tensors = _exhaustive(case) if case.input == "exhaustive" else _quantized(case, x)
    if case.flags.scale_layout == "swizzled":
        tensors["scale_inv"] = layout.swizzle(tensors["scale_inv"])
    return tensors


def _quantized(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    flags = case.flags
    by = {"dtype": flags.dtype, "outputs": flags.outputs, "block": flags.block}
    if case.scale_format != "e4m3" or not case.two_levels:
        by |= {"scale_format": case.scale_format, "global_scale": case.two_levels}
    if flags.e4m3_max == nvfp4.E4M3_MAX:
        quantized = quantizer.quantize_plain(case, x, QUANTIZERS[flags.granularity], **by)
    else:
        by |= {"e4m3_max": flags.e4m3_max, "row_scaled": flags.granularity == "row"}
        quantized = quantizer.quantize_plain(case, x, four_over_six, **by)
    return {name.removeprefix(f"{flags.outputs}_"): array for name, array in quantized.items()}


def _exhaustive(case: Case) -> dict[str, np.ndarray]:
    direction = layout.DIRECTIONS[case.flags.outputs]
    lines, length = direction.extents(case.rows, case.cols)
    blocks = length // nvfp4.BLOCK
    data = np.tile(nvfp4.pack(np.arange(nvfp4.BLOCK, dtype=np.uint8)), (lines, blocks))
    tile_lines = nvfp4.BLOCK if case.flags.block == "block_16x16" else 1
    number = np.arange(lines // tile_lines * blocks).reshape(-1, blocks)
    scale_inv = np.repeat((number % 256).astype(np.uint8), tile_lines, axis=0)
    granules = layout.amax_field(case.rows, case.cols, direction, case.flags.granularity).shape
    amax = EXHAUSTIVE_AMAX * np.arange(1, np.prod(granules) + 1, dtype=np.float32).reshape(granules)
    given = {"amax": amax} if case.two_levels else {}
    return {"data": data, "scale_inv": layout.arrange(scale_inv, "compact"), **given}


def decode_steps(case: Case) -> dict[str, object]:
    """How the recipe decodes, as arguments of the diagnosis' `DecodeSteps`."""
    flags = case.flags
    return {
        "dtype": flags.dtype,
        "e4m3_max": case.scale_max,
        "scale_format": case.scale_format,
        "two_levels": case.two_levels,
        "layout": flags.scale_layout,
        "granularity": flags.granularity,
        "transposed": flags.outputs == "columnwise",
    }


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    refuse(case)
    flags = case.flags
    direction = layout.DIRECTIONS[flags.outputs]
    decode = nvfp4.decode_ue5m3 if case.scale_format == "ue5m3" else nvfp4.decode_e4m3
    given = tensors["amax"] if case.two_levels else np.full(1, nvfp4.E2M1_MAX * case.scale_max, np.float32)
    layout.require_amax(case, "amax", given, direction, flags.granularity)
    lines, length = direction.extents(case.rows, case.cols)
    scale_inv = layout.gather(tensors["scale_inv"], (lines, length // nvfp4.BLOCK), flags.scale_layout)
    output = np.empty((case.rows, case.cols), nvfp4.DTYPES[flags.dtype])
    by_line = output.T if direction.transposed else output  # 3
    for part in layout.slabs(lines, length):
        q = nvfp4.decode_e2m1(nvfp4.unpack(tensors["data"][part]))
        amax = layout.amax_of_blocks(given, part, flags.granularity)
        f = nvfp4.decode_factor(scale_inv[part], amax, case.scale_max, decode)  # 1
        by_line[part] = nvfp4.convert(nvfp4.scaled(q, f), flags.dtype)  # 2
    return {"output": output}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_oracle as blocks

    refuse(case)
    return blocks.dequantize(case, tensors)
