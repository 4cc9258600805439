"""gemm_grouped: D_g (M_g, N_g) = A_g (M_g, K_g) * B_g (N_g, K_g)^T for 1 to 64 groups. NUMERICS section 10.4.

M_g differs from group to group in fprop and dgrad (tn, nn), and K_g in wgrad (nt); all three may differ in any layout
with varying_both_dims. The groups of every array lie back to back, each with the padding that it has alone: rows of A,
of C and of the output; N_g lines of B; amaxes, one for each operand of a group or one for each of its lines; N_g
entries of bias. For each group g:
  1. M_g is any number, and 0 for a group without rows of A, C and the output; its B and bias are there.
     K_g is a multiple of 16, and 0 for a group without codes and scales, whose amaxes are 0.
     N_g, where it differs, is a multiple of 16, as M_g is there, and 0 for a group without B, bias, C and output.
  2. D_g = gemm of the group's operands: its bytes, or its interval; the epilogue of +0 if K_g is 0
     alpha' = RN(RN(RN(alpha * a_g) * b_g) * C_AB) is made of the group's own amaxes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import astuple, replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.group_arrays import from_arrays, integers
from harness.contract.group_shape import ShapeRepresentation
from harness.contract.interval import Interval, may_be_ordered
from harness.contract.problem import Gemm
from harness.errors import ContractError
from harness.oracles import gemm, gemm_flags, gemm_operands, layout, nvfp4, quantizer
from harness.oracles.gemm_ordered import epilogue

if TYPE_CHECKING:
    import torch

EXTENTS = ("first_dims", "last_dims", "tensor_offsets")
_BY_ROW = ("a_data", "a_scale_inv", "a_amax", "c")
_WHAT = ("rows", "of K", "of N")
_STAND_IN = 128  # in place of an extent of 0, which no dense recipe takes


def refuse(case: Case) -> None:
    flags = case.flags
    if flags.recipe != "gemm":
        raise ContractError(f"{case.recipe}: recipe must be gemm, not {flags.recipe}")
    right, extent = ShapeRepresentation.VARYING_FIRST_DIM, "M"
    if flags.layout == "nt":
        right, extent = ShapeRepresentation.VARYING_LAST_DIM, "K"
    kind, any_extent = flags.shape_representation, ShapeRepresentation.VARYING_BOTH_DIMS
    if kind not in (right, any_extent):
        raise ContractError(
            f"{case.recipe}: shape_representation must be {right} or {any_extent}, not {kind}: with layout "
            f"{flags.layout} {extent} alone differs from group to group, or M, N and K may"
        )
    if (kind == any_extent) != (case.problem.n_dims is not None):
        raise ContractError(f"{case.recipe}: the problem has an N of each group exactly in {any_extent}, not in {kind}")
    if flags.epilogue == "per_token":
        raise ContractError(
            f"{case.recipe}: epilogue must not be per_token, whose second kernel scales one output; per_token_fused "
            "has no second"
        )
    if flags.epilogue == "windows":
        raise ContractError(
            f"{case.recipe}: epilogue must not be windows, whose amaxes belong inside the sum; the dense kernel for "
            "windows alone has them there"
        )
    gemm.refuse_large(case)
    for g in {case.problem.part(g): g for g in range(len(case.problem.tensors))}.values():
        gemm.refuse(_stand_in(case.part(g)))
    quantizer.require_group(case, kind, nvfp4.BLOCK, case.problem.varying_multiple_of(kind), product=True)


def outputs(case: Case) -> dict[str, Field]:
    """`output` (M, N) in `flags.dtype`, M being the sum of all M_g; flat where N differs. Its groups are its parts."""
    refuse(case)
    dtype = nvfp4.DTYPES[case.flags.dtype].name
    parts = [Field((part.m, part.n), dtype) for part in _problems(case)]
    if case.problem.n_dims is not None:
        return {"output": Field.joined(parts)}
    rows = sum(part.shape[0] for part in parts)
    whole = case.problem.capacity is None or case.problem.by_k
    slack = 0 if whole else (case.problem.m - rows) * case.problem.n
    return {"output": Field.joined(parts, (rows, case.problem.n), slack)}


def inputs(case: Case, *high_precision: np.ndarray, **named: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of `gemm`, the groups one below the other, and `first_dims`, `last_dims` and `tensor_offsets`.

    In wgrad, where the codes and scales of groups are not equally wide, these are flat. With varying_both_dims every
    array is, and `n_dims` is there.

    a, b, c, bias: as `gemm` takes them, the groups one below the other; flat with varying_both_dims
    """
    refuse(case)
    given = dict(zip("ab", high_precision, strict=False)) | named
    groups = [_group_inputs(case, g, own) for g, own in enumerate(_split(case, given))]
    joined = {}
    for name in groups[0]:
        arrays = [group[name] for group in groups]
        array = np.concatenate([array.reshape(-1) for array in arrays] if _is_flat(case, name) else arrays)
        joined[name] = _allocated(array, _entries(case, name)) if _has_slack(case, name) else array
    return joined | case.problem.arrays


