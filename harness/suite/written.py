"""What a suite's file says, read and parsed, but not yet checked against other suites."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from harness import files
from harness.contract.case import Flags
from harness.errors import UsageError
from harness.suite.schema import SuiteFile, nearest, parse
from harness.suite.yaml_lines import Document, read


def read_suite(path: Path) -> tuple[SuiteFile, Document]:
    """The file as a model, and where its parts stand. Raises UsageError without it, SuiteError for a wrong schema."""
    name = short(path)
    if not files.is_file(path):
        others = map(short, sorted(path.parent.glob("*.yaml")))
        raise UsageError(f"there is no suite {name}{nearest(name, others)}")
    document = read(path, name)
    return parse(document), document


def suite_path(recipe: str, folder: Path | None = None) -> Path:
    """Where the suite of a recipe lies. Raises UsageError, with the nearest choice, if the folder has none."""
    folder = folder or files.SUITES
    path = folder / f"{recipe}.yaml"
    if not files.is_file(path):
        raise UsageError(
            f"there is no recipe '{recipe}'{nearest(recipe, (path.stem for path in sorted(folder.glob('*.yaml'))))}"
        )
    return path.resolve()


def file_of(recipe: str) -> SuiteFile:
    """The file of a recipe's suite. Raises UsageError or SuiteError."""
    return _file(*same_file(suite_path(recipe)))


@cache
def _file(path: Path, written: int) -> SuiteFile:
    return read_suite(path)[0]


def same_file(path: Path) -> tuple[Path, int]:
    """A key that is another once the file is written again, for caches."""
    return path, path.stat().st_mtime_ns


def defaults_of(file: SuiteFile) -> Flags:
    """The flags of a case whose id names none: the first value of every axis."""
    return Flags({flag: values[0] for flag, values in file.axes.items()})


def short(path: Path) -> str:
    """How messages call a file: relative to the repository if it lies there."""
    return str(path.relative_to(files.ROOT)) if path.is_relative_to(files.ROOT) else str(path)
