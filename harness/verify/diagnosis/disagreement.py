"""The report on two oracles that disagree: a sentence, and options that trace the first entry in which they do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.verdict import Verdict, fault_of
from harness.verify.diagnosis.difference import compact_index, first_input
from harness.verify.diagnosis.mismatch import Story
from harness.verify.diagnosis.one_tensor import holder
from harness.verify.expected import Expected


def told(case: Case, expected: Expected, verdict: Verdict, where: str = "") -> Story:
    """The report on a disagreement. where: which input or split it is of, if not the case's own

    Only the case's own can be traced, by options that show the block of the first entry that differs, both oracles
    beside what they read.
    """
    lines = [f"{verdict}  {case.id}", f"  {where}{expected.disagreement}", *fault_of(verdict)]
    traced = () if where or expected.differing is None else trace_options(case, expected.fields, *expected.differing)
    return Story.of(lines, traced)


def trace_options(case: Case, fields: Mapping[str, Field], name: str, index: tuple[int, ...]) -> tuple[str, ...]:
    """The options of `harness trace` that show the block of an entry, given by its index in the array of a field.

    For a pipeline the element is one of the tensor of the stage that writes the field, for a group of its tensor.
    """
    field, tensor = fields[name], ()
    if case.is_group:
        entry = int(np.ravel_multi_index(index, field.shape))
        number = holder(field, entry)
        before = sum(part.size for part in field.parts[:number])
        field = field.parts[number]
        index = tuple(int(i) for i in np.unravel_index(entry - before, field.shape))
        tensor = ("--tensor", str(number))
    row, col = first_input(field, compact_index(field, index))
    return (*tensor, "--field", name, "--at", f"{row},{col}")
