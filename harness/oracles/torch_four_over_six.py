"""The torch oracle of four_over_six: every block encoded to reach 6 and to reach 4, and the better of the two kept.

Derived from NUMERICS section 6 alone. The two candidates are one function of a scale; what decides between them is an
error that is summed element by element, so its order is part of the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from harness.contract.case import Case
from harness.errors import ContractError
from harness.oracles import torch_numerics as numerics
from harness.oracles import torch_source as way
from harness.oracles.torch_source import BLOCK, SLAB_ELEMENTS, Slab, Source

_STRETCH = 1.5  # 6/4: the scale that takes the block amax to 4 instead of 6
_E4M3_MAXES = (256, 448)


class Candidate(NamedTuple):
    """One way to encode some blocks.

    scale: (rows, blocks) float8_e4m3fn
    codes: (rows, blocks, 16) uint8
    error: (rows, blocks) float32, what the choice compares; of a 16x16 tile, its sum in each of its lines
    """

    scale: torch.Tensor
    codes: torch.Tensor
    error: torch.Tensor


def four_over_six(
    case: Case,
    x: torch.Tensor,
    amax: Mapping[str, torch.Tensor] | None = None,
    *,
    slab_elements: int = SLAB_ELEMENTS,
) -> dict[str, torch.Tensor]:
    """Quantize a matrix as the flags of the case ask; the fields come in the order of NUMERICS section 1.

    x: (rows, cols) of the case's dtype, any device
    amax: the amax fields that stage=encode reads; not written again
    slab_elements: elements that are in float32 at one time
    raises ContractError for what NUMERICS refuses
    """
    return way.fields(case, _sources(case, x, slab_elements), amax, Chooser.of(case))


def map4(
    case: Case,
    x: torch.Tensor,
    amax: Mapping[str, torch.Tensor] | None = None,
    *,
    slab_elements: int = SLAB_ELEMENTS,
) -> dict[str, torch.Tensor]:
    """Which blocks take the candidate that reaches 4: `rowwise` and `columnwise`, (lines, blocks) bool.

    Parameters and errors as in `four_over_six`; a case of stage=amax chooses too.
    """
    chooser, chosen = Chooser.of(case), {}
    for side, source in _sources(case, x, slab_elements).items():
        lines, length = source.matrix.shape
        chosen[side] = torch.empty((lines, length // BLOCK), dtype=torch.bool, device=x.device)
        for slab, blocks, granule in source.blocks(way.side_amax(case, side, source, amax)):
            _, _, reaches4 = chooser.choose(source, blocks, granule)
            chosen[side][slab[0], way.divided(slab[1], BLOCK)] = reaches4
    return chosen


@dataclass(frozen=True)
class Chooser:
    """Section 6 with its flags: what the scales are bounded by, and how the error of a candidate is measured."""

    e4m3_max: float
    squared: bool
    scaled: bool
    square: bool

    @classmethod
    def of(cls, case: Case) -> Chooser:
        flags = case.flags
        return cls(
            e4m3_max=float(flags.get("e4m3_max", 256)),
            squared=flags.get("error", "mae") == "mse",
            scaled=flags.get("error_math", "exact") == "fp16",
            square=flags.get("block", "block_1x16") == "block_16x16",
        )

    def __call__(
        self, source: Source, slab: Slab, blocks: torch.Tensor, amax: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales of one slab, as `torch_source.Encode` wants them."""
        four, six, chosen = self.choose(source, blocks, amax)
        codes = torch.where(chosen.unsqueeze(2), four.codes, six.codes)
        return codes, torch.where(chosen, four.scale.view(torch.uint8), six.scale.view(torch.uint8))

    def choose(
        self, source: Source, blocks: torch.Tensor, amax: torch.Tensor
    ) -> tuple[Candidate, Candidate, torch.Tensor]:
        """Section 6 of (rows, blocks, 16) elements: map-to-4, map-to-6, and (rows, blocks) bool for which take 4.

        A NaN is not less than anything, so it leaves map-to-6 as an equal error does.
        """
        x = blocks.float()
        encode_scale = numerics.global_encode_scale(amax, e4m3_max=self.e4m3_max)
        base = numerics.block_scale_base(source.block_amax(blocks), encode_scale)
        four, six = (self._candidate(x, reach, encode_scale, amax) for reach in (base * _STRETCH, base))
        return four, six, four.error < six.error

    def _candidate(
        self, x: torch.Tensor, reach: torch.Tensor, encode_scale: torch.Tensor, amax: torch.Tensor
    ) -> Candidate:
        scale = numerics.capped_e4m3(reach)
        codes = numerics.nearest_codes(x * numerics.reciprocal_multiplier(scale, encode_scale).unsqueeze(2))
        decoded = numerics.decoded(codes).mul_(scale.float().unsqueeze(2))
        if self.scaled:
            difference = decoded.sub_(x * encode_scale.unsqueeze(2))
        else:
            bound = torch.full((), numerics.E2M1_MAX * self.e4m3_max, device=x.device)
            difference = decoded.mul_(amax.unsqueeze(2)).div_(bound).sub_(x)
        return Candidate(scale, codes, self._error(difference))

    def _error(self, difference: torch.Tensor) -> torch.Tensor:
        """Step 6's sum over the elements in order, and over the lines of a 16x16 tile step 7's tree."""
        terms = difference.square_() if self.squared else difference.abs_()
        error = torch.zeros(terms.shape[:2], device=terms.device)
        for term in terms.unbind(2):
            error += term
        if not self.square:
            return error
        lines = error.unflatten(0, (-1, BLOCK))
        while lines.shape[1] > 1:
            near, far = lines.chunk(2, dim=1)
            lines = near + far
        return lines.squeeze(1).repeat_interleave(BLOCK, dim=0)


def _sources(case: Case, x: torch.Tensor, slab_elements: int) -> dict[str, Source]:
    _refuse(case, x)
    return way.sources(case, x, "row" if case.flags.get("row_scaled", False) else "tensor", slab_elements)


def _refuse(case: Case, x: torch.Tensor) -> None:
    """Raise ContractError for a call outside NUMERICS section 6."""
    flags, name = case.flags, case.recipe
    way.require_input(case, x, BLOCK)
    if flags.get("rht", False):
        raise ContractError(f"{name}: the elements are quantized as they are, so rht must be false")
    if flags.get("rounding", "rne") != "rne":
        raise ContractError(f"{name}: both candidates round to nearest, so rounding must be rne")
    if flags.get("scale_layout", "compact") != "compact":
        raise ContractError(f"{name}: scales come in compact order only, so scale_layout must be compact")
    if flags.get("e4m3_max", 256) not in _E4M3_MAXES:
        raise ContractError(f"{name}: e4m3_max must be 256 or 448, not {flags.e4m3_max}")
    if flags.get("error", "mae") not in ("mae", "mse"):
        raise ContractError(f"{name}: error must be mae or mse, not {flags.error}")
    if flags.get("error_math", "exact") not in ("exact", "fp16"):
        raise ContractError(f"{name}: error_math must be exact or fp16, not {flags.error_math}")
    rowwise = flags.get("outputs", "both") == "rowwise"
    if flags.get("row_scaled", False) and not (rowwise and flags.get("block", "block_1x16") == "block_1x16"):
        raise ContractError(f"{name}: row_scaled goes with outputs=rowwise and block_1x16 only")
