"""Mutants of host code: what decides whether bytes are right, which cases there are, and how a process exits."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from pydantic import Field

from evidence.mutants.catalogue import Mutant
from evidence.mutants.generated.draw import mutants_of
from evidence.mutants.generated.host_changes import changes_of_host
from evidence.mutants.generated.score import LEAST_CAUGHT, Score
from evidence.mutants.places import Places
from harness.files import PACKAGE, ROOT
from harness.report.tables import markdown


class Area(NamedTuple):
    """files: below `harness/`; tests: the folders below `tests/` that must notice a mistake in them"""

    files: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "comparator": Area(
        ("verify/judge.py", "verify/verify.py", "device/device.py", "device/emulator.py", "contract/interval.py"),
        ("verify", "device", "contract", "expected"),
    ),
    "corners": Area(("verify/corner.py", "device/corner.py"), ("verify", "device")),
    "geometry": Area(("jit/geometry.py", "suite/launch_plan.py", "suite/shapes.py"), ("jit", "suite")),
    "exclusions": Area(("suite/flag_values.py", "device/capability.py"), ("suite", "device")),
    "decisions": Area(("gate/decision.py", "gate/against_baseline.py"), ("gate",)),
    "exit codes": Area(
        (
            "verdict.py", "errors.py", "runner/outcome.py", "runner/run.py", "runner/supervisor.py",
            "runner/below_supervisor.py",
        ),
        ("runner", "gate", "verify", "report"),
    ),
}  # fmt: skip
# A file that does much else has only these scopes in its area.
SCOPES = {"device/emulator.py": ("EmulatorDevice.accepts", "EmulatorDevice.admit", "EmulatedProgram.run")}

_FROM, _WORD = re.compile(r"^from [\w.]+ import (?:\([^)]*\)|.*)", re.MULTILINE), re.compile(r"\w+")
_PROCESSES = re.compile(r"^import (subprocess|signal)$", re.MULTILINE)


@cache
def host_places() -> Places:
    return Places(PACKAGE, [PACKAGE / file for area in AREAS.values() for file in area.files])


class HostMutant(Mutant):
    """A change of one place of host code. file: below `harness/`"""

    file: str = Field(pattern=r"^(\w+/)?\w+\.py$")

    @property
    def index(self) -> Places:
        return host_places()

    @property
    def area(self) -> str:
        return next(name for name, area in AREAS.items() if self.file in area.files)

    def same_syntax(self) -> bool:
        """Whether the mistake is none to the parser. Raises SyntaxError for what is no Python."""
        right = self.index.sources[self.file].text
        return ast.dump(ast.parse(self.changed())) == ast.dump(ast.parse(right))

    def tests(self) -> list[str]:
        """The test files that must notice it, as paths below the checkout. Those that import its file come first. Among
        these and among the others, those that start processes come last, because they take minutes.
        """
        module = self.file.removesuffix(".py").rpartition("/")[2]
        folders = [ROOT / "tests" / folder for folder in AREAS[self.area].tests]
        paths = [path for folder in folders for path in sorted(folder.rglob("test_*.py"))]
        paths.sort(key=lambda path: (module not in _facts(path)[1], _facts(path)[0]))
        return [path.relative_to(ROOT).as_posix() for path in paths]


@cache
def _facts(path: Path) -> tuple[bool, frozenset[str]]:
    """Whether a test file starts processes, and every word of what it imports."""
    text = path.read_text(encoding="utf-8")
    words = _WORD.findall(" ".join(_FROM.findall(text)))
    return bool(_PROCESSES.search(text)), frozenset(words)


@cache
def host_mutants() -> tuple[Mutant, ...]:
    """One mutant for every place and mistake, in order of files."""
    return tuple(mutant for file in host_places().sources for mutant in _of_file(file))


def _of_file(file: str) -> list[Mutant]:
    source, only = host_places().sources[file], SCOPES.get(file)
    starts = [(source.tokens[scope.first].start, source.tokens[scope.last - 1].end) for scope in source.scopes
              if only is None or scope.name in only]  # fmt: skip
    changes = (
        change
        for change in changes_of_host(source.text)
        if any(start <= change.start and change.end <= end for start, end in starts)
    )
    return list(mutants_of(source, changes, host_places(), HostMutant))


def digest() -> str:
    """Digest of all that decides whether a mutant survives: the tests and the code under test."""
    found = hashlib.sha256()
    for path in sorted(path for tree in ("harness", "tests") for path in (ROOT / tree).rglob("*.py")):
        found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def enough(table: pd.DataFrame) -> bool:
    score = Score.of(table)
    return score.share(score.caught) >= LEAST_CAUGHT


def sentence(table: pd.DataFrame) -> str:
    score = Score.of(table)
    return (
        f"{score.drawn} were drawn and {score.discarded} discarded; of the other {score.mutants}, {score.caught} "
        f"({100 * score.share(score.caught):.1f} %) are caught by the tests of their folders"
    )


def section(table: pd.DataFrame) -> list[str]:
    """Paragraphs and tables, as Markdown."""
    of_file = {file: name for name, area in AREAS.items() for file in area.files}
    areas = [of_file[file] for file in table["file"]]
    rows = [
        {"area": name, "tests": ", ".join(f"tests/{folder}" for folder in area.tests), **_counts(table, areas, name)}
        for name, area in AREAS.items()
        if name in areas
    ]
    left = table[(table["discarded"] == "") & (table["caught by"] == "")]
    text = [
        "# Mutants of host code",
        "One mistake of a kind at a place of the Python that compares, that makes cases and excludes them, that "
        "decides on times, and that exits, drawn by a seed. Texts, annotations, imports and decorators are no places. "
        "Only the tests of its area are run on each, but for the slow ones; one that does not end counts as caught. "
        "Discarded are those that cannot be imported, those that are the same to the parser, and those proved "
        "equivalent in [equivalent.yaml](../evidence/mutants/generated/equivalent.yaml). "
        f"`{table['command'].iloc[0]}` makes these tables. {sentence(table)}.",
        markdown(pd.DataFrame(rows)),
    ]
    if len(left):
        text += ["## Survivors", markdown(left[["operator", "place", "right", "wrong", "reason"]])]
    return text


def _counts(table: pd.DataFrame, areas: Sequence[str], name: str) -> dict[str, int]:
    score = Score.of(table[[area == name for area in areas]])
    return {"drawn": score.drawn, "discarded": score.discarded, "caught": score.caught,
            "survivors": score.mutants - score.caught}  # fmt: skip
