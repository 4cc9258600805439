"""What a kernel writes, field by field, and a quantized tensor as a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from harness.errors import ContractError

FORMATS = ("e2m1x2", "e4m3", "e5m2", "e8m0", "ue5m3")  # by which a screen decodes a byte


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple


@dataclass(frozen=True)
class Field:
    """One array that a recipe writes.

    shape: extents of all that is written, padding included
    dtype: NumPy name, `uint8` for packed e2m1 codes and e4m3 scale bytes
    valid: extents, in compact order, of the corner the contract gives values to; the rest is padding and must be 0.
        None if there is no padding
    swizzled: True if the bytes lie in 128x4 GEMM tiles instead of compact order
    block: (rows, cols) of input elements that one entry comes from, to find the inputs of a wrong byte
    transposed: True if axis 0 runs along the input's columns
    parts: the dense fields of a group's tensors, which lie back to back in this one; empty for a dense case
    slack: entries of the allocation behind the field, which nothing may touch
    format: what a byte of a uint8 field is, one of FORMATS; empty for what its name says: `*_data` e2m1 pairs,
        `*_scale_inv` e4m3
    """

    shape: tuple[int, ...]
    dtype: str
    valid: tuple[int, ...] | None = None
    swizzled: bool = False
    block: tuple[int, int] = (1, 1)
    transposed: bool = False
    parts: tuple[Field, ...] = ()
    slack: int = 0
    format: str = ""

    def __post_init__(self) -> None:
        if self.format and (self.dtype != "uint8" or self.format not in FORMATS):
            raise ContractError(
                f"a {self.dtype} field has the format {self.format!r}; one of uint8 has {', '.join(FORMATS)}, or none"
            )
        wrong = next((number for number, part in enumerate(self.parts) if part.dtype != self.dtype), None)
        if wrong is not None:
            raise ContractError(f"tensor {wrong} of a {self.dtype} field has {self.parts[wrong].dtype} entries")
        total = sum(part.size for part in self.parts)
        if self.parts and total != self.size:
            raise ContractError(f"the tensors of a field of {self.size} entries have {total}; they must fill it")

    @classmethod
    def joined(cls, parts: Sequence[Field], shape: tuple[int, ...] | None = None, slack: int = 0) -> Field:
        """Join the fields of a group's tensors into one; flat, unless `shape` is given."""
        entries = shape or (sum(part.size for part in parts),)
        return cls(entries, parts[0].dtype, parts=tuple(parts), slack=slack, format=parts[0].format)

    def part(self, array: Any, number: int) -> Any:
        """The entries of one tensor of a group, in its own shape. array: this field's, of NumPy or torch"""
        start = [0, *accumulate(part.size for part in self.parts)][number]
        part = self.parts[number]
        return array.reshape(-1)[start : start + part.size].reshape(part.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def allocated(self) -> int:
        """Bytes of the field and its slack."""
        return self.nbytes + self.slack * np.dtype(self.dtype).itemsize


def owner_of(field: Field, entry: int) -> tuple[int, int]:
    """The number of the tensor that owns an entry of a group's field, and the entry's number in it, in memory order."""
    ends = list(accumulate(part.size for part in field.parts))
    number = next(number for number, end in enumerate(ends) if entry < end)
    return number, entry - ends[number] + field.parts[number].size


def granularity_of(amax_shape: Sequence[int]) -> str:
    """The extent of one amax, from the shape of all: `tensor`, `row` or `window`. A single amax is the tensor's."""
    return "tensor" if tuple(amax_shape) == (1,) else "row" if len(amax_shape) == 1 else "window"


@dataclass(frozen=True)
class QuantizedTensor:
    """An NVFP4 tensor with the metadata a consumer needs; shapes as in NUMERICS section 1.

    rows, cols: extents of the tensor that was quantized
    fields: `rowwise_data`, `rowwise_scale_inv`, `rowwise_amax` and their columnwise twins, as far as present
    granularity: what one amax covers: `tensor`, `row` or `window`
    e4m3_max: 256, 288, 320 or 448
    scale_layout: `compact` or `swizzled`
    scale_format: `e4m3` or `ue5m3`
    two_levels: whether there is an amax
    """

    recipe: str
    rows: int
    cols: int
    fields: dict[str, np.ndarray]
    granularity: str = "tensor"
    e4m3_max: int = 448
    scale_layout: str = "compact"
    scale_format: str = "e4m3"
    two_levels: bool = True
