"""Flags and their values in a suite: whether it has them, and the sentence, or None, where it has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.contract.case import FlagValue, spell
from harness.suite.schema import SuiteFile, nearest
from harness.suite.yaml_lines import Route


def holds(when: Mapping[str, Sequence[FlagValue]], flags: Mapping[str, FlagValue]) -> bool:
    """Whether every flag of `when` is among `flags` and has one of its values."""
    return all(flag in flags and position(flags[flag], values) is not None for flag, values in when.items())


def refusal(file: SuiteFile, flags: Mapping[str, FlagValue]) -> str | None:
    """Why these flags are excluded, or None if they are legal; flags may be missing."""
    return next((exclusion.because for exclusion in file.exclude if holds(exclusion.when, flags)), None)


def problems(
    file: SuiteFile, route: Route, when: Mapping[str, Sequence[FlagValue]]
) -> Iterator[tuple[Route, str | None]]:
    """Of every flag that is named at a route, and of every value."""
    for flag, values in when.items():
        yield (*route, flag), flag_problem(file, flag)
        for index, value in enumerate(values):
            yield (*route, flag, index), value_problem(file, flag, value)


def flag_problem(file: SuiteFile, flag: str) -> str | None:
    """Unless the recipe has this flag."""
    return None if flag in file.axes else f"{file.recipe} has no flag '{flag}'{nearest(flag, file.axes)}"


def value_problem(file: SuiteFile, flag: str, value: FlagValue) -> str | None:
    """Unless the axis of a flag has this value; the flag must exist."""
    if position(value, file.axes[flag]) is not None:
        return None
    return f"flag {flag} has no value '{spell(value)}'{nearest(value, file.axes[flag])}"


def position(value: FlagValue, values: Sequence[FlagValue]) -> int | None:
    """Where a value stands among others."""
    # `1 == True` in Python, but not in a suite.
    for index, candidate in enumerate(values):
        if type(candidate) is type(value) and candidate == value:
            return index
    return None
