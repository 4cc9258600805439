"""grouped: up to 64 tensors in one launch, each with the bytes it has alone. NUMERICS section 8.

The tensors of the input and of every output lie back to back, each with the padding it has alone. Float32; RN marks
every rounding, to nearest even. For each tensor g:
  1. v = f32(grad); with an activation v = RN(f32(grad) * d(f32(act_input))), d by `activations`; with swiglu or
     dswiglu v by `activations.gated`
  2. dbias, for each column: from +0, sum = RN(sum + v) down each 128 rows; from +0, total = RN(total + sum) over these
     sums in order; then cast to the input's dtype, which rounds to nearest even. stage=encode writes none.
  3. the recipe named by `recipe` makes everything else of v cast to the input's dtype, amax included
     Random bits take the group's seed and the offset plus g.
The group may be a part of its allocations. What lies behind it is NaN and inf in inputs, and is not written in outputs.
An empty tensor has no bytes; its amaxes, as many as its extents call for, and its dbias are 0.
stage=encode is given the amaxes of all tensors, back to back; of per_tensor without rht also, by `amax`, one for all
tensors (`shared`: the largest here), or rowwise ones alone (`rowwise`), which are the columnwise ones, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contract.case import OWN, Case
from harness.contract.field import Field
from harness.contract.group_arrays import from_arrays
from harness.contract.group_shape import ShapeRepresentation
from harness.contract.problem import Dense, Grouped
from harness.errors import ContractError
from harness.oracles import (
    activations,
    four_over_six,
    layout,
    local_1x64,
    nvfp4,
    per_tensor,
    per_token,
    quantizer,
    row_scaled,
)

if TYPE_CHECKING:
    import torch

RECIPES: dict[str, ModuleType] = {
    "per_tensor": per_tensor,
    "per_token": per_token,
    "row_scaled": row_scaled,
    "local_1x64": local_1x64,
    "four_over_six": four_over_six,
}
# recipes by which sources quantize splits of one tensor, with nothing fused in front
SPLIT = ("row_scaled", "local_1x64", "four_over_six")
# of extents, as dense
MULTIPLES = {"per_tensor": 16, "per_token": 16, "row_scaled": 16, "local_1x64": 64, "four_over_six": 16}
IN_16X16 = ("per_tensor", "four_over_six")  # recipes whose weights are groups in 16x16 blocks
SHARED, ROWWISE_ALONE = "shared", "rowwise"  # forms of given amaxes, beside `each`
OWN_FLAGS = {"error": "mae", "e4m3_max": OWN, "error_math": "exact", "row_scaled": False}  # four_over_six's
ROWS_STAY_APART = (ShapeRepresentation.SAME_BOTH_DIMS, ShapeRepresentation.VARYING_FIRST_DIM)


def refuse(case: Case) -> None:
    flags = case.flags
    if flags.recipe not in RECIPES:
        raise ContractError(f"{case.recipe}: recipe must be {' or '.join(RECIPES)}, not {flags.recipe}")
    if flags.recipe != "per_tensor":
        quantizer.require(case, "fast_math", False, "only per_tensor has it")
    if flags.recipe != "four_over_six":
        for name, value in OWN_FLAGS.items():
            quantizer.require(case, name, value, "only four_over_six has it")
    if flags.block != "block_1x16":
        if flags.recipe not in IN_16X16:
            raise ContractError(
                f"{case.recipe}: block must be block_1x16 with recipe={flags.recipe}; {' and '.join(IN_16X16)} have "
                "groups of weights in 16x16 blocks"
            )
        quantizer.require(case, "block", "block_16x16", "there is no other block of weights")
        for name, value in {"dbias": False, "activation": "none", "rounding": "rne"}.items():
            quantizer.require(
                case, name, value, "16x16 blocks are those of weights, which are rounded to nearest as they are"
            )
    if flags.recipe in SPLIT:
        quantizer.require(case, "dbias", False, f"{flags.recipe} is defined on splits of a tensor as it is")
        quantizer.require(case, "activation", "none", f"{flags.recipe} is defined on splits of a tensor as it is")
    if flags.recipe == "local_1x64":
        quantizer.require(case, "stage", "full", "one read of a window finds its amax and encodes it")
    quantizer.require_one_of(case, "activation", ("none", *activations.DERIVATIVES, *activations.GATED))
    if flags.activation in activations.GATED:
        quantizer.require(case, "recipe", "per_tensor", f"no source of another has {flags.activation} in front of it")
        quantizer.require(case, "dbias", False, "sources sum the gradients of activations with one input")
    activations.refuse_gated(case)
    if flags.shape_representation not in ROWS_STAY_APART:
        because = "with a varying last dim the tensors share no columns to sum or to derive"
        quantizer.require(case, "dbias", False, because)
        quantizer.require(case, "activation", "none", because)
    if flags.stage == "encode":
        quantizer.require(case, "dbias", False, "the read that finds the amaxes sums it, and stage=encode begins after")
    if flags.amax != "each":
        quantizer.require_one_of(case, "amax", ("each", SHARED, ROWWISE_ALONE))
        quantizer.require(case, "stage", "encode", "the other stages find the amax of each tensor")
        for name, value in {"recipe": "per_tensor", "rht": False, "activation": "none"}.items():
            quantizer.require(case, name, value, "only an encode of per_tensor as it is has other forms of amaxes")
        if flags.amax == ROWWISE_ALONE and flags.outputs == "rowwise":
            raise ContractError(f"{case.recipe}: amax=rowwise is for a columnwise output, and outputs=rowwise has none")
    recipe, tile = RECIPES[flags.recipe], layout.TILE_ROWS
    recipe.refuse(replace(case, problem=Grouped(tile, tile, ((tile, tile),))).part(0))
    quantizer.require_group(case, flags.shape_representation, MULTIPLES[flags.recipe])


def outputs(case: Case) -> dict[str, Field]:
    """The fields of the recipe, each flat and with its tensors as parts; `dbias` is (num_tensors, cols)."""
    refuse(case)
    of_tensors, entries = [_fields(case, case.part(g)) for g in range(len(case.problem.tensors))], _entries(case)
    fields = {}
    for name in of_tensors[0]:
        parts = [fields[name] for fields in of_tensors]
        own = sum(part.size for part in parts)
        fields[name] = Field.joined(parts, slack=entries.get(name, own) - own)
    if case.flags.dbias:
        dtype = nvfp4.DTYPES[case.flags.dtype].name
        parts = [Field((cols,), dtype, block=(1, rows), transposed=True) for rows, cols in case.problem.tensors]
        fields["dbias"] = Field.joined(parts, (len(parts), case.cols))
    return fields


def inputs(case: Case, x: np.ndarray, act_input: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """`input`, `act_input`, `tensor_offsets` (num_tensors + 1,), `first_dims` and `last_dims` (num_tensors,) int64.

    For stage=encode the amaxes, too, float32, flat. What the allocation has beyond the tensors is NaN and inf.

    x: (elements,) gradients or values, the tensors back to back; act_input alike, only with an activation; for swiglu
        and dswiglu as `activations.gated_inputs` takes them
    """
    refuse(case)
    shape, activation = case.problem.group, case.flags.activation
    read = {"input": x} | ({"act_input": act_input} if activation != "none" else {})
    if activation in activations.GATED:
        parts = [
            activations.gated_inputs(activation, *(array[here].reshape(extents) for array in (x, act_input)))
            for here, extents in zip(_places(case), case.problem.tensors, strict=True)
        ]
        read = {name: np.concatenate([part[name].reshape(-1) for part in parts]) for name in parts[0]}
    sizes = {"input": activations.input_elements(case, shape.allocated), "act_input": shape.allocated}
    tensors = {name: _allocated(array, sizes[name]) for name, array in read.items()} | shape.arrays
    if case.flags.stage == "encode":
        amaxes, fields = numpy_oracle(_amax_case(case), tensors), given_fields(case)
        if case.flags.amax == SHARED:
            amaxes = {name: amax.max(keepdims=True) for name, amax in amaxes.items()}
        tensors |= {name: _allocated(amaxes[name], field.size + field.slack) for name, field in fields.items()}
    return tensors


def inputs_of(case: Case, tensors: Mapping[str, np.ndarray], g: int) -> dict[str, np.ndarray]:
    """The arrays that the recipe of tensor g reads in step 3: `input` (rows, cols), and for stage=encode its amaxes."""
    return _given(case, g, tensors, _activated(case, g, tensors))


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    _require_arrays(case, tensors)
    fields = outputs(case)
    parts = [_numpy_part(case, g, tensors) for g in range(len(case.problem.tensors))]
    return {
        name: np.concatenate([part[name].reshape(-1) for part in parts]).reshape(field.shape)
        for name, field in fields.items()
    }


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_grouped

    _require_arrays(case, tensors)
    return torch_grouped.grouped(case, tensors, RECIPES[case.flags.recipe].torch_oracle, _granularity(case))


def _numpy_part(case: Case, g: int, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Steps 1 to 3 of tensor g."""
    v = _activated(case, g, tensors)  # 1
    part = {}
    if case.flags.dbias:
        part["dbias"] = nvfp4.convert(activations.bias_gradient(v), case.flags.dtype)  # 2
    if not v.size:
        return part | {name: np.zeros(field.shape, field.dtype) for name, field in _fields(case, case.part(g)).items()}
    module = RECIPES[case.flags.recipe]
    return part | module.numpy_oracle(case.part(g), _given(case, g, tensors, v))  # 3


