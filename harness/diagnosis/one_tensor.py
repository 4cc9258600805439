"""One tensor of a group as a dense case of its own: what it read, owed and wrote."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from harness.case import Case
from harness.errors import UsageError
from harness.expectation import oracle_of
from harness.interval import Demand, Interval
from harness.tensor import Field

Arrays = Mapping[str, np.ndarray]


def holder(field: Field, entry: int) -> int:
    """The number of the tensor that an entry of a group's field belongs to; entries count from 0 in memory order."""
    ends = accumulate(part.size for part in field.parts)
    return next(number for number, end in enumerate(ends) if entry < end)


def spelled(case: Case, number: int) -> str:
    """`3 of 5, 256x512`; the first tensor, or group of a GEMM, is 0."""
    return f"{number} of {len(case.tensors)}, {case.dense(number).shape}"


def require_elements(case: Case, number: int) -> None:
    """Raise UsageError unless the group has this tensor and it holds something."""
    if not 0 <= number < len(case.tensors):
        raise UsageError(f"{case.id} has no tensor {number}; its {len(case.tensors)} tensors count from 0")
    if 0 in case.tensors[number]:
        raise UsageError(f"tensor {spelled(case, number)}, of {case.id} has no elements")


def parts(fields: Mapping[str, Field], number: int) -> dict[str, Field]:
    """The tensor's own fields."""
    return {name: field.parts[number] for name, field in fields.items()}


def cut(fields: Mapping[str, Field], arrays: Mapping[str, Demand], number: int) -> dict[str, Demand]:
    """The tensor's part of every array, or interval, of a group, as far as there are any."""
    return {name: _part(field, arrays[name], number) for name, field in fields.items() if name in arrays}


def _part(field: Field, array: Demand, number: int) -> Demand:
    if isinstance(array, Interval):
        return array.map(lambda end: field.part(end, number))
    return field.part(array, number)


def inputs(case: Case, tensors: Arrays, number: int) -> dict[str, np.ndarray]:
    """What the dense recipe would have read: `input` (rows, cols) and the tensor's own amaxes, if any are given.

    Of a GEMM, the group's own operands and whatever else there is.
    """
    if case.n:
        return oracle_of(case.recipe).inputs_of(case, tensors, number)
    # An oracle that knows activations tells what the recipe is given after one.
    quantized = getattr(oracle_of(case.recipe), "quantized", None)
    flat = quantized(case, tensors) if quantized else tensors["input"]
    offsets = case.grouped.tensor_offsets
    cut_out = {"input": flat[offsets[number] : offsets[number + 1]].reshape(case.tensors[number])}
    for side, name in enumerate(("rowwise_amax", "columnwise_amax")):
        if name in tensors:
            cut_out[name] = _amax(case, tensors[name].reshape(-1), side, number)
    return cut_out


def _amax(case: Case, amax: np.ndarray, side: int, number: int) -> np.ndarray:
    """The tensor's amax, or those of its rows (side 0) or cols (1)."""
    if amax.size == len(case.tensors):
        return amax[number : number + 1]
    lines = case.grouped.side(side)
    start = sum(lines[:number])
    return amax[start : start + lines[number]]
