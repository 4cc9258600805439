"""Shapes in suites and ids: rows and cols of a dense recipe, the tensors of a group, or M, K and N of a GEMM.

A recipe with the flag `shape_representation` is grouped: the flag decides which shapes it takes, and its flag `recipe`
names the dense recipe whose bytes every tensor has. A grouped GEMM has the tensors of its As, and one N or that of
every group: `128+0+256x512x1024`, `128+256x384+512x256+384`. A corner is a larger problem that ends in a case. An
`…_error` function gives the sentence about what breaks its rule, or None.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cache

from harness.contract.case import Case, FlagValue
from harness.contract.group_shape import GroupedShape, ShapeRepresentation, extent_error, extents_of
from harness.contract.problem import Dense, Gemm, Grouped, GroupedGemm, Problem, require_n
from harness.errors import ContractError, InputError, UsageError
from harness.inputs import tensor_file
from harness.suite.flag_values import holds, refusal
from harness.suite.schema import Corner, Shape, SuiteFile
from harness.suite.suite_file import file_of

REPRESENTATION = "shape_representation"
RECIPE = "recipe"

# Keyed by whether the recipe is a GEMM: the form of a dense shape in YAML and in an id, and of a group's shape.
_DENSE = {False: "[rows, cols]", True: "[M, K, N]"}
_DENSE_ID = {False: "ROWSxCOLS, as in 256x192", True: "MxKxN, as in 64x512x128"}
_GROUP = {False: "128+0+256x512", True: "128+0+256x512x1024"}
_TILE = 128  # lines; block scales are padded to a multiple of it


def is_grouped(file: SuiteFile) -> bool:
    return REPRESENTATION in file.axes


def axes_error(file: SuiteFile) -> str | None:
    """A sentence if a grouped recipe lacks the flags that define its tensors."""
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


def problem(file: SuiteFile, shape: Shape, flags: Mapping[str, FlagValue]) -> Problem:
    """The problem of a case, from a legal shape."""
    if not is_grouped(file):
        return (Gemm if file.gemm else Dense)(*_dense(file, shape))
    group, n_dims = _group(str(shape), file.gemm)
    kind = ShapeRepresentation(str(flags[REPRESENTATION]))
    if file.gemm and kind is ShapeRepresentation.VARYING_BOTH_DIMS:
        return GroupedGemm.varying(group, n_dims)
    rows, cols = group.logical(kind)
    if file.gemm:
        by_k = kind is ShapeRepresentation.VARYING_LAST_DIM
        return GroupedGemm(rows, cols, n_dims[0], group.tensors, group.capacity, by_k)
    return Grouped(rows, cols, group.tensors, group.capacity, group.splits_by)


def canonical(shape: str) -> str:
    """A shape as ids spell it; a group has several spellings. A grouped GEMM's N follows the group's M and K."""
    group, n_dims = _group(shape, shape.count("x") > 1)
    return str(GroupedGemm.varying(group, n_dims) if n_dims else group)


def extents_error(extents: Sequence[int], multiple_of: int, any_m: bool, no_rows: bool) -> str | None:
    """A sentence unless all extents are positive multiples. no_rows: whether the first may be 0

    Of three extents, M need only be positive, unless `any_m` is false.
    """
    if no_rows and extents[0] == 0:
        return _extent_error("cols", extents[1], multiple_of)
    multiples = [1 if len(extents) == 3 and any_m else multiple_of, *[multiple_of] * (len(extents) - 1)]
    axes = ("rows", "cols") if len(extents) == 2 else "MKN"
    return next(filter(None, map(_extent_error, axes, extents, multiples)), None)


def _extent_error(axis: str, extent: int, multiple: int) -> str | None:
    error = extent_error(axis, extent)
    if error or (extent > 0 and extent % multiple == 0):
        return error
    fit = max(round(extent / multiple), 1) * multiple
    return f"{axis} = {extent} is not a positive multiple of {multiple}; the nearest is {fit}"


def shape_error(file: SuiteFile, shape: Shape, flags: Mapping[str, FlagValue]) -> str | None:
    """A sentence unless a case with these flags may have this shape. flags: all, or only those that set its kind"""
    try:
        if not is_grouped(file):
            wrong = extents_error(_dense(file, shape), file.multiple_of, not file.pipeline, file.no_rows)
            return wrong or problem(file, shape, flags).too_large_for(file.recipe)
        group, n_dims = _group(str(shape), file.gemm)
        kind = ShapeRepresentation(str(flags[REPRESENTATION]))
        multiple = tensor_multiple(file, file_of(str(flags[RECIPE])))
        group.require(kind, multiple, varying_multiple(file, flags), product=file.gemm)
        require_n(kind, n_dims, multiple)
    except (ContractError, UsageError) as error:
        return str(error)
    has_one = file.gemm and kind is not ShapeRepresentation.VARYING_BOTH_DIMS
    wrong = _extent_error("N", n_dims[0], multiple) if has_one else None
    return wrong or problem(file, shape, flags).too_large_for(file.recipe)


def tensor_multiple(file: SuiteFile, recipe: SuiteFile) -> int:
    """The divisor of the extents of a group's tensors that may not differ. recipe: the tensors'"""
    return max(file.multiple_of, recipe.multiple_of)


def varying_multiple(file: SuiteFile, flags: Mapping[str, FlagValue]) -> int:
    """The divisor of the extents of a group's tensors that may differ."""
    if file.gemm and not file.pipeline:
        return GroupedGemm.varying_multiple_of(str(flags[REPRESENTATION]))
    return tensor_multiple(file, file_of(str(flags[RECIPE])))


