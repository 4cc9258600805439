"""Flags and their values: which conditions hold, which combinations are excluded, and sentences about unknown ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.contract.case import Case, Flags, FlagValue
from harness.ground.yaml_lines import Route
from harness.suite.schema import SuiteFile, SuiteLaunch
from harness.text import nearest, spell

EDGES = "edges"
Errors = Iterator[tuple[Route, str | None]]  # places in a file, each with a sentence about what is wrong, or None


def holds(when: Mapping[str, Sequence[FlagValue]], flags: Mapping[str, FlagValue]) -> bool:
    """Whether every flag of `when` is among `flags` and has one of its values."""
    for flag, values in when.items():
        value = flags.get(flag)
        # `position` inlined, because this runs millions of times while sets are expanded.
        for other in values:
            if other == value and type(other) is type(value):
                break
        else:
            return False
    return True


def launched(launch: SuiteLaunch, flags: Mapping[str, FlagValue]) -> bool:
    """Whether a launch belongs to a case with these flags, for any number of rows."""
    return holds(launch.when, flags) and not (launch.unless and holds(launch.unless, flags))


def launch_axes(file: SuiteFile) -> dict[str, list[FlagValue]]:
    """The flags that a launch, or a template parameter, may name."""
    return {**file.axes, **({EDGES: [False, True]} if file.tile else {})}


def launch_flags(file: SuiteFile, case: Case) -> Flags:
    """The flags of a case for its launches, which may include `edges`."""
    if not file.tile:
        return case.flags
    extents = case.problem.grid_extents
    whole = all(not (rows % file.tile or cols % file.tile) for rows, cols in extents)
    if case.problem.capacity is not None:  # another split may have them
        whole = whole and case.problem.splits_by % file.tile == 0
    return case.flags.replace(**{EDGES: not whole or extents == ((0, case.cols),)})


def refusal(file: SuiteFile, flags: Mapping[str, FlagValue]) -> str | None:
    """Why these flags are excluded, or None if they are legal; flags may be missing."""
    for exclusion in file.exclude:
        if holds(exclusion.when, flags):
            return exclusion.because
    return None


def refusal_of_row(
    file: SuiteFile, axes: Mapping[str, Sequence[FlagValue]], pairwise: bool
) -> Callable[[Sequence[int | None]], str | None]:
    """Make `refusal` for rows: the number of a value, or None, for each axis; further entries of a row are ignored.

    pairwise: refuse also what the suite keeps apart from pairwise blocks
    """
    refused = [(exclusion.when, exclusion.because) for exclusion in file.exclude]
    refused += [(when, "blocks that are not pairwise have it") for when in file.apart if pairwise]
    exclusions = []
    for when, because in refused:
        # An exclusion with a flag that is no axis can never hold.
        if all(flag in axes for flag in when):
            numbers = [
                (place, frozenset(i for i, value in enumerate(values) if position(value, when[flag]) is not None))
                for place, (flag, values) in enumerate(axes.items())
                if flag in when
            ]
            exclusions.append((numbers, because))

    def of_row(row: Sequence[int | None]) -> str | None:
        for numbers, because in exclusions:
            for place, those in numbers:
                if row[place] not in those:
                    break
            else:
                return because
        return None

    return of_row


def kept_apart(file: SuiteFile, axes: Mapping[str, Sequence[FlagValue]]) -> frozenset[int]:
    """The places of axes of which a suite leaves only the default to `pairwise` blocks."""
    alone = [when for when in file.apart if len(when) == 1]
    return frozenset(
        place
        for place, (flag, values) in enumerate(axes.items())
        if 1
        < len(values)
        == 1 + sum(any(position(value, when.get(flag, ())) is not None for when in alone) for value in values)
    )


def errors(
    file: SuiteFile,
    route: Route,
    when: Mapping[str, Sequence[FlagValue]],
    axes: Mapping[str, Sequence[FlagValue]] | None = None,
) -> Errors:
    """Yield errors for unknown flags and values at a route of the file. axes: by default the file's"""
    for flag, values in when.items():
        yield (*route, flag), flag_error(file, flag, axes)
        for index, value in enumerate(values):
            yield (*route, flag, index), value_error(file, flag, value, axes)


def flag_error(file: SuiteFile, flag: str, axes: Mapping[str, Sequence[FlagValue]] | None = None) -> str | None:
    axes = axes or file.axes
    return None if flag in axes else f"{file.recipe} has no flag '{flag}'{nearest(flag, axes)}"


def value_error(
    file: SuiteFile, flag: str, value: FlagValue, axes: Mapping[str, Sequence[FlagValue]] | None = None
) -> str | None:
    """A sentence if the flag does not have this value, else None. The flag must exist."""
    values = (axes or file.axes)[flag]
    if position(value, values) is not None:
        return None
    return f"flag {flag} has no value '{spell(value)}'{nearest(value, values)}"


def position(value: FlagValue, values: Sequence[FlagValue]) -> int | None:
    """The index of a value among others."""
    # `1 == True` in Python, but not in a suite.
    for index, other in enumerate(values):
        if type(other) is type(value) and other == value:
            return index
    return None
