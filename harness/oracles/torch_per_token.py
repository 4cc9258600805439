"""The torch oracle of per_token: an amax for every row and column, a rotation that stays in float32, one tiled variant.

Derived from NUMERICS sections 2.10 and 7 alone. The unrounded rotation is four times too long, so whatever is made of
it carries a factor: 1/4 towards the amaxes, and 1/4 in the multiplier that meets it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from harness.contract.case import Case
from harness.errors import ContractError
from harness.oracles import torch_numerics as numerics
from harness.oracles import torch_source as way
from harness.oracles.torch_source import SLAB_ELEMENTS, Slab, Source

_TILE = 128
_QUARTER = 0.25


def per_token(
    case: Case,
    x: torch.Tensor,
    amax: Mapping[str, torch.Tensor] | None = None,
    *,
    slab_elements: int = SLAB_ELEMENTS,
) -> dict[str, torch.Tensor]:
    """Quantize a matrix as the flags of the case ask; the fields come in the order of NUMERICS section 1.

    x: (rows, cols) bf16, any device, both extents multiples of 128
    amax: the amax fields that stage=encode reads; not written again
    slab_elements: elements that are in float32 at one time
    raises ContractError for what NUMERICS refuses
    """
    way.require_input(case, x, _TILE)
    if case.flags.get("dtype", "bf16") != "bf16":
        raise ContractError(f"{case.recipe}: the input must be bf16, not {case.flags.dtype}")
    if case.flags.get("rht", False) and case.flags.get("weight_2d", False):
        raise ContractError(f"{case.recipe}: a weight is tiled and not rotated, so weight_2d goes without rht")
    return way.fields(case, way.sources(case, x, "row", slab_elements, TokenSource), amax, _encode)


class TokenSource(Source):
    """A direction of per_token; with weight_2d every row has the amax of the whole matrix."""

    @property
    def square(self) -> bool:
        """weight_2d is tiled."""
        return bool(self.case.flags.get("weight_2d", False))

    @property
    def swizzled(self) -> bool:
        """Only the rowwise scales ever are."""
        return self.direction == 0 and super().swizzled

    def rotation(self, part: torch.Tensor) -> torch.Tensor:
        """In float32, four times too long."""
        return numerics.hadamard(part, int(self.case.flags.get("sign_mask", 0xACE1)))

    def right_length(self, value: torch.Tensor) -> torch.Tensor:
        """A quarter of what was measured on, or will multiply, the long rotation; without rotation as it is."""
        return value * _QUARTER if self.rotated else value

    def amax(self) -> torch.Tensor:
        """(rows,) float32, raw."""
        amax = super().amax()
        return amax.amax().expand_as(amax).contiguous() if self.square else self.right_length(amax)

    def block_amax(self, blocks: torch.Tensor) -> torch.Tensor:
        """(rows, blocks) float32."""
        return self.right_length(super().block_amax(blocks))


def _encode(
    source: TokenSource, slab: Slab, blocks: torch.Tensor, amax: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of one slab, as `torch_source.Encode` wants them: section 7, or section 3 for weight_2d."""
    weight = source.square
    encode_scale = numerics.global_encode_scale(amax, None if weight else numerics.AMAX_FLOOR)
    scale = numerics.block_scale_inv(source.block_amax(blocks), encode_scale, clamp=weight)
    by = (numerics.reciprocal_multiplier if weight else numerics.direct_multiplier)(scale, encode_scale)
    value = blocks.float() * source.right_length(by).unsqueeze(2)
    if source.case.flags.get("rounding", "rne") == "sr":
        return numerics.stochastic_codes(value, source.random(slab)), scale
    return numerics.nearest_codes(value), scale
