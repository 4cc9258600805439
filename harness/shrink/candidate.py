"""A case with its high-precision tensors, to be cut along rows and columns and by tensors of a group."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.contract.case import Case
from harness.contract.group_shape import GroupedShape, ShapeRepresentation
from harness.errors import UsageError
from harness.expected.expected import high_precision, oracle_of
from harness.suite import gemm_operands
from harness.suite.shapes import tensor_multiple, varying_multiple
from harness.suite.stages import is_pipeline
from harness.suite.suite import suite_of

ROWS, COLS, N = "rows", "cols", "n"

_LETTERS = {"M": ROWS, "K": COLS, "N": N}
_AXES = (ROWS, COLS, N)

Part = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A case with the seed of the original. parts: matrices by role, for each tensor of a group, or of the only one"""

    case: Case
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, case: Case) -> Candidate:
        return cls(replace(case, seed_of=case.seed_name), _split(case, high_precision(case)))

    def inputs(self) -> dict[str, np.ndarray]:
        """The kernel inputs. Raises ContractError if the oracle refuses these tensors."""
        return oracle_of(self.case.recipe).inputs(self.case, **self._joined())

    @property
    def drawn_from_tensors(self) -> bool:
        """Whether kernel inputs depend on the tensors, and not on the case alone."""
        zeros, ones = (  # its own may all be zeros by now
            self.with_arrays([np.full_like(array, value) for array in self.arrays]).inputs() for value in (0, 1)
        )
        return any(array.tobytes() != zeros[name].tobytes() for name, array in ones.items())

    @property
    def arrays(self) -> list[np.ndarray]:
        """All matrices, in the order that `with_arrays` takes them."""
        return [array for part in self.parts for array in part.values()]

    def with_arrays(self, arrays: Sequence[np.ndarray]) -> Candidate:
        left = iter(arrays)
        return replace(self, parts=tuple({role: next(left) for role in part} for part in self.parts))

    def converted(self, mode: str | None = None, input_name: str | None = None, **flags: object) -> Candidate | None:
        """Keep the tensors in a case with another mode, input name or flags; None if there is no such case.

        Another layout transposes them, another dtype rounds them, and tensors that only the new flags need are drawn.
        """
        old = self.case
        changed = replace(old, flags=old.flags.replace(**flags), mode=mode or old.mode, input=input_name or old.input)
        case = _found(changed, old.shape)
        if case is None:
            return None
        drawn = Candidate.of(case)
        parts = map(_kept, drawn.parts, axes_of_parts(case), self.parts, axes_of_parts(old))
        return Candidate(case, tuple(parts))

    def with_tensors(self, numbers: Sequence[int]) -> Candidate | None:
        """Keep only some tensors of the group; None if there is no such case."""
        tensors = [self.case.problem.tensors[number] for number in numbers]
        n_dims = [_n(self.case.part(number)) for number in numbers]
        return self._cut(tensors, n_dims, tuple(self.parts[number] for number in numbers))

    def items(self, axis: str) -> list[tuple[int, int]]:
        """Cut an axis into pieces as small as the recipe allows: (tensor, number of the piece).

        The tensor is -1 where all tensors of a group have the same extent and a piece belongs to all of them.
        """
        size = self._piece(axis)
        extents = [getattr(part.problem, axis) for part in self.case.parts]
        if len(extents) > 1 and self._varies(axis):
            return [(number, i) for number, extent in enumerate(extents) for i in range(extent // size)]
        return [(-1, i) for i in range(max(extents) // size)]

    def with_items(self, axis: str, items: Sequence[tuple[int, int]]) -> Candidate | None:
        """Keep only some pieces of an axis; None if there is no such case, or it has no elements."""
        size = self._piece(axis)
        parts, extents, n_dims = [], [], []
        its_axes = axes_of_parts(self.case)
        for number, (case, along, part) in enumerate(zip(self.case.parts, its_axes, self.parts, strict=True)):
            pieces = np.array([i for tensor, i in items if tensor in (-1, number)], np.int64)
            kept = (pieces[:, None] * size + np.arange(size)).reshape(-1)
            kept = kept[kept < getattr(case.problem, axis)]
            parts.append({role: _taken(array, along[role], axis, kept) for role, array in part.items()})
            extents.append((len(kept) if axis == ROWS else case.rows, len(kept) if axis == COLS else case.cols))
            n_dims.append(len(kept) if axis == N else _n(case))
        return self._cut(extents, n_dims, tuple(parts))

    def _cut(
        self, tensors: Sequence[tuple[int, int]], n_dims: Sequence[int], parts: tuple[Part, ...]
    ) -> Candidate | None:
        if not self.case.is_group and 0 in tensors[0]:
            return None
        extents = "x".join(map(str, tensors[0]))
        if self.case.is_group:
            capacity = self._capacity(tensors[0][1])
            extents = str(GroupedShape(tuple(tensors), capacity, self.case.problem.splits_by))
        n = "+".join(map(str, n_dims if len(set(n_dims)) > 1 else n_dims[:1]))
        case = _found(self.case, f"{extents}x{n}" if self.case.is_gemm else extents)
        return Candidate(case, parts) if case else None

    def _capacity(self, cols: int) -> int | None:
        """The new capacity: the allocation keeps its rows or, if both extents of a tensor vary, its elements."""
        capacity = self.case.problem.capacity
        return capacity if capacity is None or self.case.rows == 1 else self.case.rows * cols

    def _varies(self, axis: str) -> bool:
        if not self.case.is_group or axis == N:
            return axis == N and self.case.problem.n_dims is not None
        return ShapeRepresentation(self.case.flags["shape_representation"]).varies(_AXES.index(axis))

    def _piece(self, axis: str) -> int:
        file = suite_of(self.case.recipe).file
        if self.case.is_group:
            if self._varies(axis):
                finest = varying_multiple(file, self.case.flags)
                return finest if self.case.problem.capacity is None else max(finest, self.case.problem.splits_by)
            return tensor_multiple(file, suite_of(str(self.case.flags["recipe"])).file)
        return 1 if file.gemm and axis == ROWS and not file.pipeline else file.multiple_of

    def _joined(self) -> dict[str, np.ndarray]:
        if not self.case.is_group:
            return dict(self.parts[0])
        one: Callable[[np.ndarray], np.ndarray] = np.asarray if _in_rows(self.case) else np.ravel
        return {role: np.concatenate([one(part[role]) for part in self.parts]) for role in self.parts[0]}


def axes(case: Case) -> dict[str, tuple[str, ...]]:
    """Role → the extent along each axis of its matrix, in a dense case."""
    if is_pipeline(case):
        stages = suite_of(case.recipe).file.pipeline
        return {stage.stage: tuple(_LETTERS[letter] for letter in stage.extents) for stage in stages}
    if not case.is_gemm:
        return dict.fromkeys(("x", "act_input"), (ROWS, COLS))
    transposed = gemm_operands.COLUMNWISE[str(case.flags.get("layout", "tn"))]
    lines = {"a": (ROWS, COLS), "b": (N, COLS)}
    turned = {name: both[::-1] if name in transposed else both for name, both in lines.items()}
    return {**turned, "c": (ROWS, N), "bias": (N,)}


def axes_of_parts(case: Case) -> list[dict[str, tuple[str, ...]]]:
    """The axes of each tensor of a group; of a pipeline, those of its own stages."""
    return [axes(case if is_pipeline(case) else part) for part in case.parts]


def _in_rows(case: Case) -> bool:
    """Whether the matrices of a group lie one below the other, and not flat, one behind the other."""
    return case.is_gemm and not is_pipeline(case) and case.problem.n_dims is None


def _n(case: Case) -> int:
    return case.problem.n if case.is_gemm else 0


def _split(case: Case, tensors: Mapping[str, np.ndarray]) -> tuple[Part, ...]:
    if not case.is_group:
        return (tensors,)
    first = dict.fromkeys(tensors, 0)
    parts = []
    for dense, along in zip(case.parts, axes_of_parts(case), strict=True):
        part = {}
        for role, array in tensors.items():
            shape = tuple(getattr(dense.problem, axis) for axis in along[role])
            count = shape[0] if _in_rows(case) else math.prod(shape)
            part[role] = array[first[role] : first[role] + count].reshape(shape)
            first[role] += count
        parts.append(part)
    return tuple(parts)


def _taken(array: np.ndarray, along: Sequence[str], axis: str, kept: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.take(kept, along.index(axis))) if axis in along else array


def _kept(
    drawn: Part, new: Mapping[str, Sequence[str]], part: Part, old: Mapping[str, Sequence[str]]
) -> dict[str, np.ndarray]:
    """Convert the old tensors to the dtypes and layouts of the drawn ones."""
    made = dict(drawn)
    for role in drawn.keys() & part.keys():
        array = part[role] if new[role] == old[role] else part[role].T
        if array.dtype != drawn[role].dtype:
            with np.errstate(over="ignore", invalid="ignore"):
                array = array.astype(np.float32).astype(drawn[role].dtype)
        made[role] = np.ascontiguousarray(array)
    return made


def _found(case: Case, shape: str) -> Case | None:
    """The case with another shape and the same seed; None if the suite refuses it."""
    try:
        found = suite_of(case.recipe).find(f"{case.recipe}/{case.variant}/{shape}/{case.input}/{case.mode}")
    except UsageError:
        return None
    return replace(found, seed_of=case.seed_of)