def inputs_of(case: Case, tensors: Mapping[str, Any], g: int) -> dict[str, Any]:
    """The arrays of one group, from either library, as `gemm` reads them."""
    shapes = gemm_operands.shapes(case.part(g))
    return {name: tensors[name][place].reshape(shapes[name]) for name, place in places(case)[g].items()}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray | Interval]:
    """`output`, as an interval unless every sum is exact."""
    _require_arrays(case, tensors)
    groups, splits = [], int(has_order(case))
    for g, part in enumerate(_problems(case)):
        if part.m and part.n:
            make = gemm.numpy_answer if part.k else _without_terms
            with _of_group(case, g):
                groups.append(make(case.part(g), inputs_of(case, tensors, g), splits)["output"])  # 2
    if groups and isinstance(groups[0], Interval):
        return {"output": Interval.joined(groups, partial(_below, case))}
    nothing = np.empty((0, 0 if case.problem.n_dims else case.problem.n), nvfp4.DTYPES[case.flags.dtype])
    return {"output": _below(case, [nothing, *groups])}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | Interval]:
    from harness.oracles import torch_grouped

    _require_arrays(case, tensors)
    dense = partial(gemm.torch_answer, splits=int(has_order(case)))
    return {"output": torch_grouped.grouped_product(case, tensors, dense)}


def _below(case: Case, groups: list[np.ndarray]) -> np.ndarray:
    """The outputs of groups one below the other, or flat where N differs."""
    return np.concatenate(groups if case.problem.n_dims is None else [group.reshape(-1) for group in groups])


def _problems(case: Case) -> list[Gemm]:
    return [case.problem.part(g) for g in range(len(case.problem.tensors))]


def has_order(case: Case) -> bool:
    """Whether the groups are small enough together to be summed again in the order of the kernel, which splits no K."""
    return may_be_ordered(case.terms)


def _without_terms(dense: Case, tensors: Mapping[str, np.ndarray], _: int) -> dict[str, np.ndarray | Interval]:
    """The output of a group with K = 0, where every sum is +0."""
    shape = (dense.rows, dense.problem.n)
    output = epilogue(dense, tensors, slice(None), np.zeros(shape, np.float32))
    if dense.input == "exact_sum":
        return {"output": output}
    return {"output": Interval(output, output.copy(), np.zeros(shape), np.zeros(shape), output.copy())}


def _has_slack(case: Case, name: str) -> bool:
    """Whether an array covers the whole allocation, also the part that belongs to no group."""
    if case.problem.by_k:
        return case.problem.capacity is not None and _is_flat(case, name)
    by_row = ("a_data", "a_scale_inv", "c") if case.flags.epilogue == "per_tensor" else _BY_ROW
    return case.problem.capacity is not None and name in by_row


