"""Choose the cases of a run: a set or single ids of some suites, one shard of them, and what -k and node ids leave."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.contract.case import Case, FlagValue, with_later
from harness.errors import UsageError
from harness.records.seal import selection_digest
from harness.suite.suite import Suite, load_suites
from harness.suite.wanted import Wanted
from harness.text import nearest

FIXED_COST = 1 << 16  # in elements: the time for the fixed work of a case
PROCESS_COST = 16 * FIXED_COST  # and for starting a process: loading torch and Numba takes seconds


@dataclass(frozen=True)
class Narrowing:
    """How a command line leaves out cases of a set.

    wanted: the flags and the shape that cases must have
    keyword: the expression of -k, matched like pytest against case ids and file names
    nodes: the cases named by `FILE::ID`, for each file that is not named as a whole
    deselected: prefixes of node ids, from --deselect; rootdir: the folder they are relative to
    """

    wanted: Wanted = Wanted()
    keyword: str = ""
    nodes: Mapping[Path, frozenset[str]] = field(default_factory=dict)
    deselected: tuple[str, ...] = ()
    rootdir: Path = Path()

    def keeps(self) -> Callable[[Path, Case], bool]:
        """Whether a case of a suite file stays. Raises UsageError for a keyword that cannot be read."""
        matches = _matcher(self.keyword)

        def keep(path: Path, case: Case) -> bool:
            if case.id not in self.nodes.get(path, (case.id,)):
                return False
            near = path.relative_to(self.rootdir) if path.is_relative_to(self.rootdir) else path
            if f"{near}::{case.id}".startswith(self.deselected):
                return False
            return matches((case.id.lower(), path.name.lower()))

        return keep


@dataclass(frozen=True)
class Meant:
    """The cases that a subject is for. recipe: a card's; empty for a function, which may be called for several recipes
    flags: the values that it takes, of the flags that it names; a function's recipes need not have all of them

    A set spreads its shapes and inputs over all combinations of flags, so that few of its cases, or none, have those of
    one kernel.
    """

    recipe: str
    flags: Mapping[str, Sequence[FlagValue]]

    def takes(self, suite: Suite) -> bool:
        """Whether the cases of a suite take on the flags."""
        return suite.recipe == self.recipe if self.recipe else not self.flags.keys().isdisjoint(suite.file.axes)

    def cases(self, suite: Suite, set_name: str) -> tuple[Case, ...]:
        """The cases of a set, each once and with the subject's flags in place of others.

        Left out are cases whose other flags, or whose shape, the recipe refuses with these. Raises UsageError, with the
        reason for one, if it refuses all.
        """
        found: dict[str, Case] = {}
        refused = None
        for case in suite.cases(set_name):
            try:
                mine = self._meant(suite, case)
                found.setdefault(mine.id, mine)
            except UsageError as error:
                refused = error
        if refused and not found:
            raise refused
        return tuple(found.values())

    def _meant(self, suite: Suite, case: Case) -> Case:
        named = with_later(self.flags, case.defaults)
        flags = {flag: values for flag, values in named.items() if self.recipe or flag in case.flags}
        others = {flag: values[0] for flag, values in flags.items() if case.flags.get(flag) not in values}
        if not others or not others.keys() <= case.flags.keys():  # a card with an unknown flag is refused by its check
            return case
        return replace(suite.find(replace(case, flags=case.flags.replace(**others)).id), where=case.where)


@dataclass(frozen=True)
class Selection:
    """The cases of each suite file that has the set.

    paths: all suite files that were named
    excluded: combinations that the recipes refuse, reason → count; total: how many cases there were before narrowing
    set_name: empty if single ids were chosen; unsharded: a digest of the cases of all shards before narrowing
    """

    paths: tuple[Path, ...]
    cases: dict[Path, tuple[Case, ...]]
    excluded: Counter[str]
    total: int
    set_name: str = ""
    unsharded: str = ""

    def __len__(self) -> int:
        return sum(map(len, self.cases.values()))

    @property
    def by_id(self) -> dict[str, Case]:
        return {case.id: case for cases in self.cases.values() for case in cases}

    @property
    def worth_processes(self) -> int:
        """How many processes have enough work to pay for their start."""
        return sum(cost(case) for cases in self.cases.values() for case in cases) // PROCESS_COST

    @property
    def digest(self) -> str:
        """A digest that is equal for equal selections of cases."""
        return selection_digest(self.by_id)

    @property
    def is_whole_set(self) -> bool:
        """Whether the selection has all cases of a set."""
        return bool(self.set_name) and self.digest == self.unsharded


def select(
    paths: Iterable[Path],
    set_name: str,
    ids: Sequence[str] = (),
    shard: str = "1/1",
    narrowing: Narrowing | None = None,
    meant: Meant | None = None,
) -> Selection:
    """Choose a set of the given suites, or exactly `ids`, which need not be in any set.

    meant: what a subject is for; a set's cases then take on its flags
    Raises UsageError (SuiteError for a bad suite) if a suite, set, id or shard does not exist.
    """
    suites = load_suites(paths)
    narrowing = narrowing or Narrowing()
    if ids:
        if narrowing.wanted:
            raise UsageError(
                "--flag and --shape choose among the cases of a set, and --case names its own; leave one out"
            )
        chosen = {suite.path: _by_id(suite, ids) for suite in suites}
        _check_recipes(suites, ids)
        excluded: Counter[str] = Counter()
    else:
        holders = [suite for suite in suites if set_name in suite.known_sets]
        if not holders:
            known = dict.fromkeys(name for suite in suites for name in suite.known_sets)
            names = ", ".join(suite.name for suite in suites)
            raise UsageError(f"there is no set '{set_name}' in {names}{nearest(set_name, known)}")
        keep = narrowing.wanted.keeps(holders)  # before the sets are expanded, so that a wrong flag is refused at once
        chosen = {suite.path: suite.cases(set_name) for suite in holders}
        if meant:
            chosen |= {suite.path: meant.cases(suite, set_name) for suite in holders if meant.takes(suite)}
        excluded = sum((suite.excluded(set_name) for suite in holders), Counter())
    by_path = {suite.path: suite for suite in suites}
    whole = [(by_path[path], case) for path, cases in chosen.items() for case in cases]
    kept = {case.id for suite, case in whole if not narrowing.wanted or keep(suite, case)}
    if narrowing.wanted and not kept:
        raise UsageError(narrowing.wanted.none_of(whole, set_name))
    index, count = _parse_shard(shard)
    unsharded = selection_digest(case.id for cases in chosen.values() for case in cases)
    if count > 1:
        mine = set(shards([case for cases in chosen.values() for case in cases], count)[index - 1])
        chosen = {path: tuple(case for case in cases if case in mine) for path, cases in chosen.items()}
    total = sum(map(len, chosen.values()))
    paths = tuple(suite.path for suite in suites)
    left = {
        path: tuple(case for case in cases if case.id in kept) for path, cases in _narrowed(chosen, narrowing).items()
    }
    return Selection(paths, left, excluded, total, "" if ids or meant else set_name, unsharded)


def shards(cases: Sequence[Case], count: int) -> list[list[Case]]:
    """Split cases into parts of similar cost. The same cases give the same parts on every machine.

    The modes of a case stay together, because they share its inputs and the answers of the oracles.
    """
    together: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.id):
        together.setdefault(case.data_id, []).append(case)
    parts: list[list[Case]] = [[] for _ in range(count)]
    costs = [0] * count
    for modes in sorted(together.values(), key=lambda modes: (-sum(map(cost, modes)), modes[0].id)):
        cheapest = costs.index(min(costs))
        parts[cheapest] += modes
        costs[cheapest] += sum(map(cost, modes))
    return parts


def cost(case: Case) -> int:
    """The time that a case takes, in units of elements."""
    return case.work + FIXED_COST


def _narrowed(chosen: Mapping[Path, tuple[Case, ...]], narrowing: Narrowing) -> dict[Path, tuple[Case, ...]]:
    keep = narrowing.keeps()
    for path, nodes in narrowing.nodes.items():
        absent = sorted(nodes - {case.id for case in chosen.get(path, ())})
        if absent:
            raise UsageError(f"{path.name}::{absent[0]} is not found among the selected cases; --case takes any id")
    return {path: tuple(case for case in cases if keep(path, case)) for path, cases in chosen.items()}


def _matcher(keyword: str) -> Callable[[Sequence[str]], bool]:
    if not keyword.strip():
        return lambda names: True
    from _pytest.mark.expression import Expression

    try:
        expression = Expression.compile(keyword)
    except Exception as error:  # a class that differs from one pytest to the next
        flag = re.search(r"[A-Za-z_]\w*=[^\s()]+", keyword)
        hint = f"{error}" if not flag else f"pytest's -k takes no '='; say it as a flag, --flag {flag[0]}"
        raise UsageError(f"-k {keyword!r} cannot be read: {hint}") from None
    return lambda names: expression.evaluate(lambda word, **_: any(word.lower() in name for name in names))


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
