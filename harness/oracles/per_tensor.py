"""per_tensor: one amax for the whole tensor; the baseline. NUMERICS section 3, in float32, RN at every operation.

Per output, over lines of the input (rows, or columns for the columnwise output):
  0. rht, columnwise only: every 16 elements of a line are rotated and rounded to bf16; all steps below see those.
  1. amax = max |x|, NaN dropped, 0 if nothing is left.
  2. S_enc = fmin(RN(2688/amax), FLT_MAX); 1 if amax is 0 or inf.
  3. S_dec = RN(1/S_enc).
  4. scale_inv = e4m3(fmin(RN(block_amax * RN(S_enc * (1/6))), FLT_MAX)); a block is 1x16, or a 16x16 tile whose byte
     stands in each of its 16 lines.
  5. m = fmin(RN(1/RN(f32(scale_inv) * S_dec)), FLT_MAX);
     fast_math: m = bf16(fmin(RN(S_enc/f32(scale_inv)), BF16_MAX)).
  6. code = e2m1(RN(x * m)), nearest-even or stochastic.
stage=amax ends after 1; stage=encode is given the amax and starts at 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from harness.case import Case, Flags, FlagValue
from harness.errors import ContractError
from harness.oracles import layout, nvfp4
from harness.oracles.layout import COLUMNWISE, ROWWISE, Direction
from harness.tensor import Field

if TYPE_CHECKING:
    import torch


def refuse(case: Case) -> None:
    """Raise ContractError for a size or combination of flags that per_tensor does not define."""
    flags = case.flags
    layout.require_whole_blocks(case)
    if flags.rht and flags.dtype != "bf16":
        raise ContractError(f"{case.recipe}: rht rotates bf16 inputs only, not {flags.dtype}")
    if flags.rht and flags.block != "block_1x16":
        raise ContractError(f"{case.recipe}: rht goes with block_1x16 only, not {flags.block}")
    if flags.fast_math and (flags.dtype != "bf16" or flags.block != "block_1x16" or flags.rht):
        raise ContractError(
            f"{case.recipe}: fast_math is defined for bf16, block_1x16 and no rht, "
            f"not {flags.dtype}, {flags.block}, rht={str(flags.rht).lower()}"
        )


def outputs(case: Case) -> dict[str, Field]:
    """The arrays this case writes: data, scale_inv and amax of each requested direction, as far as its stage goes."""
    refuse(case)
    flags, fields = case.flags, {}
    for direction in _directions(case):
        if flags.stage != "amax":
            swizzled = flags.scale_layout == "swizzled"
            fields[f"{direction.name}_data"] = layout.data_field(case.rows, case.cols, direction)
            fields[f"{direction.name}_scale_inv"] = layout.scale_field(
                case.rows, case.cols, direction, flags.block, swizzled
            )
        if flags.stage != "encode":
            whole = direction.extents(case.rows, case.cols)
            fields[f"{direction.name}_amax"] = Field((1,), "float32", block=whole, transposed=direction.transposed)
    return fields


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays the kernel reads: `input` (rows, cols), and for stage=encode the amaxes, (1,) float32."""
    refuse(case)
    tensors = {"input": x}
    if case.flags.stage == "encode":
        for direction in _directions(case):
            tensors[f"{direction.name}_amax"] = _amax(case, x, direction)
    return tensors


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The bytes of every field of `outputs(case)`."""
    return quantize(case, tensors)


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same fields from the independent torch oracle, on the device the tensors are on."""
    from harness.oracles import torch_oracle as blocks

    refuse(case)
    given = {name: tensor for name, tensor in tensors.items() if name != "input"}
    return blocks.quantize(case, tensors["input"], granularity="tensor", amax=given or None)


