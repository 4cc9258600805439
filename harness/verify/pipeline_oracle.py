"""The oracle of a pipeline: its stages' own, in order, with the functions that an oracle module has.

Each witness goes on with what it found itself, so that two of them meet in every array of every stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles.by_recipe import oracle_of
from harness.suite.stage_refusals import refuse_stages, stage_fields
from harness.suite.stages import Stage, stages
from harness.verify.torch_calls import ask_torch, fastest_device

if TYPE_CHECKING:
    import torch


def refuse(case: Case) -> None:
    """Raise ContractError, with the stage, for what one of its recipes refuses, and for operands that do not fit."""
    refuse_stages(case, stages(case))


def outputs(case: Case) -> dict[str, Field]:
    """What every stage writes that is not given, `x.rowwise_data` for one."""
    refuse(case)
    made = (stage for stage in stages(case) if not stage.given)
    return {key: field for stage in made for key, field in stage.keyed(stage_fields(stage)).items()}


def inputs(case: Case, **high_precision: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that the first kernels read: tensors by the names of their stages, and all that given stages wrote.

    high_precision: (rows, cols) of every stage that quantizes one, by its name
    """
    refuse(case)
    found: dict[str, np.ndarray] = {}
    for stage in stages(case):
        if stage.draws:
            tensors = oracle_of(stage.case.recipe).inputs(stage.case, high_precision[stage.name])
            found |= stage.keyed(_given(stage, tensors) if stage.given else tensors)
    return found


def numpy_oracle(case: Case, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What `outputs(case)` must hold, by the NumPy oracles of the stages."""
    return _answers(case, tensors, lambda stage, read: oracle_of(stage.case.recipe).numpy_oracle(stage.case, read))


def torch_oracle(case: Case, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The same by their torch oracles, on the device the tensors are on."""
    return _answers(case, tensors, lambda stage, read: oracle_of(stage.case.recipe).torch_oracle(stage.case, read))


def _answers(
    case: Case, tensors: Mapping[str, Any], ask: Callable[[Stage, dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    refuse(case)
    found: dict[str, Any] = {}
    for stage in stages(case):
        if not stage.given:
            found |= stage.keyed(ask(stage, {**stage.own(tensors), **stage.read({**tensors, **found})}))
    return found


def _given(stage: Stage, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What a stage wrote beforehand; by torch, because the largest would take a minute otherwise."""
    return ask_torch(oracle_of(stage.case.recipe), stage.case, tensors, fastest_device())
