"""Grouped tensors: up to 64 matrices that lie back to back, how their shapes are written, and which are legal.

A shape is written `128+0+256x512` (three tensors, 512 columns each), `256x128+384`, `128+256x512+128` or `8*1024x2048`
(eight tensors alike). Its representation says which extents may differ from tensor to tensor.

A group may lie in a larger allocation, whose capacity is written with `of`: `128+0+256of1024x512` has 384 of 1024 rows,
and `128+256x512+128of131072` a part of 131072 elements. Its splits may be as fine as `by64` says, else by 128.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import gcd

import numpy as np

from harness.errors import ContractError

MOST_TENSORS = 64
SCALE_PADDING = 128  # lines: a scale matrix has a multiple of it, and so have a capacity and, by default, its splits
SPLITS_BY = (SCALE_PADDING, 64)

# Kernels take extents as int, and the first row of each CTA's tile is an int too. Rows of tiles go on along z, where
# the last layer may reach beyond the last tile, by fewer tiles than there are layers: 2^15 rows and a few tiles at
# most, which must have numbers below 2^31 as well.
LARGEST_EXTENT = (1 << 31) - (1 << 16)

# Python takes seconds to read numbers of thousands of digits.
_EXTENTS = r"(\d{1,18}|\d{1,18}\*\d{1,18}|\d{1,18}(\+\d{1,18})+)"
_SIDE = re.compile(_EXTENTS + r"(of\d{1,18}(by\d{1,18})?)?", re.ASCII)
ROWS, COLS = 0, 1
SIDES = ("rows", "cols")


class ShapeRepresentation(StrEnum):
    """Names the extents that may differ from tensor to tensor; such an extent may also be zero."""

    SAME_BOTH_DIMS = "same_both_dims"
    VARYING_FIRST_DIM = "varying_first_dim"
    VARYING_LAST_DIM = "varying_last_dim"
    VARYING_BOTH_DIMS = "varying_both_dims"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ContractError(f"there is no shape representation '{value}'; choose {', '.join(cls)}")

    def varies(self, side: int) -> bool:
        """Whether rows (0) or cols (1) may differ."""
        other = ShapeRepresentation.VARYING_LAST_DIM if side == ROWS else ShapeRepresentation.VARYING_FIRST_DIM
        return self not in (ShapeRepresentation.SAME_BOTH_DIMS, other)


@dataclass(frozen=True)
class GroupedShape:
    """A group of tensors, and the allocation it is a part of.

    tensors: (rows, cols) of every tensor, in order
    capacity: elements of the allocation; None if the tensors fill it
    splits_by: with a capacity, a divisor of every varying extent of every split of the allocation
    """

    tensors: tuple[tuple[int, int], ...]
    capacity: int | None = None
    splits_by: int = SCALE_PADDING

    @classmethod
    def parse(cls, text: str) -> GroupedShape:
        """The shape that a text spells, each side `N`, `n*N` or `A+B+C`; ContractError if it spells none.

        One side may end in a capacity, `of1024` or `of1024by64`: rows if it is the first, elements if it is the second.
        """
        sides = text.split("x")
        if len(sides) != 2 or not all(map(_SIDE.fullmatch, sides)):
            raise ContractError(
                f"'{text}' is not a grouped shape; one reads ROWSxCOLS with each side N for all tensors, n*N or A+B+C, "
                "as in 128+0+256x512 or 8*1024x2048"
            )
        (first, _, of_rows), (second, _, of_elements) = (side.partition("of") for side in sides)
        rows, cols = _extents(first), _extents(second)
        count = max(len(rows), len(cols))
        if 1 < len(rows) != len(cols) > 1:
            raise ContractError(f"'{text}' has {len(rows)} rows extents and {len(cols)} cols extents; give one of each")
        for side, extents in zip(sides, (rows, cols), strict=True):
            if not extents:
                raise ContractError(f"'{text}' has no tensor: {side} is none of them; a group has at least one")
        rows, cols = (extents * count if len(extents) == 1 else extents for extents in (rows, cols))
        (of_rows, _, by_rows), (of_elements, _, by_elements) = (of.partition("by") for of in (of_rows, of_elements))
        capacity = _capacity(text, of_rows, of_elements, cols)
        return cls(tuple(zip(rows, cols, strict=True)), capacity, int(by_rows or by_elements or SCALE_PADDING))

    def __str__(self) -> str:
        """The one canonical spelling, which a case id holds."""
        rows, cols = self.side(ROWS), self.side(COLS)
        sides = [str(s[0]) if len(set(s)) == 1 else "+".join(map(str, s)) for s in (rows, cols)]
        if len(set(self.tensors)) == 1 < len(self):
            sides[ROWS] = f"{len(self)}*{rows[0]}"
        if self.capacity is not None:
            in_rows = len(set(cols)) == 1 and cols[0] > 0 and self.capacity % cols[0] == 0
            by = f"by{self.splits_by}" if self.splits_by != SCALE_PADDING else ""
            sides[ROWS if in_rows else COLS] += f"of{self.capacity // (cols[0] if in_rows else 1)}{by}"
        return "x".join(sides)

    def __len__(self) -> int:
        return len(self.tensors)

    def side(self, side: int) -> tuple[int, ...]:
        """The rows (0) or cols (1) of every tensor."""
        return tuple(extents[side] for extents in self.tensors)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of every tensor."""
        return tuple(rows * cols for rows, cols in self.tensors)

    @property
    def elements(self) -> int:
        return sum(self.sizes)

    @property
    def allocated(self) -> int:
        """Elements of the allocation."""
        return self.elements if self.capacity is None else self.capacity

    @property
    def tensor_offsets(self) -> np.ndarray:
        """Where each tensor starts and the last ends, int64 (num_tensors + 1,), elements."""
        return np.array((0, *accumulate(self.sizes)), np.int64)

    @property
    def first_dims(self) -> np.ndarray:
        """Rows of each tensor, int64 (num_tensors,)."""
        return np.array(self.side(ROWS), np.int64)

    @property
    def last_dims(self) -> np.ndarray:
        """Cols of each tensor, int64 (num_tensors,)."""
        return np.array(self.side(COLS), np.int64)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The three arrays by which kernels find the tensors."""
        return {"first_dims": self.first_dims, "last_dims": self.last_dims, "tensor_offsets": self.tensor_offsets}

    def logical(self, representation: str) -> tuple[int, int]:
        """(rows, cols) of the allocation as one matrix: extents that may differ are summed, or (1, elements)."""
        kind = ShapeRepresentation(representation)
        rows, cols = self.side(ROWS), self.side(COLS)
        if kind is ShapeRepresentation.VARYING_BOTH_DIMS:
            return 1, self.allocated
        if self.capacity is not None and kind is ShapeRepresentation.VARYING_LAST_DIM:
            return rows[0], self.capacity // max(1, rows[0])
        if self.capacity is not None:
            return self.capacity // max(1, cols[0]), cols[0]
        if kind is ShapeRepresentation.VARYING_LAST_DIM:
            return rows[0], sum(cols)
        return sum(rows), cols[0]

    @property
    def matrix(self) -> tuple[int, int]:
        """(rows, cols) of a dense tensor with as many elements: all rows if the cols of the group are alike."""
        cols = gcd(*self.side(COLS)) or 1
        return self.elements // cols, cols

    def require(
        self,
        representation: str,
        multiple_of: int = 16,
        varying_multiple_of: int | None = None,
        product: bool = False,
    ) -> None:
        """Raise ContractError, with the index of the tensor, for what a representation does not allow.

        multiple_of, varying_multiple_of: divisors of the extents that may not differ, and of the ones that may; None if
            they are the same
        product: whether they are operands of products; then tensors with varying cols may be a part of an allocation,
            as those of a wgrad are
        """
        kind = ShapeRepresentation(representation)
        require_count(len(self))
        if product and self.capacity is not None and kind is ShapeRepresentation.VARYING_BOTH_DIMS:
            raise ContractError(
                f"a capacity of products in {kind}; the host cannot count the tiles of all outputs, which are M_g by "
                "N_g, by the elements of A that there is room for"
            )
        for side, name in enumerate(SIDES):
            extents, varies = self.side(side), kind.varies(side)
            multiple = varying_multiple_of or multiple_of if varies else multiple_of
            hint = ""
            if varies and self.capacity is not None:
                multiple = max(self.splits_by, multiple)
                least = SPLITS_BY[-1]
                if not product and multiple > least and all(extent % least == 0 for extent in extents):
                    hint = f"; a capacity that ends in by{least} takes multiples of {least}"
            for number, extent in enumerate(extents):
                require_extent(number, name, extent, multiple, varies, hint)
            for number, extent in enumerate(extents):
                if extent != extents[0] and not varies:
                    raise ContractError(
                        f"tensor {number} has {name} = {extent} where tensor 0 has {extents[0]}; "
                        f"in {kind} all tensors have the same {name}"
                    )
            for number, end in enumerate(accumulate(extents)):
                if error := sum_error(number, name, end):
                    raise ContractError(error)
        if self.capacity is not None:
            _require_capacity(self, self.capacity, kind, product)


def extent_error(name: str, extent: int) -> str | None:
    """A sentence if the extent is beyond what kernels take."""
    if extent <= LARGEST_EXTENT:
        return None
    return f"{name} = {extent} is beyond {LARGEST_EXTENT}, and no kernel takes it"


def require_count(num_tensors: int) -> None:
    """Raise ContractError for more or fewer tensors than a group may have."""
    if num_tensors < 1:
        raise ContractError(f"a group of {num_tensors} tensors; it has 1 to {MOST_TENSORS}")
    if num_tensors > MOST_TENSORS:
        raise ContractError(f"tensor {MOST_TENSORS} is one too many: {num_tensors} tensors; at most {MOST_TENSORS}")


def extents_of(side: str) -> tuple[int, ...] | None:
    """The extents that a side `N`, `n*N` or `A+B+C` without a capacity spells; None if it spells none."""
    return _extents(side) if re.fullmatch(_EXTENTS, side, re.ASCII) else None


def _extents(side: str) -> tuple[int, ...]:
    if "*" in side:
        count, _, extent = side.partition("*")
        # Capped at one more than is allowed, which is refused as well and cannot fill the memory.
        return (int(extent),) * min(int(count), MOST_TENSORS + 1)
    return tuple(map(int, side.split("+")))


def _capacity(text: str, of_rows: str, of_elements: str, cols: Sequence[int]) -> int | None:
    """Elements of the allocation that a text names; None if it names none."""
    if of_rows and of_elements:
        raise ContractError(f"'{text}' has two capacities; give one, in rows or in elements")
    if not of_rows:
        return int(of_elements) if of_elements else None
    if len(set(cols)) > 1:
        raise ContractError(
            f"'{text}' counts its capacity in rows, which have different cols; count elements after the cols, "
            "as in 128+256x512+128of131072"
        )
    return int(of_rows) * cols[0]


def _require_capacity(shape: GroupedShape, capacity: int, kind: ShapeRepresentation, product: bool) -> None:
    splits = SPLITS_BY[:1] if product else SPLITS_BY
    if shape.splits_by not in splits:
        whose = "the splits of a product's operands are" if product else "splits are"
        raise ContractError(f"splits by {shape.splits_by} of an allocation; {whose} by {' or '.join(map(str, splits))}")
    in_cols = product and kind is ShapeRepresentation.VARYING_LAST_DIM
    if not kind.varies(ROWS) and not in_cols:
        raise ContractError(
            f"a capacity in {kind}; the tensors fill their allocation unless their rows vary, in "
            f"{ShapeRepresentation.VARYING_FIRST_DIM} or {ShapeRepresentation.VARYING_BOTH_DIMS}"
        )
    in_rows = kind is ShapeRepresentation.VARYING_FIRST_DIM
    unit, what = (shape.tensors[0][COLS], "rows") if in_rows else (SCALE_PADDING, "elements / 128")
    if in_cols:
        unit, what = shape.tensors[0][ROWS], "cols"
    lines = capacity // unit
    if capacity % unit or lines % SCALE_PADDING or not lines:
        nearest = max(round(lines / SCALE_PADDING), 1) * SCALE_PADDING
        raise ContractError(
            f"a capacity of {capacity / unit:g} {what}; it is a positive multiple of 128, the nearest is {nearest}"
        )
    if kind is ShapeRepresentation.VARYING_BOTH_DIMS:
        lines, what = capacity // shape.splits_by, f"elements / {shape.splits_by}"
    if lines > LARGEST_EXTENT:  # tensors that fill the allocation have as many
        raise ContractError(f"a capacity of {lines} {what} is beyond {LARGEST_EXTENT}, and no kernel takes it")
    for number, end in enumerate(accumulate(shape.sizes)):
        if end > capacity:
            raise ContractError(f"tensor {number} ends at element {end} of an allocation of {capacity}")
    for side, name in enumerate(SIDES):
        total = sum(shape.side(side))
        if not in_rows and not in_cols and total > lines:  # only empty tensors can have so many
            raise ContractError(
                f"the {name} sum up to {total}; an allocation of {capacity} elements has amaxes of {lines}"
            )


def sum_error(number: int, name: str, end: int) -> str | None:
    """A sentence if a side of the tensors up to number `number` sums up to more than kernels take.

    They keep the offset of a tensor's rows among all rows, and of its columns among all columns, in an int, even for an
    extent that is the same in all tensors, because amaxes of lines lie back to back.
    """
    if end <= LARGEST_EXTENT:
        return None
    return (
        f"tensor {number} ends at {name} = {end} of the group; the {name} of all tensors sum up to "
        f"{LARGEST_EXTENT} at most, and no kernel takes more"
    )


def require_extent(number: int, name: str, extent: int, multiple: int, varies: bool, hint: str = "") -> None:
    """Raise ContractError unless tensor `number` has an extent that kernels take. varies: whether it may be 0"""
    error = extent_error(name, extent)
    if error:
        raise ContractError(f"tensor {number}: {error}")
    least = 0 if varies else multiple
    if extent >= least and extent % multiple == 0:
        return
    what = "a varying extent is 0 or a multiple of" if varies else f"{name} is a positive multiple of"
    nearest = max(round(extent / multiple), 1) * multiple
    raise ContractError(f"tensor {number} has {name} = {extent}; {what} {multiple}, the nearest is {nearest}{hint}")
