"""What a pipeline refuses: what one of its recipes refuses, and operands that a product cannot take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.contract.case import Case, spell
from harness.contract.field import Field, QuantizedTensor
from harness.errors import ContractError
from harness.oracles import gemm_operands, gemm_packed
from harness.oracles.by_recipe import oracle_of
from harness.suite import shapes
from harness.suite.flag_values import refusal
from harness.suite.stages import Stage
from harness.suite.written import file_of


def refuse_stages(case: Case, found: Sequence[Stage]) -> None:
    """Raise ContractError, with the stage, unless every stage is legal and every product can read its operands."""
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


def stage_fields(stage: Stage) -> dict[str, Field]:
    """What a stage writes, as the stage calls it."""
    return oracle_of(stage.case.recipe).outputs(stage.case)


def _refuse(stage: Stage, made: Mapping[str, Stage]) -> None:
    case, file = stage.case, file_of(stage.case.recipe)
    reason = refusal(file, case.flags)
    if reason is not None:
        raise ContractError(f"{case.recipe} excludes {case.variant}: {reason}")
    problem = shapes.case_problem(file, case.shape, case.flags)
    if problem is not None:
        raise ContractError(f"{case.recipe}: {problem}")
    oracle_of(case.recipe).refuse(case)
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
    fields = stage_fields(stage)
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
