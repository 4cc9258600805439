"""Grouped tensors: up to 64 matrices that lie back to back, how their shapes are written, and which are legal.

A shape is written `128+0+256x512` (three tensors, 512 columns each), `256x128+384`, `128+256x512+128` or `8*1024x2048`
(eight tensors alike). Its representation says which extents may differ from tensor to tensor.

A group may lie in a larger allocation, whose capacity is written with `of`: `128+0+256of1024x512` has 384 of 1024 rows,
and `128+256x512+128of131072` a part of 131072 elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise
from math import gcd

import numpy as np

from harness.errors import ContractError

MOST_TENSORS = 64
VARYING_MULTIPLE_OF = 128

# Python takes seconds to read numbers of thousands of digits.
_SIDE = r"(\d{1,18}|\d{1,18}\*\d{1,18}|\d{1,18}(\+\d{1,18})+)(of\d{1,18})?"
_ROWS, _COLS = 0, 1
_SIDES = ("rows", "cols")


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
        other = ShapeRepresentation.VARYING_LAST_DIM if side == _ROWS else ShapeRepresentation.VARYING_FIRST_DIM
        return self not in (ShapeRepresentation.SAME_BOTH_DIMS, other)


@dataclass(frozen=True)
class GroupedShape:
    """tensors: (rows, cols) of every tensor, in order; capacity: elements of the allocation, None if they fill it"""

    tensors: tuple[tuple[int, int], ...]
    capacity: int | None = None

    @classmethod
    def parse(cls, text: str) -> GroupedShape:
        """The shape a text stands for, each side `N`, `n*N` or `A+B+C`; ContractError if it is none.

        One side may end in a capacity, `of1024`: rows if it is the first, elements if it is the second.
        """
        sides = text.split("x")
        if len(sides) != 2 or not all(re.fullmatch(_SIDE, side, re.ASCII) for side in sides):
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
        return cls(tuple(zip(rows, cols, strict=True)), _capacity(text, of_rows, of_elements, cols))

    def __str__(self) -> str:
        """The one canonical spelling, which a case id holds."""
        rows, cols = self.side(_ROWS), self.side(_COLS)
        sides = [str(s[0]) if len(set(s)) == 1 else "+".join(map(str, s)) for s in (rows, cols)]
        if len(set(self.tensors)) == 1 < len(self):
            sides[_ROWS] = f"{len(self)}*{rows[0]}"
        if self.capacity is not None:
            in_rows = len(set(cols)) == 1 and cols[0] > 0 and self.capacity % cols[0] == 0
            sides[_ROWS if in_rows else _COLS] += f"of{self.capacity // (cols[0] if in_rows else 1)}"
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
        return np.array(self.side(_ROWS), np.int64)

    @property
    def last_dims(self) -> np.ndarray:
        """Cols of each tensor, int64 (num_tensors,)."""
        return np.array(self.side(_COLS), np.int64)

    def logical(self, representation: str) -> tuple[int, int]:
        """(rows, cols) of the allocation as one matrix: extents that may differ are summed, or (1, elements)."""
        kind = ShapeRepresentation(representation)
        rows, cols = self.side(_ROWS), self.side(_COLS)
        if kind is ShapeRepresentation.VARYING_BOTH_DIMS:
            return 1, self.allocated
        if self.capacity is not None:
            return self.capacity // max(1, cols[0]), cols[0]
        if kind is ShapeRepresentation.VARYING_LAST_DIM:
            return rows[0], sum(cols)
        return sum(rows), cols[0]

    @property
    def matrix(self) -> tuple[int, int]:
        """(rows, cols) of a dense tensor with as many elements: all rows if the cols of the group are alike."""
        cols = gcd(*self.side(_COLS)) or 1
        return self.elements // cols, cols

    def require(
        self, representation: str, multiple_of: int = 16, varying_multiple_of: int = VARYING_MULTIPLE_OF
    ) -> None:
        """Raise ContractError, with the index of the tensor, for what a representation does not allow.

        multiple_of, varying_multiple_of: what divides the extents that may not differ, and those that may
        """
        kind = ShapeRepresentation(representation)
        _require_count(len(self))
        for side, name in enumerate(_SIDES):
            extents, varies = self.side(side), kind.varies(side)
            multiple = varying_multiple_of if varies else multiple_of
            for number, extent in enumerate(extents):
                _require_extent(number, name, extent, multiple, varies)
            for number, extent in enumerate(extents):
                if extent != extents[0] and not varies:
                    raise ContractError(
                        f"tensor {number} has {name} = {extent} where tensor 0 has {extents[0]}; "
                        f"in {kind} all tensors have the same {name}"
                    )
        if self.capacity is not None:
            _require_capacity(self, self.capacity, kind)


def from_arrays(
    representation: str,
    num_tensors: int,
    logical: tuple[int, int],
    first_dims: Iterable[int] | None = None,
    last_dims: Iterable[int] | None = None,
    tensor_offsets: Iterable[int] | None = None,
    multiple_of: int = 16,
    capacity: int | None = None,
    varying_multiple_of: int = VARYING_MULTIPLE_OF,
) -> GroupedShape:
    """The shape that a caller's arrays describe. Raises ContractError, with the index of the tensor, if they do not.

    logical: (rows, cols) of the allocation as one matrix, (1, elements) for varying_both_dims
    first_dims, last_dims: (num_tensors,) integers; None only for an extent that may not differ
    tensor_offsets: (num_tensors + 1,) integers, elements; None for tensors that lie back to back
    capacity: elements of the allocation; None if the tensors fill it
    multiple_of, varying_multiple_of: what divides the extents that may not differ, and those that may
    """
    kind = ShapeRepresentation(representation)
    _require_count(num_tensors)
    if kind is ShapeRepresentation.SAME_BOTH_DIMS:
        _require_divisible(logical[_ROWS], num_tensors)
    dims = [_dims(kind, side, num_tensors, logical, array) for side, array in enumerate((first_dims, last_dims))]
    shape = GroupedShape(tuple(zip(*dims, strict=True)), capacity)
    shape.require(kind, multiple_of, varying_multiple_of)
    _require_logical(shape, kind, logical)
    if tensor_offsets is not None:
        _require_offsets(shape, _integers("tensor_offsets", num_tensors + 1, tensor_offsets))
    return shape


def _require_count(num_tensors: int) -> None:
    if num_tensors < 1:
        raise ContractError(f"a group of {num_tensors} tensors; it has 1 to {MOST_TENSORS}")
    if num_tensors > MOST_TENSORS:
        raise ContractError(f"tensor {MOST_TENSORS} is one too many: {num_tensors} tensors; at most {MOST_TENSORS}")


def _extents(side: str) -> tuple[int, ...]:
    if "*" in side:
        count, _, extent = side.partition("*")
        # One more than are allowed is refused all the same, and cannot fill the memory.
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


def _require_capacity(shape: GroupedShape, capacity: int, kind: ShapeRepresentation) -> None:
    if not kind.varies(_ROWS):
        raise ContractError(
            f"a capacity in {kind}; the tensors fill their allocation unless their rows vary, in "
            f"{ShapeRepresentation.VARYING_FIRST_DIM} or {ShapeRepresentation.VARYING_BOTH_DIMS}"
        )
    in_rows = kind is ShapeRepresentation.VARYING_FIRST_DIM
    unit, what = (shape.tensors[0][_COLS], "rows") if in_rows else (VARYING_MULTIPLE_OF, "elements / 128")
    lines = capacity // unit
    if capacity % unit or lines % VARYING_MULTIPLE_OF or not lines:
        nearest = max(round(lines / VARYING_MULTIPLE_OF), 1) * VARYING_MULTIPLE_OF
        raise ContractError(
            f"a capacity of {capacity / unit:g} {what}; it is a positive multiple of 128, the nearest is {nearest}"
        )
    for number, end in enumerate(accumulate(shape.sizes)):
        if end > capacity:
            raise ContractError(f"tensor {number} ends at element {end} of an allocation of {capacity}")
    for side, name in enumerate(_SIDES):
        total = sum(shape.side(side))
        if not in_rows and total > lines:  # only empty tensors can have so many
            raise ContractError(
                f"the {name} sum up to {total}; an allocation of {capacity} elements has amaxes of {lines}"
            )


def _require_extent(number: int, name: str, extent: int, multiple: int, varies: bool) -> None:
    least = 0 if varies else multiple
    if extent >= least and extent % multiple == 0:
        return
    what = "a varying extent is 0 or a multiple of" if varies else f"{name} is a positive multiple of"
    nearest = max(round(extent / multiple) * multiple, least)
    raise ContractError(f"tensor {number} has {name} = {extent}; {what} {multiple}, the nearest is {nearest}")


def _require_divisible(total: int, count: int) -> None:
    whole = total // count * count
    if whole != total:
        raise ContractError(
            f"tensor {count - 1} would end at row {whole} of {total}: the logical rows must be divisible by {count} "
            f"tensors; the nearest are {whole} and {whole + count}"
        )


def _dims(
    kind: ShapeRepresentation, side: int, count: int, logical: tuple[int, int], array: Iterable[int] | None
) -> tuple[int, ...]:
    """One side's extents: the caller's, or what the logical shape makes them."""
    name, total = f"{('first', 'last')[side]}_dims", logical[side]
    if array is not None:
        return _integers(name, count, array)
    if kind.varies(side):
        raise ContractError(f"{kind} needs {name}, the {_SIDES[side]} of each of the {count} tensors")
    shared = kind is ShapeRepresentation.SAME_BOTH_DIMS and side == _ROWS
    return (total // count if shared else total,) * count


def _integers(name: str, count: int, array: Iterable[int]) -> tuple[int, ...]:
    values = list(array)
    if len(values) != count:
        raise ContractError(
            f"{name} has {len(values)} entries and must have {count}; entry {min(len(values), count)} is "
            f"{'missing' if len(values) < count else 'one too many'}"
        )
    for position, value in enumerate(values):
        if not isinstance(value, int | np.integer):
            raise ContractError(f"{name}[{position}] is {value!r}; it must be an integer")
    return tuple(map(int, values))


def _require_logical(shape: GroupedShape, kind: ShapeRepresentation, logical: tuple[int, int]) -> None:
    as_vector = kind is ShapeRepresentation.VARYING_BOTH_DIMS
    if as_vector and logical[_ROWS] != 1:
        raise ContractError(f"the logical rows are {logical[_ROWS]}; in {kind} they are 1, and cols the elements")
    for side, name in enumerate(_SIDES):
        expected = shape.logical(kind)[side]
        if logical[side] == expected:
            continue
        parts = shape.sizes if as_vector else shape.side(side)
        ends = list(accumulate(parts)) if expected == sum(parts) else [expected]
        number = next((number for number, end in enumerate(ends) if end > logical[side]), len(ends) - 1)
        raise ContractError(f"tensor {number} ends at {name} = {ends[number]}; the logical {name} are {logical[side]}")


def _require_offsets(shape: GroupedShape, offsets: Sequence[int]) -> None:
    if offsets[0] != 0:
        raise ContractError(f"tensor 0 starts at element {offsets[0]}; must be 0")
    for number, ((start, end), size) in enumerate(zip(pairwise(offsets), shape.sizes, strict=True)):
        if end - start == size:
            continue
        rows, cols = shape.tensors[number]
        wrong = "so that the next one overlaps it" if end - start < size else "so that a gap follows"
        if end < start:
            wrong = f"which is negative or before its start at {start}"
        raise ContractError(
            f"tensor {number} ends at element {end}, {wrong}; {rows}x{cols} elements from {start} end at {start + size}"
        )
