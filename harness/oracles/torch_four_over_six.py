"""The torch oracle of four_over_six: every block encoded to reach 6 and to reach 4, and the better of the two kept.

Derived from NUMERICS section 6 alone. The two candidates are one function of a scale. The error that decides between
them is summed element by element, so its order is part of the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from harness.contract.case import Case
from harness.oracles import torch_numerics as numerics
from harness.oracles import torch_source as frame
from harness.oracles.torch_source import BLOCK, Slab, Source

_STRETCH = 1.5  # 6/4: the scale that takes the block amax to 4 instead of 6


class Candidate(NamedTuple):
    """One way to encode some blocks.

    scale: (rows, blocks) float8_e4m3fn
    codes: (rows, blocks, 16) uint8
    error: (rows, blocks) float32; for a 16x16 tile its sum, repeated for each of its lines
    """

    scale: torch.Tensor
    codes: torch.Tensor
    error: torch.Tensor


def four_over_six(
    case: Case, x: torch.Tensor, amax: Mapping[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Quantize a matrix under the flags of the case; fields in the order of NUMERICS section 1.

    x: (rows, cols) of the case's dtype, any device
    amax: holds the amax fields that stage=encode reads
    """
    return frame.fields(case, _sources(case, x), amax, _encode)


def map4(case: Case, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """True for each block that takes the candidate reaching 4: `rowwise` and `columnwise`, (lines, blocks) bool."""
    chosen = {}
    for side, source in _sources(case, x).items():
        lines, length = source.matrix.shape
        chosen[side] = torch.empty((lines, length // BLOCK), dtype=torch.bool, device=x.device)
        for slab, blocks, granule in source.blocks(source.amax()):
            _, _, reaches4 = choose(source, blocks, granule)
            chosen[side][slab[0], frame.divided(slab[1], BLOCK)] = reaches4
    return chosen


def choose(source: Source, blocks: torch.Tensor, amax: torch.Tensor) -> tuple[Candidate, Candidate, torch.Tensor]:
    """Section 6 of (rows, blocks, 16) elements: map-to-4, map-to-6, and (rows, blocks) bool for which take 4.

    A NaN is not less than anything, so it leaves map-to-6 as an equal error does.
    """
    x = blocks.float()
    encode_scale = numerics.global_encode_scale(amax, e4m3_max=float(source.case.flags.e4m3_max))
    base = numerics.block_scale_base(source.block_amax(blocks), encode_scale)
    four, six = (_candidate(source, x, reach, encode_scale, amax) for reach in (base * _STRETCH, base))
    return four, six, four.error < six.error


def _sources(case: Case, x: torch.Tensor) -> dict[str, Source]:
    return frame.sources(case, x, "row" if case.flags.row_scaled else "tensor")


def _encode(source: Source, slab: Slab, blocks: torch.Tensor, amax: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of one slab, as `torch_source.Encode` asks."""
    four, six, chosen = choose(source, blocks, amax)
    codes = torch.where(chosen.unsqueeze(2), four.codes, six.codes)
    return codes, torch.where(chosen, four.scale.view(torch.uint8), six.scale.view(torch.uint8))


def _candidate(
    source: Source, x: torch.Tensor, reach: torch.Tensor, encode_scale: torch.Tensor, amax: torch.Tensor
) -> Candidate:
    scale = numerics.capped_e4m3(reach)
    codes = numerics.nearest_codes(x * numerics.reciprocal_multiplier(scale, encode_scale).unsqueeze(2))
    decoded = numerics.decoded(codes).mul_(scale.float().unsqueeze(2))
    if source.case.flags.error_math == "fp16":
        difference = decoded.sub_(x * encode_scale.unsqueeze(2))
    else:
        bound = torch.full((), numerics.E2M1_MAX * float(source.case.flags.e4m3_max), device=x.device)
        difference = decoded.mul_(amax.unsqueeze(2)).div_(bound).sub_(x)
    return Candidate(scale, codes, _error(source, difference))


def _error(source: Source, difference: torch.Tensor) -> torch.Tensor:
    """Step 6's sum over the elements in order, and over the lines of a 16x16 tile step 7's tree."""
    terms = difference.square_() if source.case.flags.error == "mse" else difference.abs_()
    error = torch.zeros(terms.shape[:2], device=terms.device)
    for term in terms.unbind(2):
        error += term
    if not source.square:
        return error
    lines = error.unflatten(0, (-1, BLOCK))
    while lines.shape[1] > 1:
        near, far = lines.chunk(2, dim=1)
        lines = near + far
    return lines.squeeze(1).repeat_interleave(BLOCK, dim=0)
