"""Mutants of every place of the kernels and oracles, and a draw of some of them by a seed."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from evidence.mutants.catalogue import KERNELS, ORACLES, Mutant
from evidence.mutants.generated.change import CONCURRENCY, Change
from evidence.mutants.generated.cuda_changes import changes_of_cuda
from evidence.mutants.generated.python_changes import changes_of_python
from evidence.mutants.reach import recipes_of
from harness.contract.case import FlagValue
from harness.files import PACKAGE
from harness.suite.suite import suite_of

_TELLING = 40  # characters; shorter lines, such as a lone barrier, are shown with their neighbours


@cache
def everywhere() -> tuple[Mutant, ...]:
    """One mutant for every place and mistake, in order of files."""
    return tuple(mutant for path in sources() for mutant in _of_file(path))


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
    for places in (places for files in left.values() for places in files.values()):
        chance.shuffle(places)
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


def is_concurrency(mutant: Mutant) -> bool:
    return mutant.theme in CONCURRENCY


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _of_file(path: Path) -> Iterator[Mutant]:
    text = path.read_text(encoding="utf-8")
    flags = _defaults(_name(path))
    changes = changes_of_python(text, flags) if path.suffix == ".py" else changes_of_cuda(text, flags)
    seen: set[str] = set()
    for change in changes:
        wrong = text[: change.start] + change.wrong + text[change.end :]
        if wrong != text and wrong not in seen:
            seen.add(wrong)
            yield _mutant(_name(path), text, change)


def _defaults(file: str) -> dict[str, FlagValue]:
    """The default of each flag of the recipes that a file reaches, from the first recipe that has the flag."""
    return {name: value for recipe in reversed(recipes_of(file)) for name, value in suite_of(recipe).defaults.items()}


def _mutant(file: str, text: str, change: Change) -> Mutant:
    """The change as whole lines, with enough neighbours for the text to be unique and recognisable."""
    first = text.rfind("\n", 0, change.start) + 1
    last = text.find("\n", change.end)
    last = len(text) if last < 0 else last
    while first and (len(text[first:last].strip()) < _TELLING or text.count(text[first:last]) > 1):
        first = text.rfind("\n", 0, first - 1) + 1
    right = text[first:last]
    wrong = text[first : change.start] + change.wrong + text[change.end : last]
    line = text.count("\n", 0, change.start) + 1
    digest = hashlib.sha256("\0".join((file, right, wrong)).encode()).hexdigest()[:6]
    return Mutant(
        name=f"{Path(file).name}:{line} {change.operator} {digest}",
        story=change.operator,
        file=file,
        right=right,
        wrong=wrong,
        theme=change.operator,
    )
