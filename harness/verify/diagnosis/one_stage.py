"""One stage of a pipeline as a case of its own recipe: what it read, owed and wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.suite.stages import Stage, stages
from harness.verify.pipeline_oracle import fitted, shaped


def writer(case: Case, field: str) -> Stage:
    """The stage that writes a field of the pipeline; of any other case itself."""
    return next(stage for stage in stages(case) if not stage.given and field.startswith(stage.key("")))


def inputs(stage: Stage, tensors: Mapping[str, np.ndarray], answers: Mapping[str, Any]) -> dict[str, Any]:
    """What the stage reads, by its own parameters.

    tensors: what the pipeline reads
    answers: what its stages must write, which later ones read; of an interval, which none of them reads, nothing
    """
    written = {name: array for name, array in answers.items() if not isinstance(array, Interval)}
    return {**stage.own(tensors), **shaped(fitted(stage), stage.read({**written, **tensors}))}


def spelled(stage: Stage) -> str:
    """`x, per_tensor/rht=true/128x256`"""
    return f"{stage.name}, {stage.case.recipe}/{stage.case.variant}/{stage.case.shape}"
