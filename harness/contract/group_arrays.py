"""The arrays that describe a group on the device, read back into the shape that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import numpy as np

from harness.contract.group_shape import (
    ROWS,
    SCALE_PADDING,
    SIDES,
    GroupedShape,
    ShapeRepresentation,
    require_count,
)
from harness.errors import ContractError


def from_arrays(
    representation: str,
    num_tensors: int,
    logical: tuple[int, int],
    first_dims: Iterable[int] | None = None,
    last_dims: Iterable[int] | None = None,
    tensor_offsets: Iterable[int] | None = None,
    multiple_of: int = 16,
    varying_multiple_of: int | None = None,
    capacity: int | None = None,
    splits_by: int = SCALE_PADDING,
    product: bool = False,
) -> GroupedShape:
    """The shape that a caller's arrays describe. Raises ContractError, with the index of the tensor, if they do not.

    logical: (rows, cols) of the allocation as one matrix, (1, elements) for varying_both_dims
    first_dims, last_dims: (num_tensors,) integers; None only for an extent that may not differ
    tensor_offsets: (num_tensors + 1,) integers, elements; None for tensors that lie back to back
    capacity, splits_by: as `GroupedShape` has them; product: as `GroupedShape.require` takes it
    """
    kind = ShapeRepresentation(representation)
    require_count(num_tensors)
    if kind is ShapeRepresentation.SAME_BOTH_DIMS:
        _require_divisible(logical[ROWS], num_tensors)
    dims = [_dims(kind, side, num_tensors, logical, array) for side, array in enumerate((first_dims, last_dims))]
    shape = GroupedShape(tuple(zip(*dims, strict=True)), capacity, splits_by)
    shape.require(kind, multiple_of, varying_multiple_of, product)
    _require_logical(shape, kind, logical)
    if tensor_offsets is not None:
        _require_offsets(shape, integers("tensor_offsets", num_tensors + 1, tensor_offsets))
    return shape


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
    """The tensors' extents along one side: the caller's, or the ones that the logical shape implies."""
    name, total = f"{('first', 'last')[side]}_dims", logical[side]
    if array is not None:
        return integers(name, count, array)
    if kind.varies(side):
        raise ContractError(f"{kind} needs {name}, the {SIDES[side]} of each of the {count} tensors")
    shared = kind is ShapeRepresentation.SAME_BOTH_DIMS and side == ROWS
    return (total // count if shared else total,) * count


def integers(name: str, count: int, array: Iterable[int]) -> tuple[int, ...]:
    """The entries of an array of integers. Raises ContractError for another count, or other numbers."""
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
    if as_vector and logical[ROWS] != 1:
        raise ContractError(f"the logical rows are {logical[ROWS]}; in {kind} they are 1, and cols the elements")
    for side, name in enumerate(SIDES):
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
