"""Find cases of the suites, or spell one; a wrong argument is one sentence and not an error from deep inside."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import files
from harness.contract.case import Case, FlagValue
from harness.errors import UsageError
from harness.inputs import tensor_file
from harness.suite import suite as suites
from harness.suite import suite_file
from harness.text import spell


def use_recipe_dir(folder: str | Path) -> tuple[str, ...]:
    """Add the recipes of a folder of yours, each three files S.cu, S.py and S.yaml; returns their names.

    Raises UsageError for a folder without a suite, and for a recipe that is ours already.
    """
    if not isinstance(folder, str | os.PathLike):
        raise UsageError(f"folder is a {type(folder).__name__}; it must be a path")
    return suite_file.use_recipe_dir(Path(folder))


def list_recipes() -> tuple[str, ...]:
    """The names of all recipes and pipelines, those of `use_recipe_dir` first."""
    own = [suite.recipe for suite in suites.own_suites()]
    return (*own, *(path.stem for path in sorted(files.SUITES.glob("*.yaml"))))


def find_case(case_id: str) -> Case:
    """The case that an id stands for, `per_tensor/rht=true,rounding=sr/256x192/normal/eager`, in a set or not.

    Raises UsageError with the nearest choice.
    """
    require_text(case_id=case_id)
    return suites.find_case(case_id)


def find_cases(recipe: str, /, set_name: str = "smoke", contains: str = "", **flags: FlagValue) -> tuple[Case, ...]:
    """The cases of a recipe's set whose id contains a text and whose flags have these values, small ones first.

    Raises UsageError for a recipe, set, flag or value that does not exist.
    """
    require_text(recipe=recipe, set_name=set_name, contains=contains)
    suite = suites.suite_of(recipe)
    wanted = _flags(suite, flags)
    return tuple(
        case
        for case in suite.cases(set_name)
        if contains in case.id and all(case.flags[name] == value for name, value in wanted.items())
    )


def make_case(
    recipe: str, /, shape: str | Sequence[int], input: str = "normal", mode: str = "eager", **flags: FlagValue
) -> Case:
    """One case by its parts.

    shape: (rows, cols), (M, K, N) of a product, or as ids spell it, `128+0+256x512` of a group
    input: a distribution, or `file:PATH#TENSOR`, with a path from the working directory; of a product also a tensor for
        each operand, `file:PATH#A;file:PATH#B`
    flags: the ones that differ from their defaults, as in rht=True, rounding="sr"

    Raises UsageError with the nearest choice, and for flags that the recipe excludes.
    """
    require_text(recipe=recipe, input=input, mode=mode)
    suite = suites.suite_of(recipe)
    chosen = _flags(suite, flags)
    changed = [f"{name}={spell(value)}" for name, value in chosen.items() if suite.defaults[name] != value]
    if input.startswith(tensor_file.PREFIX):
        input = tensor_file.resolved(input, Path.cwd())
    spelled = shape if isinstance(shape, str) else "x".join(map(_extent, _extents(shape)))
    return suite.find(f"{recipe}/{','.join(changed) or 'default'}/{spelled}/{input}/{mode}")


def _flags(suite: suites.Suite, flags: Mapping[str, FlagValue]) -> dict[str, FlagValue]:
    if "recipe" in flags and "recipe" not in suite.defaults:
        raise UsageError(
            f"recipe={flags['recipe']!r} is no flag of {suite.recipe}, but of groups alone; give the recipe itself by "
            "position, before any keyword"
        )
    return {name: suite.flag(name, spell(value)) for name, value in flags.items()}


def _extents(shape: Any) -> Iterable[Any]:
    if not isinstance(shape, Iterable):
        raise UsageError(f"shape is a {type(shape).__name__}; give extents, as in (256, 192), or a str")
    return shape


def _extent(value: int) -> str:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageError(f"{value!r} is no extent of a shape; give integers, as in (256, 192)")
    return str(value.__index__())


def require_text(**given: Any) -> None:
    """Raise UsageError for the first argument that is not a str; they are passed by their parameters' names."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise UsageError(f"{name} is a {type(value).__name__}; it must be a str")


def case_of(case: Any) -> Case:
    """Return the given case, or find the case with the given id. Raises UsageError for anything else."""
    if isinstance(case, str):
        return suites.find_case(case)
    if not isinstance(case, Case):
        raise UsageError(f"case is a {type(case).__name__}; it must be a Case, or the id of one")
    return replace(case)


def require_arrays(name: str, arrays: Any) -> None:
    """Raise UsageError unless `arrays` is a mapping from names to arrays."""
    if not isinstance(arrays, Mapping):
        raise UsageError(f"{name} is a {type(arrays).__name__}; it must have arrays by name, as a dict has")
