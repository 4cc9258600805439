"""The torch oracle: one quantizer for every amax granularity, per_token's, the way back, and the plain casts.

It is derived apart from the NumPy oracle: codes come from bisection of exact limits, maxima from integer bit patterns,
stochastic rounding from truncation to the e2m1 values. A recipe's own module refuses what its contract leaves out
before it calls these functions. The rotation of per_token stays in float32 and is four times too long, so its amaxes
and the multiplier that meets it each carry a factor of 1/4.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from harness.contract.case import Case
from harness.oracles import torch_layout as layout
from harness.oracles import torch_numerics as numerics
from harness.oracles import torch_source as frame
from harness.oracles.torch_source import BLOCK, DTYPES, Slab, Source, divided

_NAN_BITS = {"bf16": (torch.int16, 0x7FFF), "fp16": (torch.int16, 0x7FFF), "fp32": (torch.int32, 0x7FFFFFFF)}
_MULTIPLIERS = {"reciprocal": numerics.reciprocal_multiplier, "direct": numerics.direct_multiplier}


def quantize(
    case: Case,
    x: torch.Tensor,
    granularity: str = "tensor",
    amax: Mapping[str, torch.Tensor] | None = None,
    *,
    multiplier: str = "reciprocal",
    amax_floor: float | None = None,
    clamp_scale: bool = True,
) -> dict[str, torch.Tensor]:
    """Quantize a matrix by 2.1 to 2.9 under the flags of the case; fields in the order of NUMERICS section 1.

    x: (rows, cols) of the case's dtype, any device
    granularity: the extent of one amax in each direction: `tensor`, `row` (a column, for the columnwise output) or
        `window` of 64 elements
    amax: holds the amax fields that stage=encode reads
    multiplier: encode form `reciprocal` (2.6) or `direct` (2.7)
    amax_floor: the least amax that S_enc is computed from; the amax fields stay raw
    clamp_scale: whether 2.4 has its fmin
    """
    ue5m3 = case.scale_format == "ue5m3"
    largest, cast = (numerics.UE5M3_MAX, numerics.ue5m3) if ue5m3 else (numerics.E4M3_MAX, numerics.e4m3)
    make = numerics.fast_multiplier if case.flags.get("fast_math", False) else _MULTIPLIERS[multiplier]

    def encode(source: Source, slab: Slab, blocks: torch.Tensor, granule_amax: torch.Tensor):
        encode_scale = numerics.global_encode_scale(granule_amax, amax_floor, largest)
        if not case.two_levels:
            encode_scale = torch.ones_like(encode_scale)
        scale = numerics.block_scale_inv(source.block_amax(blocks), encode_scale, clamp_scale, cast)
        by = make(numerics.ue5m3_values(scale) if ue5m3 else scale, encode_scale)
        return source.cast(slab, blocks.float() * by.unsqueeze(2)), scale

    return frame.fields(case, frame.sources(case, x, granularity), amax, encode)


def per_token(case: Case, x: torch.Tensor, amax: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
    """`quantize` by section 7; x: (rows, cols) bf16."""
    return frame.fields(case, frame.sources(case, x, "row", TokenSource), amax, _encode_tokens)


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
        return value * 0.25 if self.rotated else value

    def amax(self) -> torch.Tensor:
        """(rows,) float32, raw."""
        amax = super().amax()
        return amax.amax().expand_as(amax).contiguous() if self.square and amax.numel() else self.right_length(amax)

    def block_amax(self, blocks: torch.Tensor) -> torch.Tensor:
        """(rows, blocks) float32."""
        return self.right_length(super().block_amax(blocks))


def _encode_tokens(
    source: TokenSource, slab: Slab, blocks: torch.Tensor, amax: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of one slab, as `torch_source.Encode` asks: section 7, or section 3 for weight_2d."""
    weight = source.square
    encode_scale = numerics.global_encode_scale(amax, None if weight else numerics.AMAX_FLOOR)
    scale = numerics.block_scale_inv(source.block_amax(blocks), encode_scale, clamp=weight)
    by = (numerics.reciprocal_multiplier if weight else numerics.direct_multiplier)(scale, encode_scale)
    return source.cast(slab, blocks.float() * source.right_length(by).unsqueeze(2)), scale


def dequantize(case: Case, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Section 9: decode one direction of a quantized tensor.

    tensors: `data` (lines, length/2) uint8, `scale_inv` padded (lines, length/16) uint8 in the layout of the case,
        `amax` float32: (1,), (lines,) or (lines, length/64) by the case's granularity; none without a global scale
    returns: `output` of the case's dtype, (lines, length), or its transpose if the lines are columns; a NaN is stored
        with every bit below the sign set
    raises ContractError for an amax of another granularity than the case's
    """
    data, scale_inv = tensors["data"], tensors["scale_inv"]
    ue5m3 = case.scale_format == "ue5m3"
    unit = numerics.E2M1_MAX * (numerics.UE5M3_MAX if ue5m3 else int(case.flags.e4m3_max))
    amax = tensors["amax"] if case.two_levels else torch.full((1,), unit, device=data.device)
    granularity, dtype = case.flags.granularity, case.flags.dtype
    rows, cols = data.shape[0], data.shape[1] * 2
    frame.require_amax(case, "amax", amax, granularity, rows, cols)
    if case.flags.scale_layout == "swizzled":
        scale_inv = layout.unswizzle(scale_inv)
    rescale = 1.0 / unit
    output = torch.empty((rows, cols), dtype=DTYPES[dtype], device=data.device)
    for slab in layout.slabs(rows, cols, frame.SLAB_ELEMENTS):
        byte = scale_inv[slab[0], divided(slab[1], BLOCK)]
        scale = numerics.ue5m3_values(byte) if ue5m3 else byte.view(torch.float8_e4m3fn).float()
        factor = scale * frame.per_block(amax, granularity, slab) * rescale
        values = numerics.decoded_pairs(data[slab[0], divided(slab[1], 2)]).unflatten(1, (-1, BLOCK))
        output[slab] = stored((values * factor.unsqueeze(2)).flatten(1), dtype)
    return {"output": output.t().contiguous() if case.flags.outputs == "columnwise" else output}


def casts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Section 1: `e2m1_data` (rows, cols/2) and `e4m3_data` (rows, cols) of every element, uint8."""
    value = x.float()
    byte = numerics.e4m3(value.clamp(min=-numerics.E4M3_MAX)).view(torch.uint8)
    return {"e2m1_data": layout.pack(numerics.nearest_codes(value)), "e4m3_data": byte.masked_fill(value.isnan(), 0x7F)}


def stored(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """1.3: cast float32 to an output dtype with the hardware's NaN, whatever bits torch's cast gives a NaN."""
    integer, nan = _NAN_BITS[dtype]
    out = value.to(DTYPES[dtype])
    out.view(integer).masked_fill_(value.isnan(), nan)
    return out
