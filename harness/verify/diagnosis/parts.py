"""A part of a case as one of its own: a stage of a pipeline, or a tensor of a group, with its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval
from harness.errors import UsageError
from harness.expected.expected import oracle_of
from harness.expected.pipeline_oracle import fitted, shaped
from harness.oracles import activations
from harness.suite.stages import Stage, stages

Arrays = Mapping[str, np.ndarray]


def writer(case: Case, field: str) -> Stage:
    """The stage that writes a field of a pipeline; any other case is its own single stage."""
    return next(stage for stage in stages(case) if not stage.given and field.startswith(stage.key("")))


def inputs_of_stage(stage: Stage, tensors: Arrays, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that the stage reads, by its own parameters.

    tensors: the arrays that the pipeline reads
    answers: the expected outputs of stages, which later stages read; no stage reads a field with an interval
    """
    written = {name: array for name, array in answers.items() if not isinstance(array, Interval)}
    return {**stage.select(tensors), **shaped(fitted(stage), stage.read({**written, **tensors}))}


def activated(case: Case, tensors: Arrays) -> tuple[Case, Arrays]:
    """A dense case with an activation as the case that quantizes what it gives, and its inputs; any other as it is."""
    if case.is_group or case.is_gemm or case.flags.get("activation", "none") == "none":
        return case, tensors
    plain = replace(case, flags=case.flags.replace(activation="none"), seed_of=case.seed_name)
    return plain, {**tensors, "input": activations.quantized(case, tensors)}


def stage_spelled(stage: Stage) -> str:
    """Text such as `x, per_tensor/rht=true/128x256`."""
    return f"{stage.name}, {stage.case.recipe}/{stage.case.variant}/{stage.case.shape}"


def tensor_spelled(case: Case, number: int) -> str:
    """Text such as `3 of 5, 256x512`; the first tensor, or group of a GEMM, is 0."""
    return f"{number} of {len(case.problem.tensors)}, {case.part(number).shape}"


def require_elements(case: Case, number: int) -> None:
    """Raise UsageError unless the group has this tensor and it holds something."""
    if not 0 <= number < len(case.problem.tensors):
        raise UsageError(f"{case.id} has no tensor {number}; its {len(case.problem.tensors)} tensors count from 0")
    if 0 in (*case.problem.tensors[number], *case.part(number).problem.grid_extents[0]):
        raise UsageError(f"tensor {tensor_spelled(case, number)}, of {case.id} has no elements")


def fields_of_tensor(fields: Mapping[str, Field], number: int) -> dict[str, Field]:
    return {name: field.parts[number] for name, field in fields.items()}


def cut(fields: Mapping[str, Field], arrays: Mapping[str, Demand], number: int) -> dict[str, Demand]:
    """The tensor's part of every array, or interval, of a group; fields without an array are left out."""
    return {name: _part(field, arrays[name], number) for name, field in fields.items() if name in arrays}


def _part(field: Field, array: Demand, number: int) -> Demand:
    if isinstance(array, Interval):
        return array.map(lambda end: field.part(end, number))
    return field.part(array, number)


def inputs_of_tensor(case: Case, tensors: Arrays, number: int) -> dict[str, np.ndarray]:
    """The dense recipe's inputs for this tensor, or this group of a GEMM, from the group's oracle."""
    return oracle_of(case.recipe).inputs_of(case, tensors, number)
