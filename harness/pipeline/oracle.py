"""The oracle of a pipeline: its stages' own, in order, with the functions that an oracle module has.

Each witness goes on with what it found itself, so that two of them meet in every array of every stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.case import Case, spell
from harness.errors import ContractError
from harness.oracles import gemm_operands, gemm_packed
from harness.pipeline import Stage, stages
from harness.tensor import Field, QuantizedTensor

if TYPE_CHECKING:
    import torch


def refuse(case: Case) -> None:
    """Raise ContractError, with the stage, for what one of its recipes refuses, and for operands that do not fit."""
    refuse_stages(case, stages(case))


def refuse_stages(case: Case, found: Sequence[Stage]) -> None:
    """The same of a case whose stages are known."""
    if case.input in gemm_packed.INPUTS:
        raise ContractError(
            f"{case.recipe}: {case.input} is drawn as the bytes of operands, and a pipeline quantizes its own"
        )
    made: dict[str, Stage] = {}
    for stage in found:
        try:
            _refuse(stage, made)
        except ContractError as error:
            raise ContractError(f"{case.recipe}: stage {stage.name}: {error}") from None
        made[stage.name] = stage


def outputs(case: Case) -> dict[str, Field]:
    """What every stage writes that is not given, `x.rowwise_data` for one."""
    refuse(case)
    made = (stage for stage in stages(case) if not stage.given)
    return {key: field for stage in made for key, field in stage.keyed(_fields(stage)).items()}


def inputs(case: Case, **high_precision: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that the first kernels read: tensors by the names of their stages, and all that given stages wrote.

    high_precision: (rows, cols) of every stage that quantizes one, by its name
    """
    refuse(case)
    found: dict[str, np.ndarray] = {}
    for stage in stages(case):
        if stage.draws:
            tensors = _oracle(stage).inputs(stage.case, high_precision[stage.name])
            found |= stage.keyed(_given(stage, tensors) if stage.given else tensors)
    return found


def numpy_oracle(case: Case, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What `outputs(case)` must hold, by the NumPy oracles of the stages."""
    return _answers(case, tensors, lambda stage, read: _oracle(stage).numpy_oracle(stage.case, read))


def torch_oracle(case: Case, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The same by their torch oracles, on the device the tensors are on."""
    return _answers(case, tensors, lambda stage, read: _oracle(stage).torch_oracle(stage.case, read))


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
    # Imported here because that module asks this one.
    from harness.expectation import ask_torch, fastest_device

    return ask_torch(stage.case, tensors, fastest_device())


def _refuse(stage: Stage, made: Mapping[str, Stage]) -> None:
    from harness.suite import shapes, suite_of

    case, suite = stage.case, suite_of(stage.case.recipe)
    reason = suite.refusal(case.flags)
    if reason is not None:
        raise ContractError(f"{case.recipe} excludes {case.variant}: {reason}")
    problem = shapes.case_problem(suite.file, case.shape, case.flags)
    if problem is not None:
        raise ContractError(f"{case.recipe}: {problem}")
    _oracle(stage).refuse(case)
    if not stage.draws:
        a, b = (_copy(made, stage.reads[f"{name}_data"]) for name in "ab")
        gemm_operands.bind(case, _tensor(*a), _tensor(*b))
        _refuse_rotations(a, b)


def _copy(made: Mapping[str, Stage], data: str) -> tuple[Stage, str]:
    """The stage that writes `x.rowwise_data`, and its side."""
    name, _, field = data.partition(".")
    return made[name], field.removesuffix("_data")


def _tensor(stage: Stage, side: str) -> QuantizedTensor:
    """What a stage makes, with fields in place of arrays: a GEMM can tell by them whether it takes that copy."""
    fields = _fields(stage)
    amax, scale_inv = (fields.get(f"{side}_{part}") for part in ("amax", "scale_inv"))
    return QuantizedTensor(
        stage.case.recipe,
        stage.case.rows,
        stage.case.cols,
        fields,
        {(1,): "tensor"}.get(amax.shape, "row" if len(amax.shape) == 1 else "window") if amax else "no amax",
        stage.case.flags.get("e4m3_max", 448),
        "swizzled" if scale_inv and scale_inv.swizzled else "compact",
    )


def _refuse_rotations(*copies: tuple[Stage, str]) -> None:
    """A rotation cancels only against the same one of the other operand."""
    turned = [_rotation(*copy) for copy in copies]
    if turned[0] != turned[1]:
        (a, _), (b, _) = copies
        raise ContractError(
            f"operand A, {a.name}, is {turned[0]} and operand B, {b.name}, is {turned[1]}; both or neither must be "
            "rotated, with the same sign_mask"
        )


def _rotation(source: Stage, side: str) -> str:
    flags = source.case.flags
    rotated = flags.get("rht", False) and side == "columnwise"
    return f"rotated with sign_mask {spell(flags.sign_mask)}" if rotated else "not rotated"


def _fields(stage: Stage) -> dict[str, Field]:
    return _oracle(stage).outputs(stage.case)


def _oracle(stage: Stage):
    return import_module(f"harness.oracles.{stage.case.recipe}")
