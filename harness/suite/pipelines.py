"""What a schema cannot say of a pipeline: recipes, flags and earlier stages that exist, and no flag without a use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.contract.case import spell
from harness.files import KERNELS
from harness.suite import flag_values
from harness.suite.schema import Stage, SuiteFile, nearest
from harness.suite.shapes import is_grouped
from harness.suite.written import file_of
from harness.suite.yaml_lines import Route

Problems = Iterator[tuple[Route, str | None]]


def problems(file: SuiteFile) -> Problems:
    """Of every stage with its route in the file, in the order in which one rests on another."""
    used: set[str] = set()
    for index, stage in enumerate(file.pipeline):
        route = ("pipeline", index)
        yield from flag_values.problems(file, (*route, "when"), stage.when)
        yield (*route, "recipe"), _recipe_problem(stage)
        recipe = file_of(stage.recipe)
        yield (*route, "recipe"), _kind_problem(stage, recipe)
        yield from flag_values.problems(
            recipe, (*route, "flags"), {flag: [value] for flag, value in stage.flags.items()}
        )
        shared = [flag for flag in file.axes if flag in recipe.axes and flag not in stage.flags]
        yield (*route, "recipe"), _shared_problem(file, stage, recipe, shared)
        yield (*route, "stage"), _name_problem(stage, file.pipeline[:index])
        for operand in ("a", "b"):
            yield (*route, operand), _operand_problem(getattr(stage, operand), stage, file.pipeline, index)
        used |= {*shared, *stage.when}
    if file.pipeline:
        for flag in file.axes:
            yield ("axes", flag), None if flag in used else f"no stage has, or depends on, a flag '{flag}'"
        given = all(stage.given for stage in file.pipeline)
        yield ("pipeline",), "every stage is given, so there is nothing to run" if given else None


def _recipe_problem(stage: Stage) -> str | None:
    # A pipeline has no kernel of its own, so that none can be a stage, of itself or of another.
    recipes = sorted(path.stem for path in KERNELS.glob("*.cu"))
    if stage.recipe in recipes:
        return None
    return f"there is no recipe '{stage.recipe}' with kernels of its own{nearest(stage.recipe, recipes)}"


def _kind_problem(stage: Stage, recipe: SuiteFile) -> str | None:
    if is_grouped(recipe):
        return f"{stage.recipe} takes a group of tensors, and a stage has one, or a product of two"
    if recipe.gemm and stage.a is None:
        return f"{stage.recipe} multiplies two tensors; name the stages they come from, `a:` and `b:`"
    if not recipe.gemm and stage.a is not None:
        return f"{stage.recipe} multiplies nothing, so it has no operands 'a' and 'b'"
    if not recipe.gemm and "outputs" not in recipe.axes:
        return f"{stage.recipe} quantizes no matrix; choose a recipe with the flag 'outputs', or a GEMM"
    return None


def _shared_problem(file: SuiteFile, stage: Stage, recipe: SuiteFile, shared: Sequence[str]) -> str | None:
    for flag in shared:
        for value in stage.when.get(flag, file.axes[flag]):
            problem = flag_values.value_problem(recipe, flag, value)
            if problem:
                return f"{stage.recipe} takes {flag} from the pipeline, and there {problem}"
    return None


def _name_problem(stage: Stage, earlier: Sequence[Stage]) -> str | None:
    twins = [other for other in earlier if other.stage == stage.stage]
    if any(_may_meet(stage, other) for other in twins):
        return f"two stages are called '{stage.stage}' under the same flags"
    return None


def _may_meet(one: Stage, other: Stage) -> bool:
    shared = one.when.keys() & other.when.keys()
    return all({*map(spell, one.when[flag])} & {*map(spell, other.when[flag])} for flag in shared)


def _operand_problem(name: str | None, stage: Stage, pipeline: Sequence[Stage], index: int) -> str | None:
    if name is None:
        return None
    sources = {other.stage for other in pipeline[:index] if other.a is None}
    if name in sources:
        return None
    if any(other.stage == name and other.a is not None for other in pipeline[:index]):
        return f"stage '{stage.stage}' reads '{name}', which is a product; an operand is a quantized tensor"
    if any(other.stage == name for other in pipeline[index:]):
        return f"stage '{stage.stage}' reads '{name}', which does not come before it"
    return f"stage '{stage.stage}' reads '{name}', and there is no stage of that name{nearest(name, sorted(sources))}"
