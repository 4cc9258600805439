"""Shapes in suites and ids: rows and cols of a dense recipe, or the tensors of a group.

A recipe with the flag `shape_representation` is grouped: the flag decides which shapes it takes, and its flag `recipe`
names the dense recipe whose bytes every tensor has. A `…_problem` function gives the sentence to show, or None.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from harness.case import FlagValue
from harness.errors import ContractError, InputError, UsageError
from harness.grouped import GroupedShape, ShapeRepresentation
from harness.suite.schema import Shape, SuiteFile

REPRESENTATION = "shape_representation"
RECIPE = "recipe"


def is_grouped(file: SuiteFile) -> bool:
    """Whether the recipe takes groups of tensors."""
    return REPRESENTATION in file.axes


def axes_problem(file: SuiteFile) -> str | None:
    """Unless a grouped recipe has the flags that say what its tensors are."""
    if not is_grouped(file):
        return None
    if RECIPE not in file.axes:
        return f"a suite with the flag {REPRESENTATION} needs the flag {RECIPE}: the dense recipe of every tensor"
    try:
        for name in file.axes[REPRESENTATION]:
            ShapeRepresentation(name)
    except ContractError as error:
        return str(error)
    return None


def extents(file: SuiteFile, shape: Shape, flags: Mapping[str, FlagValue]) -> dict[str, Any]:
    """`rows`, `cols` and `tensors` of a case, from a shape that fits."""
    if not is_grouped(file):
        rows, cols = _dense(shape)
        return {"rows": rows, "cols": cols}
    grouped = GroupedShape.parse(str(shape))
    rows, cols = grouped.logical(str(flags[REPRESENTATION]))
    return {"rows": rows, "cols": cols, "tensors": grouped.tensors}


def shape_problem(shape: tuple[int, int], multiple_of: int) -> str | None:
    """Unless both extents are positive multiples."""
    for axis, extent in zip(("rows", "cols"), shape, strict=True):
        if extent < 1 or extent % multiple_of:
            fit = max(round(extent / multiple_of), 1) * multiple_of
            return f"{axis} = {extent} is not a positive multiple of {multiple_of}; the nearest is {fit}"
    return None


def case_problem(file: SuiteFile, shape: Shape, flags: Mapping[str, FlagValue]) -> str | None:
    """Unless a case of these flags, all of them or just those that name its kind, may have this shape."""
    if not is_grouped(file):
        try:
            return shape_problem(_dense(shape), file.multiple_of)
        except ContractError as error:
            return str(error)
    try:
        GroupedShape.parse(str(shape)).require(str(flags[REPRESENTATION]), _multiple_of(file, flags))
    except (ContractError, UsageError) as error:
        return str(error)
    return None


def block_problem(
    file: SuiteFile,
    axes: Mapping[str, Sequence[FlagValue]],
    refusal: Callable[[Mapping[str, FlagValue]], str | None],
    shape: Shape,
) -> str | None:
    """Unless a shape is written as the recipe takes it and fits every kind of case the axes of a block make.

    refusal: why some flags are excluded, or None
    """
    if isinstance(shape, str) != is_grouped(file):
        right = "a shape like 128+0+256x512" if is_grouped(file) else "a shape [rows, cols]"
        return f"shapes has {json.dumps(shape)} where {right} belongs"
    if not is_grouped(file):
        return case_problem(file, shape, {})
    fixed = {flag: values[0] for flag, values in axes.items() if len(values) == 1}
    for recipe, representation in itertools.product(axes[RECIPE], axes[REPRESENTATION]):
        flags = {**fixed, RECIPE: recipe, REPRESENTATION: representation}
        problem = None if refusal(flags) else case_problem(file, shape, flags)
        if problem:
            return f"'{shape}' does not fit {representation} of {recipe}: {problem}"
    return None


@cache
def tensor_problem(name: str, tensors: Sequence[tuple[int, int]]) -> str | None:
    """Unless the input is a distribution, or a tensor of a file that has at least all of these extents."""
    from harness import tensor_file

    if name.startswith(tensor_file.PREFIX):
        try:
            for rows, cols in tensors:
                if rows and cols:
                    tensor_file.load(name, rows, cols)
        except InputError as error:
            return str(error)
    return None


def _multiple_of(file: SuiteFile, flags: Mapping[str, FlagValue]) -> int:
    """Of which the extents that may not vary are multiples: what the group demands and what its dense recipe does."""
    # Imported here because a suite is made of what this module says.
    from harness.suite import suite_of

    return max(file.multiple_of, suite_of(str(flags[RECIPE])).file.multiple_of)


def _dense(shape: Shape) -> tuple[int, int]:
    if not isinstance(shape, str):
        return shape
    rows, _, cols = shape.partition("x")
    if not (rows.isascii() and rows.isdigit() and cols.isascii() and cols.isdigit()):
        raise ContractError(f"'{shape}' is not a shape; one reads ROWSxCOLS, as in 256x192")
    return int(rows), int(cols)
