"""Flags and their values: which hold, which are excluded, and a sentence about those that a suite does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.contract.case import FlagValue, spell
from harness.suite.schema import SuiteFile, nearest
from harness.suite.yaml_lines import Route

Errors = Iterator[tuple[Route, str | None]]  # places in a file, each with a sentence about what is wrong, or None


def holds(when: Mapping[str, Sequence[FlagValue]], flags: Mapping[str, FlagValue]) -> bool:
    """Whether every flag of `when` is among `flags` and has one of its values."""
    for flag, values in when.items():
        value = flags.get(flag)
        if value is None or position(value, values) is None:
            return False
    return True


def refusal(file: SuiteFile, flags: Mapping[str, FlagValue]) -> str | None:
    """Why these flags are excluded, or None if they are legal; flags may be missing."""
    return next((exclusion.because for exclusion in file.exclude if holds(exclusion.when, flags)), None)


def errors(file: SuiteFile, route: Route, when: Mapping[str, Sequence[FlagValue]]) -> Errors:
    """Unknown flags and values among those that are named at a route."""
    for flag, values in when.items():
        yield (*route, flag), flag_error(file, flag)
        for index, value in enumerate(values):
            yield (*route, flag, index), value_error(file, flag, value)


def flag_error(file: SuiteFile, flag: str) -> str | None:
    return None if flag in file.axes else f"{file.recipe} has no flag '{flag}'{nearest(flag, file.axes)}"


def value_error(file: SuiteFile, flag: str, value: FlagValue) -> str | None:
    """The flag must exist."""
    if position(value, file.axes[flag]) is not None:
        return None
    return f"flag {flag} has no value '{spell(value)}'{nearest(value, file.axes[flag])}"


def position(value: FlagValue, values: Sequence[FlagValue]) -> int | None:
    """The index of a value among others."""
    # `1 == True` in Python, but not in a suite.
    for index, other in enumerate(values):
        if type(other) is type(value) and other == value:
            return index
    return None