def _activated(case: Case, g: int, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Step 1 of tensor g, (rows, cols) float32."""
    activation, here, extents = case.flags.activation, _places(case)[g], case.problem.tensors[g]
    act_input = tensors["act_input"][here] if "act_input" in tensors else None
    if activation not in activations.GATED:
        return activations.activated(activation, tensors["input"][here], act_input).reshape(extents)
    own = slice(*(activations.input_elements(case, end) for end in (here.start, here.stop)))
    rows, cols = extents
    read = {"input": tensors["input"][own].reshape(rows, activations.input_elements(case, cols))}
    if act_input is not None:
        read["act_input"] = act_input.reshape(extents)
    return activations.gated(activation, read, case.flags.dtype).astype(np.float32)


def _places(case: Case) -> list[slice]:
    """Where each tensor lies among the elements of all."""
    return [slice(*map(int, ends)) for ends in pairwise(case.problem.group.tensor_offsets)]


def _given(case: Case, g: int, tensors: Mapping[str, np.ndarray], v: np.ndarray) -> dict[str, np.ndarray]:
    given = given_fields(case)
    amaxes = {name: field.part(tensors[name], g) if field.parts else tensors[name] for name, field in given.items()}
    if given and case.flags.amax == ROWWISE_ALONE:
        amaxes["columnwise_amax"] = amaxes["rowwise_amax"]
    return {"input": nvfp4.convert(v, case.flags.dtype), **amaxes}


def _fields(case: Case, dense: Case) -> dict[str, Field]:
    """The fields of one tensor alone; for an empty one, the fields of its recipe with empty extents."""
    recipe = RECIPES[case.flags.recipe]
    if dense.elements:
        return recipe.outputs(dense)
    return quantizer.outputs(replace(dense, flags=dense.flags.replace(block="block_1x16")), _granularity(case))


def _granularity(case: Case) -> str:
    """The extent that has an amax of its own: `tensor`, `row` (a line) or `window`."""
    if case.flags.recipe == "four_over_six":
        return "row" if case.flags.row_scaled else "tensor"
    return RECIPES[case.flags.recipe].GRANULARITY


def _entries(case: Case) -> dict[str, int]:
    """The entries of each field's allocation, if that has a capacity: the table of NUMERICS 8.5.

    Amaxes of whole tensors, and of columns if all tensors have the same, exist for every tensor and have no slack.
    """
    if case.problem.capacity is None:
        return {}
    (rows, cols), by, tile = case.problem.lines, case.problem.splits_by, layout.TILE_ROWS
    both_vary = case.flags.shape_representation == ShapeRepresentation.VARYING_BOTH_DIMS
    # The most lines that the tensors of a split have together, each rounded up to a whole tile
    padded = rows + (rows * (tile // by - 1) if both_vary else len(case.problem.tensors) * (tile - by) // tile * tile)
    fields, of_padded = (_fields(case, replace(case.part(0), problem=Dense(lines, cols))) for lines in (rows, padded))
    fields |= {name: field for name, field in of_padded.items() if name == "rowwise_scale_inv"}
    granularity = _granularity(case)
    in_windows = granularity == "window"
    entries = {name: field.size for name, field in fields.items() if in_windows or not name.endswith("amax")}
    if granularity == "row":
        entries |= {"rowwise_amax": rows} | ({"columnwise_amax": rows} if both_vary else {})
    return entries


def _allocated(array: np.ndarray, entries: int) -> np.ndarray:
    """A flat array at the start of an allocation that holds NaN and inf otherwise: a maximum may pass over a NaN."""
    if array.size == entries:
        return array
    slack = np.full(entries - array.size, np.nan, array.dtype)
    slack[::2] = np.inf
    return np.concatenate([array, slack])


def _amax_case(case: Case) -> Case:
    flags = case.flags.replace(stage="amax", dbias=False, amax="each")
    return replace(case, flags=flags.replace(outputs="rowwise") if case.flags.amax == ROWWISE_ALONE else flags)


def given_fields(case: Case) -> dict[str, Field]:
    """The amax fields that stage=encode reads. One amax for all tensors has no part for each."""
    fields = outputs(_amax_case(case)) if case.flags.stage == "encode" else {}
    if case.flags.amax == SHARED:
        return {name: Field((1,), field.dtype) for name, field in fields.items()}
    return fields


def _require_arrays(case: Case, tensors: Mapping[str, Any]) -> None:
    """Raise ContractError for arrays, from either library, that contradict the case."""
    refuse(case)
    shape, flags = case.problem.group, case.flags
    lengths = {"input": (activations.input_elements(case, shape.allocated),)}
    if flags.activation not in ("none", activations.SWIGLU):
        lengths["act_input"] = (shape.allocated,)
    lengths |= {name: (field.size + field.slack,) for name, field in given_fields(case).items()}
    for name, right in lengths.items():
        if tensors.get(name) is None:
            raise ContractError(f"{case.recipe}: {name} is missing; this case reads it")
        if tuple(tensors[name].shape) != right:
            raise ContractError(
                f"{case.recipe}: {name} must have the shape {right}, its tensors back to back, "
                f"not {tuple(tensors[name].shape)}"
            )
    dims = (tensors[name].tolist() for name in ("first_dims", "last_dims", "tensor_offsets"))
    logical = shape.logical(flags.shape_representation)
    described = from_arrays(
        flags.shape_representation, len(shape), logical, *dims, MULTIPLES[flags.recipe],
        capacity=shape.capacity, splits_by=shape.splits_by,
    )  # fmt: skip
    for g, ((rows, cols), expected) in enumerate(zip(described.tensors, shape.tensors, strict=True)):
        if (rows, cols) != expected:
            right = "x".join(map(str, expected))
            raise ContractError(f"{case.recipe}: the dims say tensor {g} is {rows}x{cols}, and the case says {right}")
