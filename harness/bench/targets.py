"""The figures that kernels must reach: `targets.yaml`, and the target of a case by its lines and rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from harness.contract.case import Case, FlagValue
from harness.errors import SuiteError, UsageError
from harness.files import PACKAGE, SUITES
from harness.ground.yaml_lines import Document, first_mistake, read
from harness.suite import flag_values
from harness.suite.suite import suite_of

PATH = PACKAGE / "bench" / "targets.yaml"
INPUT_AND_MODE = "normal/graph"
TILE = 128  # a tensor is ragged if it has rows or columns that are no multiple of it
MB = 1e6

Unit = Literal["percent", "launches", "same_bytes", "cublas"]
Steps = tuple[tuple[float, float], ...]  # from which size on, and the figure
_NAMES = {
    "percent": "%", "launches": "x two kernels", "same_bytes": "% of its copy", "cublas": "% of cuBLAS",
}  # fmt: skip
_OPPONENTS = {"same_bytes": "copy/", "cublas": "cublas/"}  # what `harness.bench.baseline` calls them


@dataclass(frozen=True)
class Target:
    """A figure to reach.

    unit: percent of the copy roofline, or of the speed of a copy of the same bytes or of cuBLAS, at least; launches,
    times two empty kernels, at most
    limit: the exhausted resource where a kernel falls short, if it is known
    """

    unit: Unit
    figure: float
    limit: str = ""

    @property
    def required(self) -> str:
        return f"{self.figure:g} {_NAMES[self.unit]}"

    def shown(self, measured: float) -> str:
        return f"{measured:.{2 if self.unit == 'launches' else 1}f} {_NAMES[self.unit]}"

    def measured(self, times: Mapping[str, Any], floor_us: float) -> float | None:
        """The figure that these times reach, in this unit; None if they do not tell. floor_us: see `two_kernels_us`"""
        if self.unit == "percent":
            return times["roofline_percent"]
        if self.unit == "launches":
            return times["median_us"] / floor_us if floor_us > 0 else None
        ratio = times["baseline_ratio"] if times["baseline"].startswith(_OPPONENTS[self.unit]) else None
        return 100 * ratio if ratio else None

    def share(self, measured: float) -> float:
        """The part of the target that is reached, 1 or more if it holds."""
        return self.figure / measured if self.unit == "launches" else measured / self.figure


class Line(BaseModel):
    """A target for some cases.

    cases: recipe, flags and shape of each; `*` is the shape of the table
    percent: of the copy, at least; launches: times two empty kernels, at most. One of the two is given
    limit: the exhausted resource where it falls short
    gpus: the GPUs that it is for, as in `NVIDIA H200`; empty for all
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kernel: str = Field(min_length=1)
    cases: tuple[str, ...] = Field(min_length=1)
    percent: float | None = Field(None, gt=0)
    launches: float | None = Field(None, gt=0)
    limit: str = ""
    gpus: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_of_both(self) -> Line:
        if (self.percent is None) == (self.launches is None):
            raise ValueError("give one of percent and launches")
        return self

    @property
    def target(self) -> Target:
        unit: Unit = "launches" if self.percent is None else "percent"
        return Target(unit, self.percent or self.launches or 0.0, self.limit)