def block_error(file: SuiteFile, axes: Mapping[str, Sequence[FlagValue]], shape: Shape) -> str | None:
    """A sentence unless a shape has the recipe's form and fits every kind of case that a block's axes make."""
    if isinstance(shape, str) != is_grouped(file):
        right = f"like {_GROUP[file.gemm]}" if is_grouped(file) else _DENSE[file.gemm]
        return f"shapes has {json.dumps(shape)} where a shape {right} belongs"
    if not is_grouped(file):
        return shape_error(file, shape, {})
    fixed = {flag: values[0] for flag, values in axes.items() if len(values) == 1}
    for recipe, representation in itertools.product(axes[RECIPE], axes[REPRESENTATION]):
        flags = {**fixed, RECIPE: recipe, REPRESENTATION: representation}
        error = None if refusal(file, flags) else shape_error(file, shape, flags)
        if error:
            return f"'{shape}' does not fit {representation} of {recipe}: {error}"
    return None


def corners(file: SuiteFile, case: Case) -> list[Problem]:
    """The larger problems that the emulator also runs, with the case as their last rows and columns."""
    entries = [each for each in file.corners if each.shape == case.shape and holds(each.when, case.flags)]
    return [problem(file, shape, case.flags) for each in entries for shape in each.tensors]


def corner_errors(file: SuiteFile, entry: Corner) -> Iterator[tuple[int, str | None]]:
    """Yield the number of each larger shape of an entry, and a sentence if something is wrong with it, else None."""
    for number, larger in enumerate(entry.tensors):
        yield number, _corner_error(file, entry, larger)


def _corner_error(file: SuiteFile, entry: Corner, larger: Shape) -> str | None:
    if file.pipeline:
        return "a pipeline has no corners; those of its recipes have"
    flags = {name: values[0] for name, values in file.axes.items()} | {
        name: values[0] for name, values in entry.when.items()
    }
    if isinstance(larger, str) != is_grouped(file):
        return block_error(file, {name: [value] for name, value in flags.items()}, larger)
    try:
        case, whole = (problem(file, shape, flags) for shape in (entry.shape, larger))
    except (ContractError, UsageError) as error:
        return str(error)
    if case.is_group:
        right = f"'{entry.shape}' behind one larger tensor, as in 4096+{entry.shape}, nor one tensor with more rows"
        if not _ends_in(group_extents(whole), group_extents(case)):
            return f"'{larger}' is neither {right}"
        return shape_error(file, larger, flags)
    grown = [(part, all_of) for part, all_of in zip(astuple(case), astuple(whole), strict=True) if part != all_of]
    if not grown or any(all_of < part or part % _TILE or all_of % part for part, all_of in grown):
        rule = f"an extent that differs is a multiple of the case's, and that one of {_TILE}"
        return f"'{whole}' is not larger than '{case}' by whole parts: {rule}"
    return shape_error(file, larger, flags)


