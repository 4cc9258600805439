"""The frame of every torch quantizer: both directions, slab by slab, under the amax of each granule.

The columnwise output is the quantization of the transposed view, so there is one path. A slab bounds the temporaries,
so that a tensor of more than 2^31 elements fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from harness.contract.case import Case
from harness.errors import ContractError
from harness.oracles import torch_layout as layout
from harness.oracles import torch_numerics as numerics

SLAB_ELEMENTS = 1 << 26  # in float32 at one time
BLOCK = 16
WINDOW = 64
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

Slab = tuple[slice, slice]


@dataclass(frozen=True)
class Source:
    """The matrix of one output direction, read slab by slab.

    matrix: (rows, cols) input; for the columnwise output its transposed view, so that blocks run along the last axis
    direction: 0 rowwise, 1 columnwise, as in the Philox counter
    granularity: the extent of one amax: `tensor`, `row` or `window` of 64 elements
    """

    case: Case
    matrix: torch.Tensor
    direction: int
    granularity: str

    @property
    def rotated(self) -> bool:
        return self.direction == 1 and bool(self.case.flags.rht)

    @property
    def square(self) -> bool:
        """True if a block takes the scale of its 16x16 tile."""
        return self.case.flags.block == "block_16x16"

    @property
    def swizzled(self) -> bool:
        return self.case.flags.scale_layout == "swizzled"

    def rotation(self, part: torch.Tensor) -> torch.Tensor:
        """The RHT as this recipe keeps it: bf16 here."""
        return numerics.rotate(part, self.case.flags.sign_mask)

    def slabs(self) -> Iterator[tuple[Slab, torch.Tensor]]:
        """Pieces of the matrix with the values to quantize: the input, or its rotation."""
        for slab in layout.slabs(*self.matrix.shape, SLAB_ELEMENTS):
            part = self.matrix[slab].contiguous()
            yield slab, self.rotation(part) if self.rotated else part

    def amax(self) -> torch.Tensor:
        """2.2 over every granule, float32 of `amax_shape`."""
        shape = amax_shape(self.granularity, *self.matrix.shape)
        amax = torch.zeros(shape, dtype=torch.float32, device=self.matrix.device)
        for slab, part in self.slabs():
            if self.granularity == "tensor":
                seen, found = amax[0], numerics.magnitude_max(part.flatten(), 0)
            elif self.granularity == "row":
                seen, found = amax[slab[0]], numerics.magnitude_max(part, 1)
            else:
                seen = amax[slab[0], divided(slab[1], WINDOW)]
                found = numerics.magnitude_max(part.unflatten(1, (-1, WINDOW)), 2)
            seen.copy_(torch.fmax(seen, found))
        return amax

    def block_amax(self, blocks: torch.Tensor) -> torch.Tensor:
        """The amax behind each block's scale, from (rows, blocks, 16): its own, or that of its 16x16 tile."""
        amax = numerics.magnitude_max(blocks, 2)
        if self.square:
            amax = amax.unflatten(0, (-1, BLOCK)).amax(1).repeat_interleave(BLOCK, dim=0)
        return amax

    def cast(self, slab: Slab, value: torch.Tensor) -> torch.Tensor:
        """2.8 or 2.9: e2m1 codes of a slab's products, (rows, blocks, 16) uint8, under the rounding of the case."""
        if self.case.flags.rounding != "sr":
            return numerics.nearest_codes(value)
        rows, cols = (own // unit for own, unit in zip(self.matrix.shape, (1, BLOCK), strict=True))
        whole = self.case.end_of or (self.case.rows, self.case.cols)
        more_rows, more_cols = whole[self.direction] - rows, whole[1 - self.direction] // BLOCK - cols
        row = torch.arange(slab[0].start, slab[0].stop, device=value.device) + more_rows
        block = torch.arange(slab[1].start // BLOCK, slab[1].stop // BLOCK, device=value.device) + more_cols
        index = row[:, None] * (cols + more_cols) + block
        random = numerics.element_bits(index, self.direction, self.case.seed, self.case.offset)
        return numerics.stochastic_codes(value, random)

    def blocks(self, amax: torch.Tensor) -> Iterator[tuple[Slab, torch.Tensor, torch.Tensor]]:
        """Each slab with its elements, (rows, blocks, 16), and the amax that governs each block, as `per_block`."""
        for slab, part in self.slabs():
            yield slab, part.unflatten(1, (-1, BLOCK)), per_block(amax, self.granularity, slab)


# (source, slab, its elements (rows, blocks, 16), amax of each block) → uint8 codes of the elements, float8 block scales
Encode = Callable[[Source, Slab, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def sources(case: Case, x: torch.Tensor, granularity: str, kind: type[Source] = Source) -> dict[str, Source]:
    """The directions that the case asks for, by the prefix of their fields, rowwise first."""
    matrices = {"rowwise": x, "columnwise": x.t()}
    return {
        side: kind(case, matrix, direction, granularity)
        for direction, (side, matrix) in enumerate(matrices.items())
        if case.flags.outputs in ("both", side)
    }


def fields(
    case: Case, sides: Mapping[str, Source], given: Mapping[str, torch.Tensor] | None, encode: Encode
) -> dict[str, torch.Tensor]:
    """The fields of each direction that the stage of the case writes, in the order of NUMERICS section 1.

    given: holds the amax fields that stage=encode reads
    raises ContractError if one is missing or of another granularity
    """
    stage, tensors = case.flags.get("stage", "full"), {}
    for side, source in sides.items():
        amax = _given(case, f"{side}_amax", source, given or {}) if stage == "encode" else source.amax()
        if stage != "amax":
            tensors[f"{side}_data"], tensors[f"{side}_scale_inv"] = _encoded(source, amax, encode)
        if stage != "encode" and case.two_levels:
            tensors[f"{side}_amax"] = amax
    return tensors


def _given(case: Case, name: str, source: Source, given: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if name not in given:
        raise ContractError(f"{case.recipe}: stage=encode reads {name}, and it was not given")
    require_amax(case, name, given[name], source.granularity, *source.matrix.shape)
    return given[name]


def _encoded(source: Source, amax: torch.Tensor, encode: Encode) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed codes (rows, cols/2) and padded scale bytes of one direction, both uint8."""
    rows, cols = source.matrix.shape
    device = source.matrix.device
    data = torch.empty((rows, cols // 2), dtype=torch.uint8, device=device)
    scale_inv = torch.zeros(layout.padded_shape(rows, cols // BLOCK), dtype=torch.uint8, device=device)
    for slab, blocks, block_granule in source.blocks(amax):
        codes, scale = encode(source, slab, blocks, block_granule)
        data[slab[0], divided(slab[1], 2)] = layout.pack(codes.flatten(1))
        scale_inv[slab[0], divided(slab[1], BLOCK)] = scale.view(torch.uint8)
    return data, layout.swizzle(scale_inv) if source.swizzled else scale_inv


def divided(span: slice, count: int) -> slice:
    """The stretch of an axis `count` times as coarse that covers `span`."""
    return slice(span.start // count, span.stop // count)


def per_block(amax: torch.Tensor, granularity: str, slab: Slab) -> torch.Tensor:
    """The amax that governs each 16-block of a slab: (1, 1), (rows, 1) or (rows, blocks)."""
    if granularity == "tensor":
        return amax.view(1, 1)
    if granularity == "row":
        return amax[slab[0], None]
    return amax[slab[0], divided(slab[1], WINDOW)].repeat_interleave(WINDOW // BLOCK, dim=1)


def amax_shape(granularity: str, rows: int, cols: int) -> tuple[int, ...]:
    """(1,), (rows,) or (rows, cols/64)."""
    return {"tensor": (1,), "row": (rows,), "window": (rows, cols // WINDOW)}[granularity]


def require_amax(case: Case, name: str, amax: torch.Tensor, granularity: str, rows: int, cols: int) -> None:
    """Raise ContractError unless an amax has the shape of its granularity, and entries that are amaxes."""
    shape = amax_shape(granularity, rows, cols)
    if tuple(amax.shape) != shape:
        raise ContractError(
            f"{case.recipe}: {name} must have the shape {shape}, one amax per {granularity}, not {tuple(amax.shape)}"
        )
    impossible = torch.isnan(amax) | (amax < 0)
    if bool(impossible.any()):
        raise ContractError(
            f"{case.recipe}: {name} has {float(amax[impossible][0]):g}; an amax is the largest of magnitudes, so none "
            "is negative or NaN"
        )
