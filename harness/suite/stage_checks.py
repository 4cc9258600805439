"""Checks of pipelines: entries of the file that are wrong by themselves, and stages that refuse a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.contract.case import Case
from harness.contract.field import Field, QuantizedTensor, granularity_of
from harness.errors import ContractError
from harness.files import KERNELS
from harness.oracles import gemm_operands
from harness.oracles.by_recipe import oracle_of
from harness.suite import flag_values, schema
from harness.suite.flag_values import Errors
from harness.suite.schema import SuiteFile
from harness.suite.shapes import REPRESENTATION, is_grouped, shape_error
from harness.suite.stages import DECODE, SWIZZLE, Stage, written
from harness.suite.suite_file import file_of
from harness.text import nearest, spell


def entry_errors(file: SuiteFile) -> Errors:
    """Yield errors for unknown recipes, flags and earlier stages, unused flags, and stages that do not fit."""
    used: set[str] = set()
    for index, entry in enumerate(file.pipeline):
        route = ("pipeline", index)
        yield (*route, "recipe"), _recipe_error(entry)
        recipe = file_of(entry.recipe)
        yield (*route, "recipe"), _kind_error(entry, recipe, is_grouped(file))
        for part, place in ((entry, route), *((also, (*route, "also", i)) for i, also in enumerate(entry.also))):
            yield from flag_values.errors(file, (*place, "when"), part.when)
            yield from flag_values.errors(
                recipe, (*place, "flags"), {flag: [value] for flag, value in part.flags.items()}
            )
            never = (
                None if _may_meet(entry, part) else "these flags contradict those of the stage, so it never has them"
            )
            yield (*place, "when"), never
        shared = [flag for flag in file.axes if flag in recipe.axes and flag not in entry.flags]
        yield (*route, "recipe"), _shared_error(file, entry, recipe, shared)
        yield (*route, "stage"), _name_error(entry, file.pipeline[:index])
        for operand, name in (("a", entry.a), ("b", entry.b)):
            yield (*route, operand), _operand_error(name, entry, file.pipeline, index) if name else None
        yield (*route, "of"), _operand_error(entry.of, entry, file.pipeline, index) if entry.of else None
        used |= {*shared, *entry.when, *(flag for also in entry.also for flag in also.when)}
    if file.pipeline:
        for flag in file.axes:
            yield (
                ("axes", flag),
                None if flag in used or flag == REPRESENTATION else f"no stage has, or depends on, a flag '{flag}'",
            )
        idle = all(entry.given for entry in file.pipeline)
        yield ("pipeline",), "every stage is given, so there is nothing to run" if idle else None


def _recipe_error(entry: schema.Stage) -> str | None:
    # A pipeline has no kernel, so it cannot be a stage.
    recipes = sorted(path.stem for path in KERNELS.glob("*.cu"))
    if entry.recipe in recipes:
        return None
    return f"there is no recipe '{entry.recipe}' with kernels of its own{nearest(entry.recipe, recipes)}"


def _kind_error(entry: schema.Stage, recipe: SuiteFile, of_groups: bool) -> str | None:
    if is_grouped(recipe) and not of_groups:
        return f"{entry.recipe} takes a group of tensors, and a stage has one, or a product of two"
    if of_groups and not is_grouped(recipe):
        return f"{entry.recipe} takes one tensor, or a product of two, and a stage of this pipeline has a group"
    if recipe.gemm and entry.a is None:
        return f"{entry.recipe} multiplies two tensors; name the stages they come from, `a:` and `b:`"
    if not recipe.gemm and entry.a is not None:
        return f"{entry.recipe} multiplies nothing, so it has no operands 'a' and 'b'"
    if entry.recipe in (SWIZZLE, DECODE) and entry.of is not None:
        return None
    if not recipe.gemm and "both" not in recipe.axes.get("outputs", ()):
        return f"{entry.recipe} quantizes no matrix; choose a recipe with outputs=both, or a GEMM"
    return None


def _shared_error(file: SuiteFile, entry: schema.Stage, recipe: SuiteFile, shared: Sequence[str]) -> str | None:
    for flag in shared:
        for value in entry.when.get(flag, file.axes[flag]):
            error = flag_values.value_error(recipe, flag, value)
            if error:
                return f"{entry.recipe} takes {flag} from the pipeline, and there {error}"
    return None


def _name_error(entry: schema.Stage, earlier: Sequence[schema.Stage]) -> str | None:
    if any(other.stage == entry.stage and _may_meet(entry, other) for other in earlier):
        return f"two stages are called '{entry.stage}' under the same flags"
    return None


def _may_meet(one: schema.Stage, other: schema.Stage | schema.Also) -> bool:
    shared = one.when.keys() & other.when.keys()
    return all({*map(spell, one.when[flag])} & {*map(spell, other.when[flag])} for flag in shared)


def _operand_error(name: str, entry: schema.Stage, pipeline: Sequence[schema.Stage], index: int) -> str | None:
    sources = {other.stage for other in pipeline[:index] if other.a is None}
    if name in sources:
        return None
    if any(other.stage == name for other in pipeline[:index]):
        return f"stage '{entry.stage}' reads '{name}', which is a product; an operand is a quantized tensor"
    if any(other.stage == name for other in pipeline[index:]):
        return f"stage '{entry.stage}' reads '{name}', which does not come before it"
    return f"stage '{entry.stage}' reads '{name}', and there is no stage of that name{nearest(name, sorted(sources))}"


def refuse_stages(case: Case, stages: Sequence[Stage]) -> None:
    """Raise ContractError, with the stage, unless every stage is legal and every product can read its operands."""
    if case.input in gemm_operands.DRAWN_AS_BYTES:
        raise ContractError(
            f"{case.recipe}: {case.input} is drawn as the bytes of operands, and a pipeline quantizes its own"
        )
    made: dict[str, Stage] = {}
    for stage in stages:
        try:
            _refuse(stage, made)
        except ContractError as error:
            raise ContractError(f"{case.recipe}: stage {stage.name}: {error}") from None
        made[stage.name] = stage


def stage_fields(stage: Stage) -> dict[str, Field]:
    """The fields that a stage writes, by their names in the stage."""
    return oracle_of(stage.case.recipe).outputs(stage.case)


def _refuse(stage: Stage, made: Mapping[str, Stage]) -> None:
    case, file = stage.case, file_of(stage.case.recipe)
    reason = flag_values.refusal(file, case.flags)
    if reason is not None:
        raise ContractError(f"{case.recipe} excludes {case.variant}: {reason}")
    error = shape_error(file, case.shape, case.flags)
    if error is not None:
        raise ContractError(f"{case.recipe}: {error}")
    oracle_of(case.recipe).refuse(case)
    if stage.multiplies:
        copies = [(*_copy(made, stage.reads[f"{name}_data"]), _moves(made, stage, name)) for name in "ab"]
        operands = zip(*(_tensors(*copy) for copy in copies), strict=True)
        for g, (part, pair) in enumerate(zip(case.parts, operands, strict=True)):
            shapes = gemm_operands.shapes(part)
            added = {name: Field(shapes[name], str(part.flags.dtype)) for name in stage.added}
            try:
                gemm_operands.bind(part, *pair, **added)
            except ContractError as error:
                raise ContractError(f"group {g}: {error}" if case.is_group else str(error)) from None
        _refuse_rotations(*(copy[:2] for copy in copies))
    elif not stage.draws:
        _refuse_source(stage, made)


def _copy(made: Mapping[str, Stage], data: str) -> tuple[Stage, str]:
    """The stage that writes a field such as `x.rowwise_data`, and the field's side."""
    name, _, field = data.partition(".")
    return made[name], field.partition("_")[0]


