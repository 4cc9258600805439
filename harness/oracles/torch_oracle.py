"""The torch oracle: one quantizer for every amax granularity, on the device of its input.

It is the second witness of the bytes NUMERICS promises, derived apart from the NumPy oracle: codes are found by
bisection of exact limits, maxima on integer bit patterns, stochastic rounding as truncation to the e2m1 values. The
columnwise output is the same quantization of the transposed view, so there is one path. Work goes slab by slab, which
bounds the temporaries to about 40 bytes an element of a slab and lets a tensor of more than 2^31 elements through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.nn.functional import embedding

from harness.case import Case
from harness.errors import ContractError
from harness.oracles import torch_layout as layout
from harness.oracles import torch_numerics as numerics
from harness.oracles.torch_layout import swizzle
from harness.oracles.torch_philox import element_bits

__all__ = ["SLAB_ELEMENTS", "dequantize", "quantize", "swizzle"]

SLAB_ELEMENTS = 1 << 26
BLOCK = 16
WINDOW = 64

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_NAN_BITS = {"bf16": (torch.int16, 0x7FFF), "fp16": (torch.int16, 0x7FFF), "fp32": (torch.int32, 0x7FFFFFFF)}
_MULTIPLIERS = {"reciprocal": numerics.reciprocal_multiplier, "direct": numerics.direct_multiplier}
_GRANULARITIES = ("tensor", "row", "window")

Slab = tuple[slice, slice]


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
    flags, tensors = case.flags, {}
    stage = flags.get("stage", "full")
    for direction, side in enumerate(("rowwise", "columnwise")):
        if flags.get("outputs", "both") not in ("both", side):
            continue
        source = _Source(case, x.t() if direction else x, direction, granularity, slab_elements)
        if stage == "encode":
            if amax is None or f"{side}_amax" not in amax:
                raise ContractError(f"{case.recipe}: stage=encode reads {side}_amax, and it was not given")
            side_amax = amax[f"{side}_amax"]
        else:
            side_amax = source.amax()
        if stage != "amax":
            encoder = _Encoder(case, multiplier, amax_floor, clamp_scale)
            tensors[f"{side}_data"], tensors[f"{side}_scale_inv"] = encoder.encode(source, side_amax)
        if stage != "encode":
            tensors[f"{side}_amax"] = side_amax
    return tensors


@dataclass(frozen=True)
class _Source:
    """The matrix of one output direction, read slab by slab.

    matrix: (rows, cols) input; for the columnwise output its transposed view, so that blocks run along the last axis
    direction: 0 rowwise, 1 columnwise, as Philox counts them
    """

    case: Case
    matrix: torch.Tensor
    direction: int
    granularity: str
    slab_elements: int

    def slabs(self) -> Iterator[tuple[Slab, torch.Tensor]]:
        """Pieces of the matrix and what is quantized there: the input, or its rotation in bf16."""
        rotated = self.direction == 1 and self.case.flags.get("rht", False)
        for slab in layout.slabs(*self.matrix.shape, self.slab_elements):
            part = self.matrix[slab].contiguous()
            yield slab, numerics.rotate(part, int(self.case.flags.get("sign_mask", 0xD7E8))) if rotated else part

    def amax(self) -> torch.Tensor:
        """2.2 over every granule: (1,), (rows,) or (rows, cols/64) float32."""
        rows, cols = self.matrix.shape
        shape = {"tensor": (1,), "row": (rows,), "window": (rows, cols // WINDOW)}[self.granularity]
        amax = torch.zeros(shape, dtype=torch.float32, device=self.matrix.device)
        for slab, part in self.slabs():
            if self.granularity == "tensor":
                seen, found = amax[0], numerics.magnitude_max(part.flatten(), 0)
            elif self.granularity == "row":
                seen, found = amax[slab[0]], numerics.magnitude_max(part, 1)
            else:
                seen = amax[slab[0], _divided(slab[1], WINDOW)]
                found = numerics.magnitude_max(part.unflatten(1, (-1, WINDOW)), 2)
            seen.copy_(torch.fmax(seen, found))
        return amax

    def random(self, slab: Slab) -> torch.Tensor:
        """The random byte of every element of a slab, (rows, blocks, 16) uint8."""
        device = self.matrix.device
        row = torch.arange(slab[0].start, slab[0].stop, device=device)
        block = torch.arange(slab[1].start // BLOCK, slab[1].stop // BLOCK, device=device)
        index = row[:, None] * (self.matrix.shape[1] // BLOCK) + block
        return element_bits(index, self.direction, self.case.seed, self.case.philox_offset)


@dataclass(frozen=True)
class _Encoder:
    """Sections 2.3 to 2.9 with the choices recipes differ in; the parameters of `quantize`."""

    case: Case
    multiplier: str
    amax_floor: float | None
    clamp_scale: bool

    def encode(self, source: _Source, amax: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Packed codes (rows, cols/2) and padded scale bytes of one direction, both uint8."""
        rows, cols = source.matrix.shape
        device = source.matrix.device
        data = torch.empty((rows, cols // 2), dtype=torch.uint8, device=device)
        scale_inv = torch.zeros(layout.padded_shape(rows, cols // BLOCK), dtype=torch.uint8, device=device)
        for slab, part in source.slabs():
            blocks = part.unflatten(1, (-1, BLOCK))
            encode_scale = numerics.global_encode_scale(_per_block(amax, source.granularity, slab), self.amax_floor)
            scale = numerics.block_scale_inv(self._block_amax(blocks), encode_scale, self.clamp_scale)
            value = blocks.float() * self._multiplier(scale, encode_scale).unsqueeze(2)
            if self.case.flags.get("rounding", "rne") == "sr":
                codes = numerics.stochastic_codes(value, source.random(slab))
            else:
                codes = numerics.nearest_codes(value)
            data[slab[0], _divided(slab[1], 2)] = layout.pack(codes.flatten(1))
            scale_inv[slab[0], _divided(slab[1], BLOCK)] = scale.view(torch.uint8)
        swizzled = self.case.flags.get("scale_layout", "compact") == "swizzled"
        return data, swizzle(scale_inv) if swizzled else scale_inv

    def _block_amax(self, blocks: torch.Tensor) -> torch.Tensor:
        amax = numerics.magnitude_max(blocks, 2)
        if self.case.flags.get("block", "block_1x16") == "block_16x16":
            amax = amax.unflatten(0, (-1, BLOCK)).amax(1).repeat_interleave(BLOCK, dim=0)
        return amax

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
    """
    data, scale_inv, amax = tensors["data"], tensors["scale_inv"], tensors["amax"]
    granularity, dtype = case.flags.get("granularity", "tensor"), case.flags.dtype
    if granularity not in _GRANULARITIES:
        raise ContractError(f"{case.recipe}: no amax granularity {granularity!r}; it is tensor, row or window")
    rows, cols = data.shape[0], data.shape[1] * 2
    if case.flags.get("scale_layout", "compact") == "swizzled":
        scale_inv = layout.unswizzle(scale_inv)
    rescale = 1.0 / (numerics.E2M1_MAX * int(case.flags.get("e4m3_max", 448)))
    output = torch.empty((rows, cols), dtype=_DTYPES[dtype], device=data.device)
    for slab in layout.slabs(rows, cols, slab_elements):
        scale = scale_inv[slab[0], _divided(slab[1], BLOCK)].view(torch.float8_e4m3fn).float()
        factor = scale * _per_block(amax, granularity, slab) * rescale
        values = embedding(data[slab[0], _divided(slab[1], 2)].int(), numerics.e2m1_pairs(data.device))
        value = values.flatten(1).unflatten(1, (-1, BLOCK)) * factor.unsqueeze(2)
        output[slab] = _stored(value.flatten(1), dtype)
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


def _divided(span: slice, count: int) -> slice:
    """The same stretch of an axis whose entries each stand for `count` of the original."""
    return slice(span.start // count, span.stop // count)


def _per_block(amax: torch.Tensor, granularity: str, slab: Slab) -> torch.Tensor:
    """The amax that governs each 16-block of a slab: (1, 1), (rows, 1) or (rows, blocks)."""
    if granularity == "tensor":
        return amax.view(1, 1)
    if granularity == "row":
        return amax[slab[0], None]
    return amax[slab[0], _divided(slab[1], WINDOW)].repeat_interleave(WINDOW // BLOCK, dim=1)


def _stored(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Cast float32 to an output dtype with the hardware's NaN, whatever bits torch's cast gives a NaN."""
    integer, nan = _NAN_BITS[dtype]
    stored = value.to(_DTYPES[dtype])
    stored.view(integer).masked_fill_(value.isnan(), nan)
    return stored


def _refuse(case: Case, x: torch.Tensor, granularity: str, multiplier: str) -> None:
    """Raise ContractError for a call outside NUMERICS sections 3 to 5."""
    flags, name = case.flags, case.recipe
    if granularity not in _GRANULARITIES:
        raise ContractError(f"{name}: no amax granularity {granularity!r}; it is tensor, row or window")
    if multiplier not in _MULTIPLIERS:
        raise ContractError(f"{name}: no multiplier {multiplier!r}; it is reciprocal or direct")
    dtype = flags.get("dtype", "bf16")
    if x.dtype != _DTYPES[dtype]:
        raise ContractError(f"{name}: the input is {x.dtype}, and the case says dtype={dtype}")
    multiple = WINDOW if granularity == "window" else BLOCK
    if x.ndim != 2 or x.shape[0] % multiple or x.shape[1] % multiple:
        raise ContractError(f"{name}: shape {tuple(x.shape)} is not a matrix of multiples of {multiple} in both axes")
    square = flags.get("block", "block_1x16") == "block_16x16"
    if flags.get("rht", False) and (dtype != "bf16" or square):
        raise ContractError(f"{name}: rht takes bf16 and block_1x16 only, not {dtype} with {flags.get('block')}")
    if flags.get("fast_math", False) and (dtype != "bf16" or square or flags.get("rht", False)):
        raise ContractError(f"{name}: fast_math takes bf16 and block_1x16 without rht only")
    if square and granularity != "tensor":
        raise ContractError(f"{name}: block_16x16 takes one amax for the whole tensor, not one per {granularity}")
