"""What a caller gave that is of another kind than a function takes: one sentence in place of an error from within."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.contract.case import Case
from harness.errors import UsageError
from harness.suite.suite import find_case


def require_text(**given: Any) -> None:
    """Raise UsageError for the first of these, by their parameters, that is no str."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise UsageError(f"{name} is a {type(value).__name__}; it must be a str")


def case_of(case: Any) -> Case:
    """The case, or that of an id. Raises UsageError for anything else."""
    if isinstance(case, str):
        return find_case(case)
    if not isinstance(case, Case):
        raise UsageError(f"case is a {type(case).__name__}; it must be a Case, or the id of one")
    return replace(case)


def require_arrays(name: str, arrays: Any) -> None:
    """Raise UsageError for what is no mapping of arrays by their names."""
    if not isinstance(arrays, Mapping):
        fields = "; take its .fields" if hasattr(arrays, "fields") else ""
        raise UsageError(f"{name} is a {type(arrays).__name__}; it must have arrays by name, as a dict has{fields}")
