"""One tensor of a group as a dense case, with its inputs, its expected and its actual outputs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval
from harness.errors import UsageError
from harness.verify.expected import oracle_of

Arrays = Mapping[str, np.ndarray]


def holder(field: Field, entry: int) -> int:
    """The number of the tensor that owns an entry of a group's field; entries count from 0 in memory order."""
    ends = accumulate(part.size for part in field.parts)
    return next(number for number, end in enumerate(ends) if entry < end)


def spelled(case: Case, number: int) -> str:
    """Text such as `3 of 5, 256x512`; the first tensor, or group of a GEMM, is 0."""
    return f"{number} of {len(case.problem.tensors)}, {case.part(number).shape}"


def require_elements(case: Case, number: int) -> None:
    """Raise UsageError unless the group has this tensor and it holds something."""
    if not 0 <= number < len(case.problem.tensors):
        raise UsageError(f"{case.id} has no tensor {number}; its {len(case.problem.tensors)} tensors count from 0")
    if 0 in case.problem.tensors[number]:
        raise UsageError(f"tensor {spelled(case, number)}, of {case.id} has no elements")


def parts(fields: Mapping[str, Field], number: int) -> dict[str, Field]:
    return {name: field.parts[number] for name, field in fields.items()}


def cut(fields: Mapping[str, Field], arrays: Mapping[str, Demand], number: int) -> dict[str, Demand]:
    """The tensor's part of every array, or interval, of a group; fields without an array are left out."""
    return {name: _part(field, arrays[name], number) for name, field in fields.items() if name in arrays}


def _part(field: Field, array: Demand, number: int) -> Demand:
    if isinstance(array, Interval):
        return array.map(lambda end: field.part(end, number))
    return field.part(array, number)


def inputs(case: Case, tensors: Arrays, number: int) -> dict[str, np.ndarray]:
    """The dense recipe's inputs for this tensor, or this group of a GEMM, from the group's oracle."""
    return oracle_of(case.recipe).inputs_of(case, tensors, number)
