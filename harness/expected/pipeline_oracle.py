"""The oracle of a pipeline, with the functions of an oracle module: the oracles of its stages, in order.

Each of the two oracles continues with its own results, so that they are compared in every array of every stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.problem import GroupedGemm
from harness.expected.torch_calls import ask_torch, fastest_device
from harness.oracles.by_recipe import oracle_of
from harness.suite.stage_checks import refuse_stages, stage_fields
from harness.suite.stages import Stage, stages

if TYPE_CHECKING:
    import torch

NAN_BYTE = 0x7F  # a NaN as an e4m3 scale


def refuse(case: Case) -> None:
    """Raise ContractError, with the stage, for what a recipe refuses and for operands that do not fit."""
    refuse_stages(case, stages(case))


def outputs(case: Case) -> dict[str, Field]:
    """The fields of all stages that run, by names like `x.rowwise_data`."""
    refuse(case)
    run = (stage for stage in stages(case) if not stage.given)
    return {key: field for stage in run for key, field in stage.keyed(stage_fields(stage)).items()}


def inputs(case: Case, **high_precision: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that the first kernels read: tensors by the names of their stages, and outputs of given stages.

    high_precision: (rows, cols) of every stage that quantizes one, by its name; what products add, as `y.bias`
    """
    refuse(case)
    found: dict[str, np.ndarray] = {}
    for stage in stages(case):
        if stage.draws:
            tensors = oracle_of(stage.case.recipe).inputs(stage.case, high_precision[stage.name])
            if stage.given:
                # By torch, because NumPy takes a minute for the largest cases.
                tensors = _given(stage, ask_torch(oracle_of(stage.case.recipe), stage.case, tensors, fastest_device()))
            found |= stage.keyed(tensors)
        elif stage.case.is_group:
            found |= stage.keyed(stage.case.problem.arrays)
        found |= {key: high_precision[key] for key in stage.added.values()}
    return found


def numpy_oracle(case: Case, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The expected bytes of `outputs(case)`, by the NumPy oracles of the stages."""
    return _ask_stages("numpy_oracle", case, tensors)


def torch_oracle(case: Case, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The expected bytes of `outputs(case)`, by the torch oracles of the stages, on the tensors' device."""
    return _ask_stages("torch_oracle", case, tensors)


def _ask_stages(function: str, case: Case, tensors: Mapping[str, Any]) -> dict[str, Any]:
    refuse(case)
    found: dict[str, Any] = {}
    for stage in stages(case):
        if not stage.given:
            ask = getattr(oracle_of(stage.case.recipe), function)
            read = stage.read({**tensors, **found})
            alone = fitted(stage)
            found |= stage.keyed(ask(alone, {**stage.select(tensors), **shaped(alone, read)}))
    return found


def fitted(stage: Stage) -> Case:
    """The stage for its oracles: a grouped product without capacity, because quantizers' oracles write only groups."""
    problem = stage.case.problem
    return replace(stage.case, problem=problem.fitted) if isinstance(problem, GroupedGemm) else stage.case


def shaped(case: Case, read: Mapping[str, Any]) -> dict[str, Any]:
    """Reshape the operands of a grouped product, which quantizers write flat, to the shapes that the product reads.

    What lies behind the groups is dropped. For any other case the arrays, of either library, are returned unchanged.
    """
    if not isinstance(case.problem, GroupedGemm):
        return dict(read)
    shapes = oracle_of(case.recipe).shapes(case)
    return {name: array.reshape(-1)[: prod(shapes[name])].reshape(shapes[name]) for name, array in read.items()}


def _given(stage: Stage, made: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A given stage's outputs, each at the start of an allocation whose rest holds no numbers."""
    fields = stage_fields(stage)
    return {name: allocated(array, fields[name].slack) for name, array in made.items()}


def allocated(array: np.ndarray, slack: int) -> np.ndarray:
    """The array, flat, with `slack` entries behind it: NaN, or 0x7F for bytes."""
    if not slack:
        return array
    value = NAN_BYTE if array.dtype == np.uint8 else np.nan
    return np.concatenate([array.reshape(-1), np.full(slack, value, array.dtype)])
