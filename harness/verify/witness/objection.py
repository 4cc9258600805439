"""One sentence about wrong inputs of a case."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.contract.case import Case
from harness.suite.stages import Stage, stages
from harness.verify.witness import amaxes, drawn, operands, packed

_AS_DRAWN = ("act_input", "c", "bias")  # `input` is drawn as x, or has the name of its stage


def to_inputs(
    case: Case,
    high_precision: Mapping[str, np.ndarray],
    again: Mapping[str, np.ndarray] | None,
    inputs: Mapping[str, np.ndarray],
) -> str:
    """A sentence about wrong inputs of the kernels, or an empty text.

    high_precision: the drawn tensors; again: the tensors drawn with another seed, or None
    inputs: the arrays that the kernels read, by parameter
    """
    with np.errstate(all="ignore"):
        return (
            drawn.objection(case, high_precision, again)
            or _changed(case, high_precision, inputs)
            or next((found for stage in stages(case) if (found := _misplaced(stage, inputs))), "")
            or amaxes.objection(case, inputs)
            or packed.objection(case, inputs)
            or operands.objection(case, high_precision, inputs)
        )


def _changed(case: Case, high_precision: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> str:
    """A sentence if a tensor that is read as drawn has other bytes than were drawn, or numbers behind them."""
    names = {"input": "x"} | {name: name for name in _AS_DRAWN} | {stage.name: stage.name for stage in stages(case)}
    for name, source in names.items():
        if name in inputs and source in high_precision:
            read, own = inputs[name], high_precision[source]
            if case.problem.capacity is not None:
                read, slack = read[: len(own)], read[len(own) :]
                if np.isfinite(slack).any():
                    return f"{name} has numbers behind its last tensor, where every entry must be NaN or inf"
            if read is not own and (read.dtype != own.dtype or not _same_bytes(read, own)):
                return f"{name} is not the tensor that was drawn"
    return ""


def _same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    one, other = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, other))
    return one.size == other.size and bool((one == other).all())


def _misplaced(stage: Stage, inputs: Mapping[str, np.ndarray]) -> str:
    """A sentence unless the group's extents and offsets describe tensors back to back with the case's extents."""
    of = f" of stage {stage.name}" if stage.name else ""
    own = stage.own(inputs)
    if "tensor_offsets" not in own:
        return f"the extents{of} are missing" if of and stage.case.is_group and not stage.given else ""
    start = 0
    for number, (rows, cols) in enumerate(stage.case.problem.tensors):
        place = tuple(int(own[name][number]) for name in ("tensor_offsets", "first_dims", "last_dims"))
        if place != (start, rows, cols):
            return f"tensor {number}{of} is said to start and to extend {place}; it must be {(start, rows, cols)}"
        start += rows * cols
    return "" if int(own["tensor_offsets"][-1]) == start else f"the last offset{of} must be {start}"
