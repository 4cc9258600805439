"""Mutants of every place of the kernels and oracles, and a draw of some of them by a seed."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from evidence.mutants.catalogue import KERNELS, ORACLES, Mutant
from evidence.mutants.generated.change import Mutation
from evidence.mutants.generated.cuda_changes import changes_of_cuda
from evidence.mutants.generated.python_changes import changes_of_python
from evidence.mutants.places import Places, places, text_edit
from evidence.mutants.reach import recipes_of
from evidence.mutants.source import Scope, Source, folded, tokens_of
from harness.contract.case import FlagValue
from harness.files import PACKAGE
from harness.suite.suite import suite_of


@cache
def everywhere() -> tuple[Mutant, ...]:
    """One mutant for every place and mistake, in order of files."""
    return tuple(mutant for path in sources() for mutant in of_file(_name(path), places()))


def sources() -> list[Path]:
    """The kernels, headers and oracles that belong to some recipe."""
    paths = [path for tree in (KERNELS, ORACLES) for path in sorted((PACKAGE / tree).rglob("*"))]
    return [path for path in paths if path.suffix in (".cu", ".cuh", ".py") and recipes_of(_name(path))]


def draw(seed: int, count: int, mutants: Sequence[Mutant] | None = None) -> list[Mutant]:
    """Draw some mutants, by default from all: first from every file, then from the operators and files drawn least so
    far. A larger draw begins with the smaller one. Five of the seventeen operators are about concurrency, so they get
    that share of a draw while their places last.
    """
    chance = random.Random(seed)
    left: dict[str, dict[str, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
    for mutant in everywhere() if mutants is None else mutants:
        left[mutant.theme][mutant.file].append(mutant)
    for mutants_there in (there for files in left.values() for there in files.values()):
        chance.shuffle(mutants_there)
    order = {key: chance.random() for operator, files in left.items() for key in (operator, *files)}
    of_operator: Counter[str] = Counter()
    of_file: Counter[str] = Counter()
    unmet = sorted({file for files in left.values() for file in files}, key=order.__getitem__)
    drawn: list[Mutant] = []
    while len(drawn) < count and any(left.values()):
        having = [operator for operator in left if left[operator] and (not unmet or unmet[0] in left[operator])]
        operator = min(having, key=lambda operator: (of_operator[operator], order[operator]))
        file = unmet.pop(0) if unmet else min(left[operator], key=lambda file: (of_file[file], order[file]))
        drawn.append(left[operator][file].pop())
        of_operator[operator] += 1
        of_file[file] += 1
        if not left[operator][file]:
            del left[operator][file]
    return drawn


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def of_file(file: str, index: Places) -> Iterator[Mutant]:
    """One mutant for every place and mistake of a file below the index's root."""
    source = index.sources[file]
    text, flags = source.text, _defaults(file)
    changes = changes_of_python(text, flags) if source.python else changes_of_cuda(text, flags)
    return mutants_of(source, changes, index)


def mutants_of(
    source: Source, changes: Iterable[Mutation], index: Places, kind: type[Mutant] = Mutant
) -> Iterator[Mutant]:
    """A mutant for each change of a source that makes another text."""
    text, seen = source.text, set()
    for change in changes:
        wrong = text[: change.start] + change.wrong + text[change.end :]
        if wrong != text and wrong not in seen:
            seen.add(wrong)
            yield _mutant(source, change, index, kind)


def _defaults(file: str) -> dict[str, FlagValue]:
    """The default of each flag of the recipes that a file reaches, from the first recipe that has the flag."""
    return {name: value for recipe in reversed(recipes_of(file)) for name, value in suite_of(recipe).defaults.items()}


def _mutant(source: Source, change: Mutation, index: Places, kind: type[Mutant]) -> Mutant:
    """The change of a statement of its scope, with a name that stays when the scope moves or is formatted."""
    edit = text_edit(source, change.start, change.end, change.wrong)
    last = max(edit.last, edit.first + 1)
    scope = source.scope_of(edit.first, last)
    name = index.name_of(source, scope)
    first, last = _statement(source, scope, edit.first, last)
    start, end = source.tokens[first].start, source.tokens[last - 1].end
    right = folded(source.text, source.tokens[first:last])
    wrong = source.text[start : edit.start] + edit.new + source.text[edit.end : end]
    wrong = folded(wrong, tokens_of(wrong, source.python))
    equal = index.all_of(name, right)
    number = equal.index((source, first)) + 1 if len(equal) > 1 else 0
    digest = hashlib.sha256("\0".join((name, right, wrong, str(number))).encode()).hexdigest()[:6]
    return kind(
        name=f"{name} {change.operator} {digest}",
        story=change.operator,
        file=source.file,
        scope=name,
        right=right,
        wrong=wrong,
        number=number,
        theme=change.operator,
    )


def _statement(source: Source, scope: Scope, first: int, last: int) -> tuple[int, int]:
    """The tokens of the statement around tokens."""
    while first > scope.first and not source.ends[first - 1]:
        first -= 1
    while last < scope.last and not source.ends[last - 1]:
        last += 1
    return first, last
