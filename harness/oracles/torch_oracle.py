"""The torch oracle: one quantizer for every amax granularity, on the device of its input.

It is the second witness of the bytes NUMERICS promises, derived apart from the NumPy oracle: codes are found by
bisection of exact limits, maxima on integer bit patterns, stochastic rounding as truncation to the e2m1 values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn.functional import embedding

from harness.contract.case import Case
from harness.errors import ContractError
from harness.oracles import torch_layout as layout
from harness.oracles import torch_numerics as numerics
from harness.oracles import torch_source as way
from harness.oracles.torch_four_over_six import four_over_six
from harness.oracles.torch_layout import swizzle
from harness.oracles.torch_per_token import per_token
from harness.oracles.torch_source import BLOCK, DTYPES, GRANULARITIES, SLAB_ELEMENTS, WINDOW, Slab, Source, divided

__all__ = ["SLAB_ELEMENTS", "casts", "dequantize", "four_over_six", "per_token", "quantize", "stored", "swizzle"]

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
    slab_elements: int = SLAB_ELEMENTS,
) -> dict[str, torch.Tensor]:
    """Quantize a matrix as the flags of the case ask; the fields come in the order of NUMERICS section 1.

    x: (rows, cols) of the case's dtype, any device
    granularity: what one amax covers in each direction: `tensor`, `row` (a column, for the columnwise output) or
        `window` of 64 elements
    amax: the amax fields that stage=encode reads; not written again
    multiplier: encode form `reciprocal` (2.6) or `direct` (2.7)
    amax_floor: the least amax that S_enc is computed from; the amax fields stay raw
    clamp_scale: whether 2.4 has its fmin
    slab_elements: elements that are in float32 at one time
    raises ContractError for what NUMERICS refuses
    """
    _refuse(case, x, granularity, multiplier)
    encode = _Encoder(case, multiplier, amax_floor, clamp_scale)
    return way.fields(case, way.sources(case, x, granularity, slab_elements), amax, encode)


@dataclass(frozen=True)
class _Encoder:
    """Sections 2.3 to 2.9 with the choices recipes differ in; the parameters of `quantize`."""

    case: Case
    multiplier: str
    amax_floor: float | None
    clamp_scale: bool

    def __call__(
        self, source: Source, slab: Slab, blocks: torch.Tensor, amax: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales of one slab, as `torch_source.Encode` wants them."""
        encode_scale = numerics.global_encode_scale(amax, self.amax_floor)
        scale = numerics.block_scale_inv(source.block_amax(blocks), encode_scale, self.clamp_scale)
        value = blocks.float() * self._multiplier(scale, encode_scale).unsqueeze(2)
        if self.case.flags.get("rounding", "rne") == "sr":
            return numerics.stochastic_codes(value, source.random(slab)), scale
        return numerics.nearest_codes(value), scale

    def _multiplier(self, scale: torch.Tensor, encode_scale: torch.Tensor) -> torch.Tensor:
        fast = self.case.flags.get("fast_math", False)
        return (numerics.fast_multiplier if fast else _MULTIPLIERS[self.multiplier])(scale, encode_scale)


def dequantize(
    case: Case, tensors: Mapping[str, torch.Tensor], *, slab_elements: int = SLAB_ELEMENTS
) -> dict[str, torch.Tensor]:
    """Section 9: decode one direction of a quantized tensor.

    tensors: `data` (rows, cols/2) uint8, `scale_inv` padded (rows, cols/16) uint8 in the layout of the case, `amax`
        float32: (1,), (rows,) or (rows, cols/64) by the case's granularity
    returns: `output` (rows, cols) of the case's dtype; a NaN is stored with every bit below the sign set
    raises ContractError for an amax of another granularity than the case says
    """
    data, scale_inv, amax = tensors["data"], tensors["scale_inv"], tensors["amax"]
    granularity, dtype = case.flags.get("granularity", "tensor"), case.flags.dtype
    if granularity not in GRANULARITIES:
        raise ContractError(f"{case.recipe}: no amax granularity {granularity!r}; it is tensor, row or window")
    rows, cols = data.shape[0], data.shape[1] * 2
    if granularity == "window" and cols % WINDOW:
        raise ContractError(f"{case.recipe}: a row of {cols} elements is not made of windows of {WINDOW}")
    way.require_amax(case, "amax", amax, granularity, rows, cols)
    if case.flags.get("scale_layout", "compact") == "swizzled":
        scale_inv = layout.unswizzle(scale_inv)
    rescale = 1.0 / (numerics.E2M1_MAX * int(case.flags.get("e4m3_max", 448)))
    output = torch.empty((rows, cols), dtype=DTYPES[dtype], device=data.device)
    for slab in layout.slabs(rows, cols, slab_elements):
        scale = scale_inv[slab[0], divided(slab[1], BLOCK)].view(torch.float8_e4m3fn).float()
        factor = scale * way.per_block(amax, granularity, slab) * rescale
        values = embedding(data[slab[0], divided(slab[1], 2)].int(), numerics.e2m1_pairs(data.device))
        value = values.flatten(1).unflatten(1, (-1, BLOCK)) * factor.unsqueeze(2)
        output[slab] = stored(value.flatten(1), dtype)
    return {"output": output}


def casts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Section 1 alone: `e2m1_data` (rows, cols/2) and `e4m3_data` (rows, cols) of every element, uint8."""
    value = x.float()
    codes = numerics.nearest_codes(value)
    byte = numerics.e4m3(value.clamp(min=-numerics.E4M3_MAX)).view(torch.uint8)
    return {
        "e2m1_data": codes[:, 0::2] | codes[:, 1::2] << 4,
        "e4m3_data": byte.masked_fill(value.isnan(), 0x7F),
    }


def stored(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Cast float32 to an output dtype with the hardware's NaN, whatever bits torch's cast gives a NaN."""
    integer, nan = _NAN_BITS[dtype]
    out = value.to(DTYPES[dtype])
    out.view(integer).masked_fill_(value.isnan(), nan)
    return out


def _refuse(case: Case, x: torch.Tensor, granularity: str, multiplier: str) -> None:
    """Raise ContractError for a call outside NUMERICS sections 3 to 5."""
    flags, name = case.flags, case.recipe
    if granularity not in GRANULARITIES:
        raise ContractError(f"{name}: no amax granularity {granularity!r}; it is tensor, row or window")
    if multiplier not in _MULTIPLIERS:
        raise ContractError(f"{name}: no multiplier {multiplier!r}; it is reciprocal or direct")
    way.require_input(case, x, WINDOW if granularity == "window" else BLOCK)
    dtype = flags.get("dtype", "bf16")
    square = flags.get("block", "block_1x16") == "block_16x16"
    if flags.get("rht", False) and (dtype != "bf16" or square):
        raise ContractError(f"{name}: rht takes bf16 and block_1x16 only, not {dtype} with {flags.get('block')}")
    if flags.get("fast_math", False) and (dtype != "bf16" or square or flags.get("rht", False)):
        raise ContractError(f"{name}: fast_math takes bf16 and block_1x16 without rht only")
    if square and granularity != "tensor":
        raise ContractError(f"{name}: block_16x16 takes one amax for the whole tensor, not one per {granularity}")
