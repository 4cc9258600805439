"""The cases that may expect few different values, because their suite says why."""

from __future__ import annotations

from harness.contract.case import Case
from harness.errors import UsageError
from harness.suite.flag_values import holds
from harness.suite.schema import Degenerate
from harness.suite.suite_file import file_of


def declared(case: Case, field: str) -> bool:
    """Whether the case's suite declares that this field has few different values."""
    try:
        entries = file_of(case.recipe).degenerate
    except UsageError:  # the case has no suite
        return False
    return any(covers(entry, case, field) for entry in entries)


def covers(entry: Degenerate, case: Case, field: str) -> bool:
    return (
        (not entry.inputs or case.input in entry.inputs)
        and (not entry.shapes or case.shape in entry.shapes)
        and (not entry.fields or field in entry.fields)
        and holds(entry.when, case.flags)
    )
