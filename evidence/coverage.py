"""Pairwise coverage of the suites: which possible pairs of values occur together in some case.

The parameters are the flags of a recipe, the class of a shape, the input, and the class of a group. A pair of flag
values is possible if some legal case has both; any other pair of values that the recipe's sets have is. Tensors of 2^31
elements are left out: they take a minute each, too long to combine them with everything.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.check.set_rules import legal_values
from harness.contract.case import Case, FlagValue
from harness.report.tables import markdown, write_table
from harness.suite.suite import Suite
from harness.text import spell

SHAPE, INPUT, GROUP = "shape", "input", "group"
TILE = 128
FEW_ROWS = 64
HUGE = 1 << 31  # elements
MANY = 64  # tensors

Value = tuple[str, FlagValue]  # a parameter and one of its values
Pair = tuple[Value, Value]


@dataclass(frozen=True)
class Coverage:
    """One set of one suite. covered: pairs that occur in some case; possible: pairs that could"""

    recipe: str
    set_name: str
    cases: int
    covered: frozenset[Pair]
    possible: frozenset[Pair]

    def counts(self, kinds: str) -> str:
        """`covered/possible` for pairs of two parameters, such as `flag, input`; a dash if none is possible."""
        of_kind = [pair for pair in self.possible if _kinds(pair) == kinds]
        return f"{sum(pair in self.covered for pair in of_kind)}/{len(of_kind)}" if of_kind else "-"

    @property
    def missing(self) -> list[Pair]:
        return sorted(self.possible - self.covered, key=repr)


COLUMNS = ("flag, flag", "flag, shape", "flag, input", "flag, group", "shape, input", "group, input")


def shape_class(case: Case) -> str:
    """The class of the extents: `huge` from 2^31 elements on, `few rows` of a GEMM, whole tiles or not."""
    if case.elements >= HUGE:
        return "huge"
    if case.is_gemm and not case.is_group and case.rows <= FEW_ROWS:
        return "few rows"
    whole = all(extent % TILE == 0 for part in case.parts for extent in part.problem.numbers.values())
    return "whole tiles" if whole else "ragged"


def group_class(case: Case) -> str:
    """The class of a group, by the number of its tensors and whether they are empty or differ."""
    tensors = case.problem.tensors
    sizes = [rows * cols for rows, cols in tensors]
    if not any(sizes):
        return "all empty"
    if not all(sizes):
        return "some empty"
    if len(tensors) >= MANY:
        return "many"
    if len(tensors) == 1:
        return "one"
    return "alike" if len(set(tensors)) == 1 else "varied"


def values(case: Case) -> list[Value]:
    """The value of each parameter in a case."""
    found: list[Value] = [*case.flags.items(), (SHAPE, shape_class(case)), (INPUT, case.input.partition("#")[0])]
    return [*found, (GROUP, group_class(case))] if case.is_group else found


def coverage(suite: Suite) -> Iterator[Coverage]:
    everywhere = [case for name in suite.sets for case in suite.cases(name)]
    possible = frozenset(_possible(suite, everywhere))
    for name in suite.sets:
        cases = suite.cases(name)
        covered = frozenset(pair for case in cases for pair in itertools.combinations(values(case), 2))
        yield Coverage(suite.recipe, name, len(cases), covered, possible)


def table(found: Iterable[Coverage]) -> pd.DataFrame:
    rows = [[each.recipe, each.set_name, each.cases, *(each.counts(kinds) for kinds in COLUMNS)] for each in found]
    return pd.DataFrame(rows, columns=["recipe", "set", "cases", *COLUMNS])


def write(command: str, found: list[Coverage], folder: Path) -> list[Path]:
    notes = (
        "Pairs of values that met in some case of a set, of all that could: two values of flags if some case with both "
        "is legal, and otherwise any two that the recipe's sets have, so that an input for a few shapes alone counts "
        f"as missing elsewhere. shape: few rows (a GEMM's M up to {FEW_ROWS}), whole tiles (all extents multiples of "
        f"{TILE}), ragged; tensors of 2^31 elements are left out. group: all empty, some empty, many ({MANY} tensors "
        "or more), one, alike, varied."
    )
    text = ["# What the suites sweep", f"`{command}`", notes, markdown(table(found))]
    text.append("## What the full sets leave out")
    for each in found:
        if each.set_name == "full" and each.missing:
            text.append(f"**{each.recipe}**, {len(each.missing)}: {_missing_text(each.missing)}")
    return write_table(folder, "coverage", table(found), text)


def _possible(suite: Suite, cases: Iterable[Case]) -> Iterator[Pair]:
    yield from legal_values(suite, 2)
    others: dict[str, dict[Value, None]] = {SHAPE: {}, INPUT: {}, GROUP: {}}
    for case in cases:
        for kind, found in values(case):
            if kind in others and found != "huge":
                others[kind][kind, found] = None
    usable = [value for (value,) in legal_values(suite, 1)]
    yield from itertools.product(usable, itertools.chain(*others.values()))
    for one, other in itertools.combinations(others.values(), 2):
        yield from itertools.product(one, other)


def _missing_text(missing: Iterable[Pair]) -> str:
    """Text such as `rht=true with input exhaustive, ties; ...`: each value once, with the values it is missing with."""
    apart: dict[tuple[Value, str], list[str]] = {}
    for one, (kind, value) in missing:
        apart.setdefault((one, kind), []).append(spell(value))
    return "; ".join(
        f"{name}={spell(value)} with {kind} {', '.join(others)}" for ((name, value), kind), others in apart.items()
    )


def _kinds(pair: Pair) -> str:
    kinds = [kind if kind in (SHAPE, INPUT, GROUP) else "flag" for kind, _ in pair]
    return ", ".join(sorted(kinds, key=("flag", GROUP, SHAPE, INPUT).index))