def _moves(made: Mapping[str, Stage], stage: Stage, operand: str) -> bool:
    """Whether a separate stage swizzles the scales of an operand.

    Raises ContractError if it moves the other side's scales.
    """
    moving = made[stage.reads[f"{operand}_scale_inv"].partition(".")[0]]
    if moving.case.recipe != SWIZZLE:
        return False
    _, side = _copy(made, stage.reads[f"{operand}_data"])
    moved = moving.case.flags.direction
    if moved != side:
        raise ContractError(f"operand {operand.upper()} is read {side}, and {moving.name} moves the {moved} scales")
    return True


def _refuse_source(stage: Stage, made: Mapping[str, Stage]) -> None:
    """Raise ContractError unless the stage that is read from has the tensor, scales or codes, with the same extents."""
    source = made[next(iter(stage.reads.values())).partition(".")[0]]
    if source.case.shape != stage.case.shape:
        raise ContractError(f"it is of {stage.case.shape}, and {source.name} is of {source.case.shape}")
    if stage.case.recipe == SWIZZLE:
        _require(source, stage.reads["scale_inv"], "move")
        side = stage.case.flags.direction
        if stage_fields(source)[f"{side}_scale_inv"].swizzled:
            raise ContractError(f"{side}_scale_inv of {source.name} is swizzled already")
        if stage.case.flags.to != "swizzled":
            raise ContractError("a product reads swizzled scales, and this stage has to=compact")
    elif stage.case.recipe == DECODE:
        for key in stage.reads.values():
            _require(source, key, "decode")
    elif source.given or not source.draws:
        raise ContractError(
            f"{source.name} has no tensor to quantize once more; name a stage that draws one and is run"
        )
    elif source.case.flags.get("dtype") != stage.case.flags.get("dtype"):
        raise ContractError(f"the tensor of {source.name} is {source.case.flags.get('dtype')}")


def _require(source: Stage, key: str, use: str) -> None:
    field = key.partition(".")[2]
    if field not in stage_fields(source):
        raise ContractError(f"{source.name} has no {field} to {use}")


def _tensors(stage: Stage, side: str, moved: bool) -> list[QuantizedTensor]:
    """The quantized tensors that a stage writes, with fields in place of arrays, for a GEMM to check.

    moved: whether a separate stage swizzles the scales
    """
    fields = stage_fields(stage)  # computed once for all tensors of a group
    amax, scale_inv = (written(stage).get(f"{side}_{part}") for part in ("amax", "scale_inv"))
    return [
        QuantizedTensor(
            part.recipe,
            part.rows,
            part.cols,
            {name: field.parts[g] if stage.case.is_group else field for name, field in fields.items()},
            granularity_of(amax.shape) if amax else "no amax",
            part.e4m3_max,
            "swizzled" if moved or (scale_inv and scale_inv.swizzled) else "compact",
        )
        for g, part in enumerate(stage.case.parts)
    ]


def _refuse_rotations(*copies: tuple[Stage, str]) -> None:
    """Raise ContractError unless both operands have the same rotation, because only equal rotations cancel."""
    rotations = [_rotation(*copy) for copy in copies]
    if rotations[0] != rotations[1]:
        (a, _), (b, _) = copies
        raise ContractError(
            f"operand A, {a.name}, is {rotations[0]} and operand B, {b.name}, is {rotations[1]}; both or neither must "
            "be rotated, with the same sign_mask"
        )


def _rotation(source: Stage, side: str) -> str:
    flags = source.case.flags
    rotated = flags.get("rht", False) and side == "columnwise"
    return f"rotated with sign_mask {spell(flags.sign_mask)}" if rotated else "not rotated"
