"""The key `corners` of a suite: the larger problems that end in a case, and checks of its entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple

from harness.contract.case import Case
from harness.contract.problem import Extents, Problem
from harness.errors import ContractError, UsageError
from harness.suite import flag_values, shapes
from harness.suite.schema import Corner, Shape, SuiteFile

TILE = 128  # lines; block scales are padded to a multiple of it


def corners(file: SuiteFile, case: Case) -> list[Problem]:
    """The larger problems that the emulator also runs, with the case as their last rows and columns."""
    entries = [each for each in file.corners if each.shape == case.shape and flag_values.holds(each.when, case.flags)]
    return [shapes.problem(file, shape, case.flags) for each in entries for shape in each.tensors]


def errors(file: SuiteFile, entry: Corner) -> Iterator[tuple[int, str | None]]:
    """Yield the number of each larger shape of an entry, and a sentence if something is wrong with it, else None."""
    for number, larger in enumerate(entry.tensors):
        yield number, _error(file, entry, larger)


def _error(file: SuiteFile, entry: Corner, larger: Shape) -> str | None:
    if file.pipeline:
        return "a pipeline has no corners; those of its recipes have"
    flags = {name: values[0] for name, values in file.axes.items()} | {
        name: values[0] for name, values in entry.when.items()
    }
    if isinstance(larger, str) != shapes.is_grouped(file):
        return shapes.block_error(file, {name: [value] for name, value in flags.items()}, larger)
    try:
        case, whole = (shapes.problem(file, shape, flags) for shape in (entry.shape, larger))
    except (ContractError, UsageError) as error:
        return str(error)
    if case.is_group:
        right = f"'{entry.shape}' behind one larger tensor, as in 4096+{entry.shape}, nor one tensor with more rows"
        if not _ends_in(tuple(whole.tensors), tuple(case.tensors)):
            return f"'{larger}' is neither {right}"
        return shapes.shape_error(file, larger, flags)
    grown = [(part, all_of) for part, all_of in zip(astuple(case), astuple(whole), strict=True) if part != all_of]
    if not grown or any(all_of < part or part % TILE or all_of % part for part, all_of in grown):
        rule = f"an extent that differs is a multiple of the case's, and that one of {TILE}"
        return f"'{whole}' is not larger than '{case}' by whole parts: {rule}"
    return shapes.shape_error(file, larger, flags)


def _ends_in(larger: tuple[Extents, ...], own: tuple[Extents, ...]) -> bool:
    """Whether a group ends in the tensors of another, or is one tensor that does."""
    if larger[1:] == own:
        return True
    (rows, cols), (all_rows, all_cols) = own[-1], larger[-1]
    return len(larger) == len(own) == 1 and cols == all_cols and all_rows > rows and all_rows % rows == 0
