"""The torch oracle of per_token: an amax for every row and column, a rotation that stays in float32, one tiled variant.

Derived from NUMERICS sections 2.10 and 7 alone. The unrounded rotation is four times too long, so its amaxes and the
multiplier that meets it each carry a factor of 1/4.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from harness.contract.case import Case
from harness.oracles import torch_numerics as numerics
from harness.oracles import torch_source as frame
from harness.oracles.torch_source import SLAB_ELEMENTS, Slab, Source

_QUARTER = 0.25


def per_token(
    case: Case,
    x: torch.Tensor,
    amax: Mapping[str, torch.Tensor] | None = None,
    *,
    slab_elements: int = SLAB_ELEMENTS,
) -> dict[str, torch.Tensor]:
    """Quantize a matrix under the flags of the case; fields in the order of NUMERICS section 1.

    x: (rows, cols) bf16, any device
    amax: holds the amax fields that stage=encode reads
    slab_elements: elements that are in float32 at one time
    """
    return frame.fields(case, frame.sources(case, x, "row", slab_elements, TokenSource), amax, _encode)


class TokenSource(Source):
    """A direction of per_token; with weight_2d every row has the amax of the whole matrix."""

    @property
    def square(self) -> bool:
        return bool(self.case.flags.weight_2d)

    @property
    def swizzled(self) -> bool:
        """Rowwise scales only."""
        return self.direction == 0 and super().swizzled

    def rotation(self, part: torch.Tensor) -> torch.Tensor:
        """The RHT in float32, four times too long."""
        return numerics.hadamard(part, self.case.flags.sign_mask)

    def right_length(self, value: torch.Tensor) -> torch.Tensor:
        """A quarter of an amax or multiplier of the long rotation; without rotation the value itself."""
        return value * _QUARTER if self.rotated else value

    def amax(self) -> torch.Tensor:
        """(rows,) float32, raw."""
        amax = super().amax()
        return amax.amax().expand_as(amax).contiguous() if self.square and amax.numel() else self.right_length(amax)

    def block_amax(self, blocks: torch.Tensor) -> torch.Tensor:
        """(rows, blocks) float32."""
        return self.right_length(super().block_amax(blocks))


def _encode(
    source: TokenSource, slab: Slab, blocks: torch.Tensor, amax: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of one slab, as `torch_source.Encode` asks: section 7, or section 3 for weight_2d."""
    weight = source.square
    encode_scale = numerics.global_encode_scale(amax, None if weight else numerics.AMAX_FLOOR)
    scale = numerics.block_scale_inv(source.block_amax(blocks), encode_scale, clamp=weight)
    by = (numerics.reciprocal_multiplier if weight else numerics.direct_multiplier)(scale, encode_scale)
    return source.cast(slab, blocks.float() * source.right_length(by).unsqueeze(2)), scale
