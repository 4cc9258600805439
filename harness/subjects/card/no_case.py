"""The sentence about a card of which no case was selected, and a case that it does take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from harness.contract.case import Case, FlagValue, spell
from harness.errors import HarnessError
from harness.subjects.card.schema import CardFile
from harness.suite.command_lines import quoted
from harness.suite.launch_plan import numbers
from harness.suite.suite import Suite, suite_of

_MOST_TRIED = 1000  # combinations of the card's flags
_MOST_SETS = 2
_SIDES = 128, 64, 16  # a multiple of one of these is an extent of the case that is tried where no set has one


Refuses = Callable[[Case], str]


def sentence(card: CardFile, refuses: Refuses, cases: Sequence[Case]) -> str:
    """Why a card takes none of the selected cases, and what to select in place of them.

    refuses: why the card does not take a case, empty if it does
    """
    recipe = card.recipe
    of_recipe = [case for case in cases if case.recipe == recipe]
    none = f"none of the {len(cases)} selected cases"
    if not of_recipe:
        return f"{none} is of {recipe}; name the recipe of the card, as in `harness verify {recipe}`"
    suite = suite_of(recipe)
    wanted = _wanted(card, of_recipe)
    told = f"{none} {'is of ' + recipe + ' and ' if len(of_recipe) < len(cases) else ''}has {', '.join(wanted)}"
    told += " together" if len(wanted) > 1 else ""
    taken = {name: _taken(refuses, suite.cases(name)) for name in suite.sets}
    example = min(itertools.chain(*taken.values()), key=_rank, default=None)
    if example:
        sets = " and ".join([f"{len(found)} of `--set {name}`" for name, found in taken.items() if found][:_MOST_SETS])
        return f"{told}; {sets} {'have' if sets[:2] != '1 ' or ' and ' in sets else 'has'}, as {_option(example)}"
    made, why = _made(card, refuses, suite)
    return f"{told}; {_option(made)}, of no set, has" if made else f"{told}, and none that was tried has: {why}"


def _rank(case: Case) -> tuple[int, bool, str]:
    return case.work, case.input != "normal", case.id


def _option(case: Case) -> str:
    return f"`--case {quoted(case.id)}`"


def _taken(refuses: Refuses, cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if case.mode == "eager" and not refuses(case)]


def _wanted(card: CardFile, cases: Sequence[Case]) -> list[str]:
    """A few of the card's demands that no case meets together."""
    demands, most = _demands(card), list(_demands(card))
    for each in _demands(card):
        fewer = [other for other in most if other != each]
        if fewer and not any(all(demands[other](case) for other in fewer) for case in cases):
            most = fewer
    return most


def _demands(card: CardFile) -> dict[str, Callable[[Case], bool]]:
    """What the card demands of a case, each as words and as a test of a case."""
    found: dict[str, Callable[[Case], bool]] = {}
    for flag, values in card.flags.items():
        found[f"{flag}={'|'.join(map(spell, values))}"] = partial(_has_flag, flag, values)
    for name, multiple in card.multiple_of.items():
        found[f"{name} that are a multiple of {multiple}"] = partial(_has_multiple, name, multiple)
    if card.most_elements:
        found[f"at most {card.most_elements} elements"] = partial(_is_small, card.most_elements)
    return found


def _has_flag(flag: str, values: Sequence[FlagValue], case: Case) -> bool:
    return case.flags.get(flag) in values


def _has_multiple(name: str, multiple: int, case: Case) -> bool:
    return numbers(case).get(name, 0) % multiple == 0


def _is_small(most: int, case: Case) -> bool:
    return case.elements <= most


def _made(card: CardFile, refuses: Refuses, suite: Suite) -> tuple[Case | None, str]:
    """A case that no set has and the card takes, or why the first one that was tried is none."""
    reasons = []
    for case_id in itertools.islice(_ids(card, suite), _MOST_TRIED):
        try:
            case = suite.find(case_id)
        except HarnessError as error:
            reasons.append(str(error))
            continue
        refusal = refuses(case)
        if not refusal:
            return case, ""
        reasons.append(f"{case_id}: {refusal}")
    return None, next(iter(reasons), "it has no flags")


def _ids(card: CardFile, suite: Suite) -> Iterator[str]:
    known = [case for name in suite.sets for case in suite.cases(name)]
    of_sets = dict.fromkeys(case.shape for case in sorted(known, key=lambda case: case.work) if case.elements)
    names = ("M", "K", "N") if suite.file.gemm else ("rows", "cols")
    multiples = [card.multiple_of.get(name, 1) for name in names]
    shapes = ["x".join(str(math.lcm(side, multiple)) for multiple in multiples) for side in _SIDES]
    shapes += of_sets
    flags = card.flags
    for values in itertools.product(*flags.values()):
        said = [
            f"{flag}={spell(value)}" for flag, value in zip(flags, values, strict=True) if suite.defaults[flag] != value
        ]
        for shape in shapes:
            yield f"{suite.recipe}/{','.join(said) or 'default'}/{shape}/{known[0].input}/eager"
