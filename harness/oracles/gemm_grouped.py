"""gemm_grouped: D_g (M_g, N) = A_g (M_g, K) * B_g (N, K)^T for 1 to 64 groups. NUMERICS section 10.4.

The groups of every array lie back to back: rows of A, of C and of the output; N lines of B with the padding of every
group; amaxes, one for each operand of a group or one for each of its rows; N entries of bias. For each group g:
  1. M_g is 0 or a multiple of 128. An empty group has no rows of A, C and the output; its B and bias are there.
  2. D_g = gemm of the group's operands: its bytes, or its interval
     alpha' = RN(RN(RN(alpha * a_g) * b_g) * C_AB) is made of the group's own amaxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.group_arrays import from_arrays
from harness.contract.group_shape import VARYING_MULTIPLE_OF, ShapeRepresentation
from harness.contract.interval import Interval
from harness.errors import ContractError
from harness.oracles import gemm, gemm_operands, nvfp4

if TYPE_CHECKING:
    import torch

EXTENTS = ("first_dims", "last_dims", "tensor_offsets")


def refuse(case: Case) -> None:
    flags = case.flags
    if flags.recipe != "gemm":
        raise ContractError(f"{case.recipe}: recipe must be gemm, not {flags.recipe}")
    if flags.shape_representation != ShapeRepresentation.VARYING_FIRST_DIM:
        raise ContractError(
            f"{case.recipe}: shape_representation must be varying_first_dim, not {flags.shape_representation}: only M "
            "differs from group to group"
        )
    if flags.layout == "nt":
        raise ContractError(f"{case.recipe}: layout must be tn or nn, not nt: in wgrad K differs, and not M")
    if flags.epilogue == "per_token":
        raise ContractError(
            f"{case.recipe}: epilogue must not be per_token, whose second kernel scales one output; per_token_fused "
            "has no second"
        )
    alone = replace(case.problem, m=0, tensors=((0, case.cols),))
    gemm.refuse(_stand_in(replace(case, problem=alone).part(0)))
    try:
        case.problem.group.require(flags.shape_representation)
    except ContractError as error:
        raise ContractError(f"{case.recipe}: {error}") from None


def outputs(case: Case) -> dict[str, Field]:
    """`output` (M, N) in `flags.dtype`, M being the sum of all M_g; its groups are its parts."""
    refuse(case)
    dtype = nvfp4.DTYPES[case.flags.dtype].name
    parts = [Field((rows, case.problem.n), dtype) for rows, _ in case.problem.tensors]
    return {"output": Field.joined(parts, (case.rows, case.problem.n))}


def inputs(case: Case, *high_precision: np.ndarray, **named: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of `gemm`, the groups one below the other, and `first_dims`, `last_dims` and `tensor_offsets`.

    a, b, c, bias: as `gemm` takes them, the groups one below the other
    """
    refuse(case)
    given = dict(zip("ab", high_precision, strict=False)) | named
    groups = [_group_inputs(case, g, given) for g in range(len(case.problem.tensors))]
    shape = case.problem.group
    return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]} | {
        "first_dims": shape.first_dims,
        "last_dims": shape.last_dims,
        "tensor_offsets": shape.tensor_offsets,
    }


def inputs_of(case: Case, tensors: Mapping[str, Any], g: int) -> dict[str, Any]:
    """The arrays of one group, from either library, as `gemm` reads them."""
    return {name: tensors[name][place] for name, place in _places(case)[g].items()}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray | Interval]:
    """`output`, as an interval unless every sum is exact."""
    _require_arrays(case, tensors)
    groups = []
    for g, (rows, _) in enumerate(case.problem.tensors):
        if rows:
            with _of_group(case, g):
                groups.append(gemm.numpy_oracle(case.part(g), inputs_of(case, tensors, g))["output"])  # 2
    if groups and isinstance(groups[0], Interval):
        ends = zip(*((group.low, group.high, group.sums, group.sizes) for group in groups), strict=True)
        return {"output": Interval(*map(np.concatenate, ends))}
    nothing = np.empty((0, case.problem.n), nvfp4.DTYPES[case.flags.dtype])
    return {"output": np.concatenate([nothing, *groups])}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | Interval]:
    from harness.oracles import torch_gemm_grouped

    _require_arrays(case, tensors)
    return {"output": torch_gemm_grouped.grouped(case, tensors, gemm.torch_oracle)}


@lru_cache(maxsize=1)
def _places(case: Case) -> tuple[dict[str, slice], ...]:
    """The slice of every array that each group has."""
    shapes = [gemm_operands.shapes(part) for part in case.parts]
    ends = {name: list(accumulate(group[name][0] for group in shapes)) for name in shapes[0]}
    return tuple(
        {name: slice(end[g] - group[name][0], end[g]) for name, end in ends.items()} for g, group in enumerate(shapes)
    )


def _stand_in(dense: Case) -> Case:
    """The group, or if it is empty one with rows in its place, because no dense recipe takes an empty operand."""
    return replace(dense, problem=replace(dense.problem, m=dense.problem.m or VARYING_MULTIPLE_OF))


def _group_inputs(case: Case, g: int, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    dense = case.part(g)
    stand_in = _stand_in(dense)
    start = sum(rows for rows, _ in case.problem.tensors[:g])
    own = {}
    for name, array in given.items():
        if name in ("a", "c"):
            rows = array[start : start + dense.rows]
            own[name] = rows if dense.rows else np.zeros((stand_in.rows, *array.shape[1:]), array.dtype)
        else:
            own[name] = np.split(array, len(case.problem.tensors))[g]
    with _of_group(case, g):
        made = gemm.inputs(stand_in, **own)
    if dense.rows:
        return made
    shapes = gemm_operands.shapes(dense)
    empty = {name: np.zeros(shapes[name], made[name].dtype) for name in made if name.startswith("a_") or name == "c"}
    return made | empty


@contextmanager
def _of_group(case: Case, g: int):
    """Add the number of the group to the sentence of a refusal."""
    try:
        yield
    except ContractError as error:
        raise ContractError(f"{case.recipe}: group {g}: {error}") from None


def _require_arrays(case: Case, tensors: Mapping[str, Any]) -> None:
    """Raise ContractError for arrays, from either library, that contradict the case."""
    refuse(case)
    end = _places(case)[-1]
    right = {name: (end[name].stop, *shape[1:]) for name, shape in gemm_operands.shapes(case.part(0)).items()}
    gemm_operands.require_shapes(case, tensors, right)
    for name in EXTENTS:
        if name not in tensors:
            raise ContractError(f"{case.recipe}: {name} is missing; the kernel finds its groups by it")
    dims = [tensors[name].tolist() for name in EXTENTS]
    kind = case.flags.shape_representation
    try:
        described = from_arrays(kind, len(case.problem.tensors), case.problem.group.logical(kind), *dims)
    except ContractError as error:
        raise ContractError(f"{case.recipe}: {error}") from None
    for g, (one, other) in enumerate(zip(described.tensors, case.problem.tensors, strict=True)):
        if one != other:
            raise ContractError(f"{case.recipe}: first_dims has {one[0]} rows for group {g}, and the case {other[0]}")
        with _of_group(case, g):
            gemm_operands.require_finite_factors(case.part(g), inputs_of(case, tensors, g))
