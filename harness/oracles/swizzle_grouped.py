"""swizzle_grouped: the scale bytes of up to 64 tensors into 128x4 tiles, or back, in one launch. NUMERICS 1.7 and 8.1.

  1. each tensor's matrix is moved as `swizzle` moves it
The matrices lie back to back, each with the padding it has alone; an empty tensor has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.errors import ContractError
from harness.oracles import layout, nvfp4, quantizer, swizzle

if TYPE_CHECKING:
    import torch


def refuse(case: Case) -> None:
    flags = case.flags
    if flags.recipe != "swizzle":
        raise ContractError(f"{case.recipe}: recipe must be swizzle, not {flags.recipe}")
    quantizer.require_group(case, flags.shape_representation, nvfp4.BLOCK)


def outputs(case: Case) -> dict[str, Field]:
    """`swizzled_scale_inv`, or `scale_inv`: flat u8, the matrix of each tensor as a part."""
    return _joined(case, case.flags.to == "swizzled")


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`scale_inv`, or `swizzled_scale_inv`: what per_tensor makes of each tensor as bf16, flat u8.

    `tensor_offsets` (num_tensors + 1,) counts elements; `first_dims` and `last_dims` (num_tensors,) int64.

    x: (elements,) the tensors back to back
    """
    (name,), shape, parts = _joined(case, case.flags.to == "compact"), case.problem.group, []
    for g, extents in enumerate(case.problem.tensors):
        if 0 not in extents:
            here = slice(shape.tensor_offsets[g], shape.tensor_offsets[g + 1])
            parts.append(swizzle.inputs(case.part(g), x[here].reshape(extents))[name].reshape(-1))
    scales = np.concatenate([np.empty(0, np.uint8), *parts])
    return {name: scales, **shape.arrays}


def inputs_of(case: Case, tensors: Mapping[str, Any], g: int) -> dict[str, Any]:
    """The array of tensor g that `swizzle` reads, from either library."""
    ((name, field),) = _joined(case, case.flags.to == "compact").items()
    return {name: field.part(tensors[name], g)}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    ((name, field),) = outputs(case).items()
    moved = [swizzle.numpy_oracle(case.part(g), inputs_of(case, tensors, g))[name] for g in _filled(case)]  # 1
    return {name: np.concatenate([np.empty(0, np.uint8), *(part.reshape(-1) for part in moved)]).reshape(field.shape)}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_layout

    refuse(case)
    return torch_layout.move_group(
        tensors, case.problem.tensors, case.flags.direction == "columnwise", case.flags.to == "swizzled"
    )


def _filled(case: Case) -> list[int]:
    return [g for g, extents in enumerate(case.problem.tensors) if 0 not in extents]


def _joined(case: Case, swizzled: bool) -> dict[str, Field]:
    refuse(case)
    direction = layout.DIRECTIONS[case.flags.direction]
    parts = [layout.scale_field(*extents, direction, "block_1x16", swizzled) for extents in case.problem.tensors]
    return {swizzle.field_name(swizzled): Field.joined(parts)}