def _entries(case: Case, name: str) -> int:
    """How many lines an array with slack has, or how many entries a flat one."""
    if not case.problem.by_k:
        return case.problem.m
    lines = case.problem.m if name.startswith("a_") else case.problem.n
    return (
        math.prod(layout.padded_shape(lines, case.cols // nvfp4.BLOCK)) if "scale" in name else lines * case.cols // 2
    )


def _allocated(array: np.ndarray, rows: int) -> np.ndarray:
    """Extend the array to `rows` with NaN, or with 0x7F in arrays of bytes."""
    value = 0x7F if array.dtype == np.uint8 else np.nan
    return np.concatenate([array, np.full((rows - len(array), *array.shape[1:]), value, array.dtype)])


def _is_flat(case: Case, name: str) -> bool:
    """Whether an array is flat because its lines differ in length between groups."""
    if case.problem.n_dims is not None:
        return True
    return case.flags.layout == "nt" and name.endswith(("_data", "_scale_inv"))


@lru_cache(maxsize=1)
def places(case: Case) -> tuple[dict[str, slice], ...]:
    """For each group, its slice of every array, before reshaping."""
    shapes = [gemm_operands.shapes(part) for part in case.parts]
    counts = [
        {name: math.prod(shape) if _is_flat(case, name) else shape[0] for name, shape in group.items()}
        for group in shapes
    ]
    ends = {name: list(accumulate(group[name] for group in counts)) for name in counts[0]}
    return tuple(
        {name: slice(end[g] - group[name], end[g]) for name, end in ends.items()} for g, group in enumerate(counts)
    )


def _stand_in(dense: Case) -> Case:
    """The group, or for an empty one a case with `_STAND_IN` in place of its zero extents."""
    return replace(dense, problem=Gemm(*(extent or _STAND_IN for extent in astuple(dense.problem))))


def _split(case: Case, given: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The high-precision arrays of every group."""
    parts = _problems(case)
    shapes = {
        "a": [gemm_flags.direction(case, "a").extents(part.m, part.k) for part in parts],
        "b": [gemm_flags.direction(case, "b").extents(part.n, part.k) for part in parts],
        "c": [(part.m, part.n) for part in parts],
        "bias": [(part.n,) for part in parts],
    }
    flat = case.problem.n_dims is not None
    cut = {}
    for name, array in given.items():
        ends = np.cumsum([math.prod(shape) if flat else shape[0] for shape in shapes[name]])
        cut[name] = [own.reshape(shape) for own, shape in zip(np.split(array, ends)[:-1], shapes[name], strict=True)]
    return [{name: own[g] for name, own in cut.items()} for g in range(len(parts))]


def _group_inputs(case: Case, g: int, own: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    dense = case.part(g)
    m, k, n = astuple(dense.problem)
    filled = {
        name: array if array.size else np.zeros([extent or _STAND_IN for extent in array.shape], array.dtype)
        for name, array in own.items()
    }
    with _of_group(case, g):
        made = gemm.inputs(_stand_in(dense), **filled)
    # An operand without elements has no codes and scales, and its amaxes are 0.
    empty = {name for name in made if not k and name[:2] in ("a_", "b_")}
    empty |= {name for name in made if not m and (name.startswith("a_") or name == "c")}
    empty |= {name for name in made if not n and (name.startswith("b_") or name in ("c", "bias"))}
    shapes = gemm_operands.shapes(dense)
    return made | {name: np.zeros(shapes[name], made[name].dtype) for name in empty}


@contextmanager
def _of_group(case: Case, g: int):
    """Add the number of the group to the sentence of a refusal."""
    try:
        yield
    except ContractError as error:
        raise ContractError(f"{case.recipe}: group {g}: {error}") from None


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """The shape of every array that the case reads, those of the extents left out."""
    last, found = places(case)[-1], {}
    for name, shape in gemm_operands.shapes(case.part(0)).items():
        lines = _entries(case, name) if _has_slack(case, name) else last[name].stop
        found[name] = (lines, *([] if _is_flat(case, name) else shape[1:]))
    return found


def _require_arrays(case: Case, tensors: Mapping[str, Any]) -> None:
    """Raise ContractError for arrays, from either library, that contradict the case."""
    refuse(case)
    gemm_operands.require_shapes(case, tensors, shapes(case))
    for name in case.problem.arrays:
        if name not in tensors:
            raise ContractError(f"{case.recipe}: {name} is missing; the kernel finds its groups by it")
    dims = [tensors[name].tolist() for name in EXTENTS]
    kind, group = case.flags.shape_representation, case.problem.group
    varying = case.problem.varying_multiple_of(kind)
    try:
        described = from_arrays(
            kind,
            len(group),
            group.logical(kind),
            *dims,
            varying_multiple_of=varying,
            capacity=group.capacity,
            product=True,
        )
        n_dims = integers("n_dims", len(group), tensors["n_dims"].tolist()) if case.problem.n_dims else ()
    except ContractError as error:
        raise ContractError(f"{case.recipe}: {error}") from None
    found, right = (
        [each.side(0), each.side(1), *own]
        for each, own in ((described, [n_dims]), (group, [case.problem.n_dims or ()]))
    )
    for g in range(len(group)):
        for name, what, one, other in zip(("first_dims", "last_dims", "n_dims"), _WHAT, found, right, strict=True):
            if one[g : g + 1] != other[g : g + 1]:
                raise ContractError(f"{case.recipe}: {name} has {one[g]} {what} for group {g}, and the case {other[g]}")
        with _of_group(case, g):
            gemm_operands.require_finite_factors(case.part(g), inputs_of(case, tensors, g))