class Rule(BaseModel):
    """Targets of all cases of some recipes and flags, by size: a figure counts from its size on, up to the next.

    when: flag → the values that it may have; of a recipe without the flag, any case has one of them
    percent, launches: as in a line, by the MB that a call moves
    same_bytes: percent of the speed of a copy of as many bytes, at least, by the MB; in place of percent
    cublas: percent of cuBLAS' speed on bf16, at least, by the rows of A; in place of all others

    launches are for less than the first size of percent or same_bytes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipes: tuple[str, ...] = Field(min_length=1)
    when: dict[str, tuple[FlagValue, ...]] = {}
    percent: Steps = ()
    launches: Steps = ()
    same_bytes: Steps = ()
    cublas: Steps = ()

    @field_validator("when", mode="before")
    @classmethod
    def _listed(cls, when: Any) -> Any:
        if not isinstance(when, Mapping):
            return when
        return {flag: values if isinstance(values, list | tuple) else [values] for flag, values in when.items()}

    @field_validator("percent", "launches", "same_bytes", "cublas")
    @classmethod
    def _ascending(cls, steps: Steps) -> Steps:
        if any(not 0 <= size < inf or not 0 < figure < inf for size, figure in steps):
            raise ValueError("a size is 0 or more, and a figure more than 0")
        if any(not one < other for (one, _), (other, _) in pairwise(steps)):
            raise ValueError("sizes have to ascend")
        return steps

    @model_validator(mode="after")
    def _of_a_kind(self) -> Rule:
        given = [name for name in ("percent", "same_bytes", "cublas") if getattr(self, name)]
        if len(given) > 1 or (not given and not self.launches) or ("cublas" in given and self.launches):
            raise ValueError("give percent or same_bytes, launches, or one of the two with launches; or cublas alone")
        return self

    def target(self, case: Case, nbytes: int) -> Target | None:
        """The target of a case that moves so many bytes; None if the rule has none for it."""
        when = {flag: values for flag, values in self.when.items() if flag in case.flags}
        if case.recipe not in self.recipes or not flag_values.holds(when, case.flags):
            return None
        if self.cublas:
            return _at("cublas", self.cublas, case.rows)
        steps: dict[Unit, Steps] = {"percent": self.percent, "same_bytes": self.same_bytes, "launches": self.launches}
        return next(filter(None, (_at(unit, figures, nbytes / MB) for unit, figures in steps.items())), None)


def _at(unit: Unit, steps: Steps, size: float) -> Target | None:
    figures = [figure for least, figure in steps if least <= size]
    return Target(unit, figures[-1]) if figures else None


class Targets(BaseModel):
    """All of `targets.yaml`.

    shape: replaces `*` in a case of a line
    measured_on: the GPUs that rules are for; ragged: percent of a rule's figure that a ragged tensor has to reach
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    shape: str
    lines: tuple[Line, ...] = Field(min_length=1)
    measured_on: tuple[str, ...] = ()
    ragged: float = Field(100, gt=0, le=100)
    rules: tuple[Rule, ...] = ()

    def of(self, gpu: str) -> Targets:
        """The lines and rules for a GPU. Raises UsageError if there are no lines."""
        lines = tuple(line for line in self.lines if not line.gpus or gpu in line.gpus)
        if lines:
            return self.model_copy(update={"lines": lines, "rules": self.rules if gpu in self.measured_on else ()})
        named = ", ".join(sorted({name for line in self.lines for name in line.gpus}))
        raise UsageError(f"no line of {PATH.name} is for {gpu}; all are for {named}")

    def case_ids(self, line: Line) -> list[str]:
        return [f"{case.replace('/*', f'/{self.shape}')}/{INPUT_AND_MODE}" for case in line.cases]

    def target_of(self, case: Case, nbytes: int) -> Target | str:
        """The target of a case that moves so many bytes, by its line or else its rule, or why it has none.

        Raises SuiteError if two rules are for it.
        """
        for line in self.lines:
            if case.id in self.case_ids(line):
                return line.target
        if case.mode != "graph":
            return "an eager time holds what its host takes to launch; the case in a graph has a target"
        found = [(number, target) for number, rule in enumerate(self.rules) if (target := rule.target(case, nbytes))]
        if not found:
            return f"no rule of {PATH.name} is for it"
        if len(found) > 1:
            numbers = " and ".join(f"rules.{number}" for number, _ in found)
            raise SuiteError(PATH.name, f"{numbers} are for {case.id}; a case has one target")
        ((_, target),) = found
        if target.unit == "cublas" or all(not (n % TILE) for extents in case.problem.grid_extents for n in extents):
            return target
        part = self.ragged / 100
        return Target(
            target.unit, round(target.figure / part if target.unit == "launches" else target.figure * part, 1)
        )


def load(path: Path = PATH) -> Targets:
    """Read the table. Raises SuiteError with the line of the first mistake, a flag that no recipe has included."""
    return _load(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=4)
def _load(path: Path, changed: int) -> Targets:
    document = read(path, path.name)
    try:
        targets = Targets.model_validate(document.data)
    except ValidationError as error:
        raise SuiteError(document.where(*error.errors()[0]["loc"]), first_mistake(error)) from None
    for number, rule in enumerate(targets.rules):
        _check(document, number, rule)
    return targets


def _check(document: Document, number: int, rule: Rule) -> None:
    """Raise SuiteError for a recipe that there is not, and for a flag or value that none of its recipes has."""
    try:
        files = [suite_of(recipe, SUITES).file for recipe in rule.recipes]
    except UsageError as error:
        raise SuiteError(document.where("rules", number, "recipes"), str(error)) from None
    for flag, values in rule.when.items():
        having = [file for file in files if flag in file.axes]
        errors = [flag_values.flag_error(file, flag) for file in files if not having]
        for value in values:
            wrong = [flag_values.value_error(file, flag, value) for file in having]
            errors += wrong if all(wrong) else []
        for error in filter(None, errors):
            raise SuiteError(document.where("rules", number, "when", flag), error)
