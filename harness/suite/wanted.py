"""What a command line asks of the cases of a set, such as --flag and --shape, and a sentence if none of them has it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from harness.contract.case import Case, FlagValue
from harness.errors import ContractError, UsageError
from harness.suite.shapes import canonical
from harness.suite.suite import Suite
from harness.text import nearest, spell

Keep = Callable[[Suite, Case], bool]


@dataclass(frozen=True)
class Wanted:
    """flags: as typed, each NAME=VALUE; shape: as an id may spell it; input: its name; each may be empty"""

    flags: tuple[str, ...] = ()
    shape: str = ""
    input: str = ""

    def __bool__(self) -> bool:
        return bool(self.flags or self.shape or self.input)

    def keeps(self, suites: Sequence[Suite]) -> Keep:
        """Whether a case of one of the suites has all of it; none of a suite without one of the flags or its value has.

        Raises UsageError, with the nearest spelling, for a flag or a value that no suite has, and for what is no shape.
        """
        shape = shape_of(self.shape) if self.shape else ""
        values = {suite.recipe: _values(suite, self.flags) for suite in suites}
        for name, value in pairs(self.flags).items():
            _require(suites, name, value)

        def keep(suite: Suite, case: Case) -> bool:
            flags = values[suite.recipe]
            return (
                flags is not None
                and flags.items() <= case.flags.items()
                and shape in ("", case.shape)
                and self.input in ("", case.input)
            )

        return keep

    def none_of(self, whole: Sequence[tuple[Suite, Case]], set_name: str) -> str:
        """A sentence on why none of a set's cases has it: the first word that none has, and what is near."""
        there = f"none of the {len(whole):,} cases of set {set_name}"
        suites = list(dict.fromkeys(suite for suite, _ in whole))
        for option, word, alone, has in self._parts():
            keep = alone.keeps(suites)
            if not any(keep(suite, case) for suite, case in whole):
                known = sorted({spell(has(case)) for _, case in whole if has(case) is not None})
                close = difflib.get_close_matches(word, known, n=3, cutoff=0)
                return f"{there} has {option} {word}; the nearest are {', '.join(close)}"
        return f"{there} meets all of these options, though each of them has some; leave one out"

    def _parts(self) -> Iterator[tuple[str, str, Wanted, Callable[[Case], FlagValue | None]]]:
        """Each option with its word, what it asks for alone, and what a case has there."""
        for flag in self.flags:
            yield "--flag", flag, Wanted((flag,)), partial(_spelled, flag.partition("=")[0])
        if self.input:
            yield "--input", self.input, Wanted(input=self.input), lambda case: case.input
        if self.shape:
            yield "--shape", self.shape, Wanted(shape=self.shape), lambda case: case.shape


def _spelled(name: str, case: Case) -> str | None:
    return f"{name}={spell(case.flags[name])}" if name in case.flags else None


def pairs(flags: Sequence[str]) -> dict[str, str]:
    """The name and the value of each --flag. Raises UsageError for one without `=`, and for a second value."""
    found: dict[str, str] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:
            raise UsageError(f"--flag {flag} is not flag=value, as in --flag rounding=sr")
        if name in found:
            raise UsageError(f"--flag {flag}: {name} was given a value already; give one")
        found[name] = value
    return found


def shape_of(text: str) -> str:
    """A shape as ids spell it. Raises UsageError if it is none of any recipe."""
    try:
        return canonical(text)
    except ContractError:
        raise UsageError(
            f"--shape '{text}' is no shape; one reads ROWSxCOLS, as in 256x192, of a GEMM MxKxN, as in 64x512x128, and "
            "of a group 128+0+256x512 or 8*1024x2048"
        ) from None


def _values(suite: Suite, flags: Sequence[str]) -> dict[str, FlagValue] | None:
    try:
        return {name: suite.flag(name, value) for name, value in pairs(flags).items()}
    except UsageError:
        return None


def _require(suites: Sequence[Suite], name: str, value: str) -> None:
    """Raise UsageError unless one of the suites has the flag with this value."""
    holders = [suite for suite in suites if name in suite.file.axes]
    if not holders:
        known = dict.fromkeys(flag for suite in suites for flag in suite.file.axes)
        whose = suites[0].recipe if len(suites) == 1 else f"none of the {len(suites)} recipes"
        raise UsageError(f"{whose} has {'no' if len(suites) == 1 else 'a'} flag '{name}'{nearest(name, known)}")
    if all(_values(suite, [f"{name}={value}"]) is None for suite in holders):
        known = dict.fromkeys(each for suite in holders for each in suite.file.axes[name])
        raise UsageError(f"flag {name} has no value '{value}'{nearest(value, known)}")
