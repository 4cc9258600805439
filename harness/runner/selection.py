"""Choose the cases of a run: a set or single ids of some suites, or one shard of them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.contract.case import Case
from harness.errors import UsageError
from harness.suite.schema import nearest
from harness.suite.suite import Suite, load_suites

FIXED_COST = 1 << 16  # elements that take as long as what every case does, however small


@dataclass(frozen=True)
class Selection:
    """The cases of each suite file. excluded: combinations that the recipes refuse, reason → count"""

    cases: dict[Path, tuple[Case, ...]]
    excluded: Counter[str]

    def __len__(self) -> int:
        return sum(map(len, self.cases.values()))

    def __iter__(self) -> Iterator[Case]:
        return itertools.chain.from_iterable(self.cases.values())


def select(paths: Iterable[Path], set_name: str, ids: Sequence[str] = (), shard: str = "1/1") -> Selection:
    """Choose a set of the given suites, or exactly `ids`, which need not be in any set.

    Raises UsageError (SuiteError for a bad suite) if a suite, set, id or shard does not exist.
    """
    suites = load_suites(paths)
    if ids:
        chosen = {suite.path: _by_id(suite, ids) for suite in suites}
        _check_recipes(suites, ids)
        excluded: Counter[str] = Counter()
    else:
        holders = [suite for suite in suites if set_name in suite.sets]
        if not holders:
            known = dict.fromkeys(name for suite in suites for name in suite.sets)
            names = ", ".join(suite.name for suite in suites)
            raise UsageError(f"there is no set '{set_name}' in {names}{nearest(set_name, known)}")
        chosen = {suite.path: suite.cases(set_name) for suite in holders}
        excluded = sum((suite.excluded(set_name) for suite in holders), Counter())
    index, count = _parse_shard(shard)
    if count > 1:
        mine = set(shards([case for cases in chosen.values() for case in cases], count)[index - 1])
        chosen = {path: tuple(case for case in cases if case in mine) for path, cases in chosen.items()}
    return Selection(chosen, excluded)


def shards(cases: Sequence[Case], count: int) -> list[list[Case]]:
    """Split cases into parts of like cost. The same cases give the same parts on every machine."""
    parts: list[list[Case]] = [[] for _ in range(count)]
    costs = [0] * count
    for case in sorted(cases, key=lambda case: (-cost(case), case.id)):
        cheapest = costs.index(min(costs))
        parts[cheapest].append(case)
        costs[cheapest] += cost(case)
    return parts


def cost(case: Case) -> int:
    """The time a case takes, in elements."""
    return case.work + FIXED_COST


def _by_id(suite: Suite, ids: Sequence[str]) -> tuple[Case, ...]:
    own = [case_id for case_id in ids if case_id.partition("/")[0] == suite.recipe]
    return tuple({case.id: case for case in map(suite.find, own)}.values())


def _check_recipes(suites: Sequence[Suite], ids: Sequence[str]) -> None:
    recipes = [suite.recipe for suite in suites]
    for case_id in ids:
        recipe = case_id.partition("/")[0]
        if recipe not in recipes:
            raise UsageError(f"{case_id}: '{recipe}' is not a recipe of this run{nearest(recipe, recipes)}")


def _parse_shard(shard: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", shard)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise UsageError(f"--shard {shard} is not i/n with 1 <= i <= n, as in 2/4")
    return index, count
