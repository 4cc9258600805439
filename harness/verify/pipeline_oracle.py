"""The oracle of a pipeline, with the functions of an oracle module: the oracles of its stages, in order.

Each of the two oracles goes on with its own results, so that they are compared in every array of every stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles.by_recipe import oracle_of
from harness.suite.stage_checks import refuse_stages, stage_fields
from harness.suite.stages import stages
from harness.verify.torch_calls import ask_torch, fastest_device

if TYPE_CHECKING:
    import torch


def refuse(case: Case) -> None:
    """Raise ContractError, with the stage, for what a recipe refuses and for operands that do not fit."""
    refuse_stages(case, stages(case))


def outputs(case: Case) -> dict[str, Field]:
    """The fields of all stages that are run, by names like `x.rowwise_data`."""
    refuse(case)
    run = (stage for stage in stages(case) if not stage.given)
    return {key: field for stage in run for key, field in stage.keyed(stage_fields(stage)).items()}


def inputs(case: Case, **high_precision: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that the first kernels read: tensors by the names of their stages, and outputs of given stages.

    high_precision: (rows, cols) of every stage that quantizes one, by its name
    """
    refuse(case)
    found: dict[str, np.ndarray] = {}
    for stage in stages(case):
        if stage.draws:
            tensors = oracle_of(stage.case.recipe).inputs(stage.case, high_precision[stage.name])
            if stage.given:
                # By torch, because NumPy would take a minute for the largest.
                tensors = ask_torch(oracle_of(stage.case.recipe), stage.case, tensors, fastest_device())
            found |= stage.keyed(tensors)
    return found


def numpy_oracle(case: Case, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What `outputs(case)` must hold, by the NumPy oracles of the stages."""
    return _ask_stages("numpy_oracle", case, tensors)


def torch_oracle(case: Case, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """As `numpy_oracle` by their torch oracles, on the device the tensors are on."""
    return _ask_stages("torch_oracle", case, tensors)


def _ask_stages(function: str, case: Case, tensors: Mapping[str, Any]) -> dict[str, Any]:
    refuse(case)
    found: dict[str, Any] = {}
    for stage in stages(case):
        if not stage.given:
            ask = getattr(oracle_of(stage.case.recipe), function)
            found |= stage.keyed(ask(stage.case, {**stage.own(tensors), **stage.read({**tensors, **found})}))
    return found
