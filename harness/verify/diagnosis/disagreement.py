"""What is told of two oracles that disagree: a sentence, and the command that shows both beside what they read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.suite.command_lines import quoted, recipe_dir_option
from harness.verify.diagnosis.difference import compact_index, first_input
from harness.verify.diagnosis.one_tensor import holder
from harness.verify.expected import Expected


def told(case: Case, expected: Expected) -> str:
    """The disagreement, and on a line of its own the trace of the first entry that differs, where one is known."""
    if expected.differing is None:
        return expected.disagreement
    return f"{expected.disagreement}\n  trace: {trace_command(case, expected.fields, *expected.differing)}"


def trace_command(case: Case, fields: Mapping[str, Field], name: str, index: tuple[int, ...]) -> str:
    """The command that shows the block of an entry, given by its index in the array of a field.

    For a pipeline the element is one of the tensor of the stage that writes the field, for a group of its tensor.
    """
    field, tensor = fields[name], ""
    if case.is_group:
        entry = int(np.ravel_multi_index(index, field.shape))
        number = holder(field, entry)
        before = sum(part.size for part in field.parts[:number])
        field = field.parts[number]
        index = tuple(int(i) for i in np.unravel_index(entry - before, field.shape))
        tensor = f" --tensor {number}"
    row, col = first_input(field, compact_index(field, index))
    return f"harness trace{recipe_dir_option(case.id)} {quoted(case.id)}{tensor} --field {name} --at {row},{col}"
