"""A case and its tensors before they are quantized, which can be cut along rows, columns and groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.contract.case import Case
from harness.contract.group_shape import VARYING_MULTIPLE_OF, GroupedShape, ShapeRepresentation
from harness.errors import UsageError
from harness.suite import gemm_operands
from harness.suite.stages import is_pipeline
from harness.suite.suite import suite_of
from harness.verify.expected import high_precision, oracle_of

ROWS, COLS, N = "rows", "cols", "n"

_LETTERS = {"M": ROWS, "K": COLS, "N": N}
_AXES = (ROWS, COLS, N)

Part = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Problem:
    """case: with the seed of the one that is shrunk; parts: matrices by role, of every tensor of a group or of one."""

    case: Case
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, case: Case) -> Problem:
        return cls(case, _split(case, high_precision(case)))

    def inputs(self) -> dict[str, np.ndarray]:
        """The kernel inputs. Raises ContractError where the oracle refuses such tensors."""
        return oracle_of(self.case.recipe).inputs(self.case, **self._joined())

    @property
    def arrays(self) -> list[np.ndarray]:
        """All matrices, in the order of `with_arrays`."""
        return [array for part in self.parts for array in part.values()]

    def with_arrays(self, arrays: Sequence[np.ndarray]) -> Problem:
        """Replace the values of all matrices."""
        left = iter(arrays)
        return replace(self, parts=tuple({role: next(left) for role in part} for part in self.parts))

    def converted(self, mode: str | None = None, input_name: str | None = None, **flags: object) -> Problem | None:
        """Keep the tensors in a case of another mode, input name or flags; None if that is no case.

        Another layout transposes them, another dtype rounds them, and tensors that only the new flags need are drawn.
        """
        case = _found(
            self.case,
            self.case.flags.replace(**flags),
            _extents(self.case),
            _n(self.case),
            mode or self.case.mode,
            input_name or self.case.input,
        )
        if case is None:
            return None
        drawn = Problem.of(case)
        before, after = _dense(self.case), _dense(case)
        return Problem(case, tuple(map(_kept, drawn.parts, map(axes, after), self.parts, map(axes, before))))

    def with_tensors(self, numbers: Sequence[int]) -> Problem | None:
        """Keep only some tensors of the group; None if that is no case."""
        tensors = [self.case.problem.tensors[number] for number in numbers]
        return self._cut(tensors, _n(self.case), tuple(self.parts[number] for number in numbers))

    def items(self, axis: str) -> list[tuple[int, int]]:
        """Cut an axis into pieces as small as the recipe allows, (tensor, number of the piece).

        Where all tensors of a group must keep the same extent, a piece is that of all of them, and the tensor is -1.
        """
        size = self._piece(axis)
        extents = [_extent(case, axis) for case in _dense(self.case)]
        if len(extents) > 1 and self._varies(axis):
            return [(number, i) for number, extent in enumerate(extents) for i in range(extent // size)]
        return [(-1, i) for i in range(max(extents) // size)]

    def with_items(self, axis: str, items: Sequence[tuple[int, int]]) -> Problem | None:
        """Keep only some pieces of an axis; None if that is no case."""
        size = self._piece(axis)
        parts, extents = [], []
        for number, (case, part) in enumerate(zip(_dense(self.case), self.parts, strict=True)):
            pieces = np.array([i for tensor, i in items if tensor in (-1, number)], np.int64)
            kept = (pieces[:, None] * size + np.arange(size)).reshape(-1)
            kept = kept[kept < _extent(case, axis)]
            along = axes(case)
            parts.append({role: _taken(array, along[role], axis, kept) for role, array in part.items()})
            extents.append([len(kept) if axis == other else _extent(case, other) for other in (ROWS, COLS)])
        n = len(kept) if axis == N else _n(self.case)
        return self._cut([(rows, cols) for rows, cols in extents], n, tuple(parts))

    def _cut(self, tensors: Sequence[tuple[int, int]], n: int, parts: tuple[Part, ...]) -> Problem | None:
        case = _found(self.case, self.case.flags, tensors, n, self.case.mode, self.case.input)
        return Problem(case, parts) if case else None

    def _varies(self, axis: str) -> bool:
        if not self.case.is_group or axis == N:
            return False
        return ShapeRepresentation(self.case.flags["shape_representation"]).varies(_AXES.index(axis))

    def _piece(self, axis: str) -> int:
        file = suite_of(self.case.recipe).file
        if self.case.is_group:
            dense = suite_of(str(self.case.flags["recipe"])).file.multiple_of
            return max(file.multiple_of, dense, VARYING_MULTIPLE_OF if self._varies(axis) else 1)
        return 1 if file.gemm and axis == ROWS and not file.pipeline else file.multiple_of

    def _joined(self) -> dict[str, np.ndarray]:
        if not self.case.is_group:
            return dict(self.parts[0])
        one: Callable[[np.ndarray], np.ndarray] = np.asarray if self.case.is_gemm else np.ravel
        return {role: np.concatenate([one(part[role]) for part in self.parts]) for role in self.parts[0]}


def axes(case: Case) -> dict[str, tuple[str, ...]]:
    """Role → the meaning of its axes, in a dense case."""
    if is_pipeline(case):
        stages = suite_of(case.recipe).file.pipeline
        return {stage.stage: tuple(_LETTERS[letter] for letter in stage.extents) for stage in stages}
    if not case.is_gemm:
        return dict.fromkeys(("x", "act_input"), (ROWS, COLS))
    transposed = gemm_operands.COLUMNWISE[str(case.flags.get("layout", "tn"))]
    lines = {"a": (ROWS, COLS), "b": (N, COLS)}
    turned = {name: both[::-1] if name in transposed else both for name, both in lines.items()}
    return {**turned, "c": (ROWS, N), "bias": (N,)}


def _dense(case: Case) -> list[Case]:
    return list(case.parts)


def _extents(case: Case) -> Sequence[tuple[int, int]]:
    return [(part.rows, part.cols) for part in case.parts]


def _n(case: Case) -> int:
    """N of a product, 0 of a tensor."""
    return case.problem.n if case.is_gemm else 0


def _extent(case: Case, axis: str) -> int:
    return case.problem.n if axis == N else {ROWS: case.rows, COLS: case.cols}[axis]


def _split(case: Case, tensors: Mapping[str, np.ndarray]) -> tuple[Part, ...]:
    if not case.is_group:
        return (tensors,)
    shapes = [
        {role: tuple(_extent(part, axis) for axis in axes(part)[role]) for role in tensors} for part in _dense(case)
    ]
    first = dict.fromkeys(tensors, 0)
    parts = []
    for shape in shapes:
        part = {}
        for role, array in tensors.items():
            count = shape[role][0] if case.is_gemm else int(np.prod(shape[role]))
            part[role] = array[first[role] : first[role] + count].reshape(shape[role])
            first[role] += count
        parts.append(part)
    return tuple(parts)


def _taken(array: np.ndarray, along: Sequence[str], axis: str, kept: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.take(kept, along.index(axis))) if axis in along else array


def _kept(
    drawn: Part, new: Mapping[str, Sequence[str]], part: Part, old: Mapping[str, Sequence[str]]
) -> dict[str, np.ndarray]:
    """The old tensors in the dtypes and directions of those that would be drawn."""
    made = dict(drawn)
    for role in drawn.keys() & part.keys():
        array = part[role] if new[role] == old[role] else part[role].T
        if array.dtype != drawn[role].dtype:
            with np.errstate(over="ignore", invalid="ignore"):
                array = array.astype(np.float32).astype(drawn[role].dtype)
        made[role] = np.ascontiguousarray(array)
    return made


def _found(
    case: Case, flags: Mapping[str, object], tensors: Sequence[tuple[int, int]], n: int, mode: str, input_name: str
) -> Case | None:
    """The case of the same recipe with these flags and extents, and the seed of `case`; None if there is none."""
    suite = suite_of(case.recipe)
    extents = str(GroupedShape(tuple(tensors))) if case.is_group else "x".join(map(str, itertools.chain(*tensors)))
    shape = f"{extents}x{n}" if n else extents
    spelled = replace(case, flags=flags)
    try:
        found = suite.find(f"{case.recipe}/{spelled.variant}/{shape}/{input_name}/{mode}")
    except UsageError:
        return None
    return replace(found, seed_of=case.seed_of or case.data_id)
