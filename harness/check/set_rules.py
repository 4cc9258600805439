"""Rules that the cases of a suite of the tree keep: which there are, and that an oracle takes them.

Every error is a sentence that starts with `file:line`.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from harness.check.upstream import SET as UPSTREAM
from harness.contract.case import Case, Flags, FlagValue
from harness.errors import ContractError
from harness.expected import expected
from harness.expected.witness import fields
from harness.suite import cover, shapes
from harness.suite.flag_values import refusal_of_row
from harness.suite.schema import Degenerate
from harness.suite.suite import Suite
from harness.suite.suite_file import covers
from harness.text import spell

# Cases of a set: smoke runs on a laptop's CPU in about two minutes, full on one GPU in about ten.
MOST_CASES = {"smoke": 160, "full": 2_850}
LEAST_TRIED = 4_000  # combinations of flags that the oracle is asked about, if there are so many
PRIMES = (7, 11, 13)  # of more, each 7th, 77th or 1001st: they divide no flag's number of values, so that any four meet
LARGEST = 1 << 20  # elements of a case that a `degenerate` entry is tried with

Value = tuple[str, FlagValue]  # a flag and one of its values


def errors(suite: Suite) -> Iterator[str]:
    """The mistakes in the cases of a suite, a pipeline's too."""
    for name, most in MOST_CASES.items():
        if len(suite.cases(name)) > most:
            found = f"the set {name} has {len(suite.cases(name))} cases; at most {most} are run in the time it may take"
            yield f"{suite.document.where('sets', name)}: {found}"
    met = {pair for case in suite.cases("full") for pair in itertools.combinations(case.flags.items(), 2)}
    for pair in legal_values(suite, 2):
        if pair not in met:
            both = " and ".join(f"{flag}={spell(value)}" for flag, value in pair)
            yield f"{suite.document.where('sets', 'full')}: no case of the full set has {both}, which is legal"
    oracle = expected.oracle_of(suite.recipe)
    refused = list(_refused_cases(suite, oracle))
    yield from refused or _refusal_errors(suite, oracle)
    if not refused:
        yield from _stale_errors(suite)


def legal_values(suite: Suite, together: int) -> Iterator[tuple[Value, ...]]:
    """Every so many values of different flags that some legal combination has, in the order of the axes."""
    flags = list(suite.file.axes)
    choices = [suite.file.axes[flag] for flag in flags]
    sizes = [len(values) for values in choices]
    refused = refusal_of_row(suite.file, suite.file.axes, pairwise=False)

    for axes in itertools.combinations(range(len(sizes)), together):
        for row in itertools.product(*(range(sizes[axis]) for axis in axes)):
            some = tuple(zip(axes, row, strict=True))
            if cover.legal(cover.partial(some, len(sizes)), sizes, lambda row: refused(row) is not None):
                yield tuple((flags[axis], choices[axis][i]) for axis, i in some)


def _refused_cases(suite: Suite, oracle: Any) -> Iterator[str]:
    """Sizes, too: an exclusion speaks of flags only."""
    seen = set()
    for name in suite.sets:
        for case in suite.cases(name):
            if (case.flags, case.problem) in seen:
                continue
            seen.add((case.flags, case.problem))
            try:
                oracle.outputs(case)
            except ContractError as error:
                yield f"{case.where}: the oracle refuses {case.id}: {error}; the suite must exclude it"
                return


def _refusal_errors(suite: Suite, oracle: Any) -> Iterator[str]:
    """A refusal stands in the suite as an exclusion and in the oracle as an error, and the two must agree."""
    if not suite.file.exclude:
        return
    at = suite.document.where("exclude")
    if not hasattr(oracle, "refuse"):
        yield f"{at}: the suite excludes combinations, and its oracle has no function 'refuse', which refuses the same"
        return
    axes, refused = suite.file.axes, 0
    refusal_of = refusal_of_row(suite.file, axes, pairwise=False)
    sizes = [len(values) for values in axes.values()]
    met: dict[str, list[set[int]]] = defaultdict(lambda: [set() for _ in sizes])
    shape, stride = "128x128x128" if suite.file.gemm else "128x128", 1
    for prime in PRIMES:
        tried = math.prod(sizes) // (stride * prime)
        stride *= prime if tried >= LEAST_TRIED and all(size % prime for size in sizes) else 1
    numbers = np.unravel_index(np.arange(0, math.prod(sizes), stride), sizes)  # of `cover.product`, every so many
    for row in zip(*(column.tolist() for column in numbers), strict=True):
        reason = refusal_of(row)
        if reason is not None:  # of these, one for each value beside each reason
            if all(map(set.__contains__, met[reason], row)):
                continue
            for values, i in zip(met[reason], row, strict=True):
                values.add(i)
        flags = {flag: values[i] for (flag, values), i in zip(axes.items(), row, strict=True)}
        problem = shapes.problem(suite.file, shape, flags)
        chosen = ", ".join(f"{flag}={spell(flags[flag])}" for flag in axes if flags[flag] != axes[flag][0])
        try:
            oracle.refuse(Case(suite.recipe, Flags(flags), problem, dense_defaults=suite.dense_defaults))
        except ContractError as refusal:  # the oracle may take what the suite excludes, as long as it refuses anything
            refused += 1
            if reason is None:
                yield f"{at}: the oracle refuses {chosen or 'the defaults'}: {refusal}; the suite must exclude it, too"
                return
        except Exception as error:
            what = f"`refuse` of the oracle raised {type(error).__name__}: {error}"
            yield f"{at}: asked about {chosen or 'the defaults'}, {what}; it raises ContractError, or nothing"
            return
    if not refused:
        yield f"{at}: the suite excludes combinations, and its oracle refuses none; `refuse` raises ContractError there"


def _stale_errors(suite: Suite) -> Iterator[str]:
    """Entries of `degenerate` that no small case of the smoke, full or upstream set needs."""
    if not suite.file.degenerate:
        return
    sets = [name for name in ("smoke", "full", UPSTREAM) if name in suite.file.sets]
    cases = {case.id: case for name in sets for each in suite.cases(name) for case in [replace(each, mode="eager")]}
    small = [case for case in cases.values() if case.elements <= LARGEST and case.terms <= 1 << 26]
    for index, entry in enumerate(suite.file.degenerate):
        whatever_the_field = entry.model_copy(update={"fields": []})
        if not any(needed(entry, case) for case in small if covers(whatever_the_field, case, "")):
            at = suite.document.where("degenerate", index)
            yield f"{at}: no case needs this entry, {entry.because}; remove it"


def needed(entry: Degenerate, case: Case) -> bool:
    """Whether the case has a field with too few different values, which the entry excuses."""
    values = expected.oracle_of(case.recipe).numpy_oracle(case, expected.make_inputs(case))
    counts = fields.counted(expected.fields_of(case), values)
    return any(few < least and covers(entry, case, name) for name, _, few, least in counts)
