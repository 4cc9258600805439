"""four_over_six: encodes every block under two scales and keeps the better one. NUMERICS section 6.

Scaled so that its amax becomes 6, a block has nothing between 4 and 6; scaled to 4, it has even steps. Float32; RN
marks every rounding, to nearest even; E is `e4m3_max`. For each output:
  1. amax = max |x| of the tensor, or of each row if row_scaled
     S_enc = fmin(RN((6*E) / amax), FLT_MAX)                   1 if amax is 0 or inf
  2. base = RN(RN(block_amax / 6) * S_enc)                     before any cast
     A block is 1x16, or a 16x16 tile whose byte stands in each of its 16 lines.
  3. sf4 = e4m3(RN(base * 1.5)), sf6 = e4m3(base)    f32→e4m3 rounds to nearest even, and saturates at 448 for any E
  4. m = fmin(RN(1 / RN(f32(sf) * RN(1 / S_enc))), FLT_MAX)    for sf4 and for sf6
  5. codes = e2m1(RN(x * m))                                   for both; f32→e2m1 rounds to nearest even
  6. err = 0; over elements 0 to 15 in order err = RN(err + |d|) (mae) or RN(err + RN(d * d)) (mse)
     exact: d = RN(RN(RN(RN(q * f32(sf)) * amax) / (6*E)) - x)
     fp16:  d = RN(RN(q * f32(sf)) - RN(x * S_enc))            q * f32(sf) fits fp16; every RN is float32's all the same
  7. block_16x16: the errors of a tile's 16 lines add up as a tree: RN(e_i + e_(i+8)), then 4, 2, 1 apart
     The lines are those of the output, so rowwise and columnwise decide independently.
  8. sf4 and its codes if err4 < err6, else sf6 and its codes; so a tie and a NaN choose 6
stage=amax ends after the amax; stage=encode is given it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import layout, nvfp4, quantizer
from harness.oracles.layout import Slab

if TYPE_CHECKING:
    import torch

STEP_TO_FOUR = np.float32(nvfp4.E2M1_MAX / 4)
CHOICES = {
    "e4m3_max": nvfp4.E4M3_BOUNDS,
    "error": ("mae", "mse"),
    "error_math": ("exact", "fp16"),
}
MULTIPLE = nvfp4.BLOCK
PLAIN = {**quantizer.PLAIN, "rht": False, "error": "mae", "error_math": "exact", "row_scaled": False}


class Candidate(NamedTuple):
    """One encoding of some lines: scale bytes (lines, blocks), codes (lines, length) and errors (lines, blocks)."""

    scale_inv: np.ndarray
    codes: np.ndarray
    error: np.ndarray


def refuse(case: Case) -> None:
    flags = case.flags
    layout.require_whole_blocks(case, MULTIPLE, no_rows=True)
    for flag, values in CHOICES.items():
        quantizer.require_one_of(case, flag, values)
    quantizer.require(case, "scale_layout", "compact", "its kernels write compact scales; swizzle them afterwards")
    quantizer.require(case, "rht", False, "a rotated block is not the one that the error is measured against")
    quantizer.require(case, "rounding", "rne", "the error of a random rounding says nothing about the scale")
    if flags.row_scaled:
        quantizer.require(case, "block", "block_1x16", "with row_scaled the rows of a tile have amaxes of their own")
        quantizer.require(case, "outputs", "rowwise", "row_scaled has no amax for a column")


def outputs(case: Case) -> dict[str, Field]:
    """Data, scale_inv and amax of each direction; an amax has the shape (1,), or (rows,) if row_scaled."""
    refuse(case)
    return quantizer.outputs(case, _granularity(case))


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`input` (rows, cols), and for stage=encode the amaxes, float32."""
    refuse(case)
    return quantizer.inputs(case, x, _granularity(case))


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    refuse(case)
    return quantizer.quantize(case, tensors, _granularity(case), _encode)


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_four_over_six

    refuse(case)
    return torch_four_over_six.four_over_six(case, tensors["input"], tensors)


def map4(case: Case, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """For each output, (lines, blocks) bool, True where a block is mapped to 4; on the device of the tensor."""
    from harness.oracles import torch_four_over_six

    return torch_four_over_six.map4(case, x)


@nvfp4.ieee
def candidates(case: Case, slab: Slab, amax: np.ndarray) -> tuple[Candidate, Candidate]:
    """Steps 1 to 7: the slab mapped to 4 and to 6, with the amax that governs each block."""
    square = case.flags.block == "block_16x16"
    s_enc = nvfp4.global_encode_scale(amax, case.flags.e4m3_max)  # 1
    s_dec = nvfp4.global_decode_scale(s_enc)
    block_amax = nvfp4.tile_amax(slab.v) if square else nvfp4.block_amax(slab.v)  # 2
    base = nvfp4.scale_base_divide(block_amax, s_enc)

    def candidate(scale: np.ndarray) -> Candidate:
        scale_inv = nvfp4.e4m3(scale)  # 3
        m = nvfp4.multiplier_reciprocal(scale_inv, s_dec)  # 4
        codes = nvfp4.e2m1(nvfp4.scaled(slab.v, m))  # 5
        error = _block_errors(case, slab.v, scale_inv, codes, amax, s_enc)  # 6
        return Candidate(scale_inv, codes, _tile_errors(error) if square else error)  # 7

    return candidate(base * STEP_TO_FOUR), candidate(base)


def _granularity(case: Case) -> str:
    return "row" if case.flags.row_scaled else "tensor"


def _encode(case: Case, slab: Slab, amax: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps 1 to 8."""
    four, six = candidates(case, slab, amax)
    to_four = four.error < six.error  # 8
    codes = np.where(np.repeat(to_four, nvfp4.BLOCK, axis=1), four.codes, six.codes)
    return np.where(to_four, four.scale_inv, six.scale_inv), codes


@nvfp4.ieee
def _block_errors(
    case: Case, v: np.ndarray, scale_inv: np.ndarray, codes: np.ndarray, amax: np.ndarray, s_enc: np.ndarray
) -> np.ndarray:
    """Step 6, (lines, blocks) float32."""
    flags = case.flags
    blocks = (*scale_inv.shape, nvfp4.BLOCK)
    sf = nvfp4.decode_e4m3(scale_inv)
    bound = np.float32(nvfp4.E2M1_MAX * flags.e4m3_max)
    error = np.zeros(scale_inv.shape, np.float32)
    for i in range(nvfp4.BLOCK):
        x, q = v.reshape(blocks)[..., i], nvfp4.decode_e2m1(codes.reshape(blocks)[..., i])
        d = q * sf * amax / bound - x if flags.error_math == "exact" else q * sf - x * s_enc
        error += np.abs(d) if flags.error == "mae" else d * d
    return error


def _tile_errors(error: np.ndarray) -> np.ndarray:
    """Step 7: (lines, blocks) line errors → the error of their 16x16 tile, repeated for its 16 lines."""
    tiles = error.reshape(-1, nvfp4.BLOCK, error.shape[1])
    for offset in (8, 4, 2, 1):
        tiles = tiles[:, :offset] + tiles[:, offset:]
    return np.repeat(tiles[:, 0], nvfp4.BLOCK, axis=0)