def group_extents(group: Problem) -> list[tuple[int, ...]]:
    """(rows, cols) of every tensor, and N of every product where it may differ."""
    return [(*extents, *(group.n_dims or ())[g : g + 1]) for g, extents in enumerate(group.tensors)]


def _ends_in(larger: list[tuple[int, ...]], own: list[tuple[int, ...]]) -> bool:
    """Whether a group ends in the tensors of another, or is one tensor that does."""
    if larger[1:] == own:
        return True
    (rows, *others), (all_rows, *all_others) = own[-1], larger[-1]
    return len(larger) == len(own) == 1 and others == all_others and all_rows > rows and all_rows % rows == 0


@cache
def tensor_error(name: str, tensors: Sequence[tuple[int, int]], operands: int = 1) -> str | None:
    """A sentence unless the input is a distribution, or names tensors of files that are at least this large.

    operands: how many tensors the case takes; the input names one for all of them, or one for each, in order
    tensors: their extents; those of further groups take the named tensors over again
    """
    if not name.startswith(tensor_file.PREFIX):
        return None
    parts = tensor_file.parts_of(name)
    if len(parts) not in (1, operands):
        most = "one tensor" if operands == 1 else f"one tensor for all operands, or {operands}"
        return f"the input names {len(parts)} tensors; this case takes {most}"
    try:
        for number, (rows, cols) in enumerate(tensors):
            if rows and cols:
                tensor_file.load(parts[number % len(parts)], rows, cols)
    except InputError as error:
        return str(error)
    return None


def _is_extent(text: str) -> bool:
    # Python takes seconds to read numbers of thousands of digits.
    return text.isascii() and text.isdigit() and len(text) <= 18


def _group(text: str, gemm: bool) -> tuple[GroupedShape, tuple[int, ...]]:
    """The tensors of a group and, for a grouped GEMM, every N."""
    if not gemm:
        return GroupedShape.parse(text), ()
    sides, _, side = text.rpartition("x")
    n_dims = extents_of(side)
    if "x" not in sides or n_dims is None:
        raise ContractError(
            f"'{text}' is not a shape of a grouped GEMM; one reads MxKxN with M or K of every group, as in "
            f"{_GROUP[True]}, or with N of every group, too, as in 128+256x384+512x256+384"
        )
    group = GroupedShape.parse(sides)
    if not n_dims:
        raise ContractError(f"'{text}' has no product: {side} is none of them; a group has at least one")
    if 1 < len(group) != len(n_dims) > 1:
        raise ContractError(f"'{text}' has {len(group)} extents of A and {len(n_dims)} of N; give one of each")
    if len(group) == 1:
        group = replace(group, tensors=group.tensors * len(n_dims))
    return group, n_dims * len(group) if len(n_dims) == 1 else n_dims


def _dense(file: SuiteFile, shape: Shape) -> tuple[int, ...]:
    count = 3 if file.gemm else 2
    if not isinstance(shape, str):
        if len(shape) != count:
            raise ContractError(f"shapes has {json.dumps(shape)} where a shape {_DENSE[file.gemm]} belongs")
        return shape
    sides = shape.split("x")
    if len(sides) != count or not all(map(_is_extent, sides)):
        raise ContractError(f"'{shape}' is not a shape; one reads {_DENSE_ID[file.gemm]}")
    return tuple(map(int, sides))
