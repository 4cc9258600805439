"""One stage of a pipeline as a case of its own recipe, with its inputs, its expected and its actual outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.suite.stages import Stage, stages
from harness.verify.pipeline_oracle import fitted, shaped


def writer(case: Case, field: str) -> Stage:
    """The stage that writes a field of a pipeline; any other case is its own single stage."""
    return next(stage for stage in stages(case) if not stage.given and field.startswith(stage.key("")))


def inputs(stage: Stage, tensors: Mapping[str, np.ndarray], answers: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that the stage reads, by its own parameters.

    tensors: the arrays that the pipeline reads
    answers: the expected outputs of stages, which later stages read; no stage reads a field with an interval
    """
    written = {name: array for name, array in answers.items() if not isinstance(array, Interval)}
    return {**stage.own(tensors), **shaped(fitted(stage), stage.read({**written, **tensors}))}


def spelled(stage: Stage) -> str:
    """Text such as `x, per_tensor/rht=true/128x256`."""
    return f"{stage.name}, {stage.case.recipe}/{stage.case.variant}/{stage.case.shape}"