def quantize(case: Case, tensors: dict[str, np.ndarray], e4m3_max: int = nvfp4.E4M3_MAX) -> dict[str, np.ndarray]:
    """`numpy_oracle` with the 2688 of step 2 replaced by 6 * `e4m3_max`."""
    refuse(case)
    written = {}
    for direction in _directions(case):
        name = f"{direction.name}_amax"
        amax = tensors[name] if case.flags.stage == "encode" else _amax(case, tensors["input"], direction)
        written[name] = amax
        if case.flags.stage != "amax":
            data, scale_inv = _encode(case, tensors["input"], direction, amax, e4m3_max)
            written[f"{direction.name}_data"] = data
            written[f"{direction.name}_scale_inv"] = scale_inv
    return {name: written[name] for name in outputs(case)}


def quantize_plain(
    case: Case, x: np.ndarray, e4m3_max: int = nvfp4.E4M3_MAX, **flags: FlagValue
) -> dict[str, np.ndarray]:
    """The tensor that a consumer's case reads: `x` as bf16, rowwise, nearest-even and compact but for `flags`."""
    plain = {
        "dtype": "bf16",
        "block": "block_1x16",
        "outputs": "rowwise",
        "rht": False,
        "rounding": "rne",
        "scale_layout": "compact",
        "fast_math": False,
        "stage": "full",
    }
    quantized_case = replace(case, recipe="per_tensor", flags=Flags({**plain, **flags}))
    return quantize(quantized_case, {"input": nvfp4.convert(x.astype(np.float32), "bf16")}, e4m3_max)


def _directions(case: Case) -> tuple[Direction, ...]:
    return {"both": (ROWWISE, COLUMNWISE), "rowwise": (ROWWISE,), "columnwise": (COLUMNWISE,)}[case.flags.outputs]


def _lines(case: Case, x: np.ndarray, direction: Direction) -> Iterator[tuple[slice, np.ndarray]]:
    """Slabs of lines in float32, after step 0."""
    for part, v in direction.slabs(x):
        rotated = case.flags.rht and direction is COLUMNWISE
        yield part, nvfp4.rht(v, case.flags.sign_mask) if rotated else v


def _amax(case: Case, x: np.ndarray, direction: Direction) -> np.ndarray:
    """Step 1, (1,) float32."""
    return nvfp4.amax(np.concatenate([nvfp4.amax(v) for _, v in _lines(case, x, direction)]))


def _encode(
    case: Case, x: np.ndarray, direction: Direction, amax: np.ndarray, e4m3_max: int
) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 to 6: (lines, length/2) data and the padded scale_inv allocation."""
    flags = case.flags
    lines, length = direction.extents(case.rows, case.cols)
    blocks = length // nvfp4.BLOCK
    data = np.empty((lines, length // nvfp4.CODES_PER_BYTE), np.uint8)
    scale_inv = np.empty((lines, blocks), np.uint8)

    s_enc = nvfp4.global_encode_scale(amax, e4m3_max)  # 2
    s_dec = nvfp4.global_decode_scale(s_enc)  # 3
    for part, v in _lines(case, x, direction):
        block_amax = nvfp4.block_amax(v)  # 4
        if flags.block == "block_16x16":
            tiles = nvfp4.amax(block_amax.reshape(-1, nvfp4.BLOCK, blocks), axis=1)
            block_amax = np.repeat(tiles, nvfp4.BLOCK, axis=0)
        scale_inv[part] = nvfp4.scale_inv_multiply(block_amax, s_enc)
        if flags.fast_math:  # 5
            m = nvfp4.multiplier_fast(scale_inv[part], s_enc)
        else:
            m = nvfp4.multiplier_reciprocal(scale_inv[part], s_dec)
        product = nvfp4.scaled(v, m)  # 6
        if flags.rounding == "sr":
            random = nvfp4.random_bytes(
                part.start * blocks, m.size, direction.counter, case.philox_offset, case.seed
            ).reshape(v.shape)
            codes = nvfp4.e2m1_stochastic(product, random)
        else:
            codes = nvfp4.e2m1(product)
        data[part] = nvfp4.pack(codes)
    return data, layout.arrange(scale_inv, flags.scale_layout)
