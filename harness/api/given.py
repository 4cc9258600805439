"""Check the types of what a caller passes, so that a wrong one is one sentence and not an error from deep inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.contract.case import Case
from harness.errors import UsageError
from harness.suite.suite import find_case


def require_text(**given: Any) -> None:
    """Raise UsageError for the first argument that is not a str; they are passed by their parameters' names."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise UsageError(f"{name} is a {type(value).__name__}; it must be a str")


def case_of(case: Any) -> Case:
    """Return the given case, or find the case with the given id. Raises UsageError for anything else."""
    if isinstance(case, str):
        return find_case(case)
    if not isinstance(case, Case):
        raise UsageError(f"case is a {type(case).__name__}; it must be a Case, or the id of one")
    return replace(case)


def require_arrays(name: str, arrays: Any) -> None:
    """Raise UsageError unless `arrays` is a mapping from names to arrays."""
    if not isinstance(arrays, Mapping):
        fields = "; take its .fields" if hasattr(arrays, "fields") else ""
        raise UsageError(f"{name} is a {type(arrays).__name__}; it must have arrays by name, as a dict has{fields}")
