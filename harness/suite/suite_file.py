"""The files of suites, ours and a user's: found by name, read and parsed, but not checked against other suites."""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from pathlib import Path

from harness import files
from harness.contract.case import Case, Flags
from harness.errors import SuiteError, UsageError
from harness.ground.yaml_lines import Document, read
from harness.oracles import by_recipe
from harness.suite.flag_values import holds
from harness.suite.schema import Degenerate, SuiteFile, parse
from harness.text import nearest

# A key that a card has, the YAML of compiled kernels' launches, and those of a suite, which need not be valid YAML
_OF_CARDS, _OF_SUITES = (
    re.compile(rb"^['\"]?(?:%s)['\"]? *:" % keys, re.MULTILINE) for keys in (b"code", b"axes|sets")
)
_SETTLED = 2_000_000_000  # nanoseconds; a second write after this time changes the file's mtime


def read_suite(path: Path) -> tuple[SuiteFile, Document]:
    """Read the file into a model. Raises UsageError if it does not exist, SuiteError if the schema refuses it."""
    name = short(path)
    if not files.is_file(path):
        others = map(short, sorted(path.parent.glob("*.yaml")))
        raise UsageError(f"there is no suite {name}{nearest(name, others)}")
    if is_card_file(path):
        raise SuiteError(f"{name}:1", _NO_SUITE.format(name))
    return _parsed(path, content_of(path))


def is_card_file(path: Path) -> bool:
    """Whether a file is a card, and no suite, by its keys alone: one with a mistake in it is still what it is."""
    content = content_of(path)
    return bool(_OF_CARDS.search(content)) and not _OF_SUITES.search(content)


_NO_SUITE = (
    "this is a card, which launches compiled kernels, and no suite; run it by `harness verify RECIPE --subject {}`"
)


def content_of(path: Path) -> bytes:
    """A file's bytes, which are the key for cached results; empty for a file that `read` will refuse."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@lru_cache(maxsize=64)
def _parsed(path: Path, content: bytes) -> tuple[SuiteFile, Document]:
    document = read(path, short(path), "recipe")
    return parse(document), document


def suite_path(recipe: str, folder: Path | None = None) -> Path:
    """The path of a recipe's suite. Raises UsageError, with the nearest choice, if the folder has none."""
    folder = folder or files.recipe_dir(recipe) or files.SUITES
    path = folder / f"{recipe}.yaml"
    if recipe.endswith(".yaml") and is_card_file(Path(recipe)):
        raise UsageError(f"{short(Path(recipe))}: {_NO_SUITE.format(short(Path(recipe)))}")
    cards = (other / f"{recipe}.yaml" for other in dict.fromkeys(files.RECIPE_DIRS.values()))
    for card in filter(is_card_file, cards if recipe not in files.RECIPE_DIRS else ()):
        raise UsageError(f"{short(card)}: {_NO_SUITE.format(short(card))}")
    if not files.is_file(path):
        others = (*files.RECIPE_DIRS, *(path.stem for path in sorted(folder.glob("*.yaml"))))
        raise UsageError(f"there is no recipe '{recipe}'{_in_a_folder(recipe) or nearest(recipe, others)}")
    return path.resolve()


def _in_a_folder(recipe: str) -> str:
    """A hint if a user's recipe of this name, or in this file, lies in a folder that was not named; else empty."""
    if recipe.endswith(".yaml") and files.is_file(Path(recipe)):
        named = Path(recipe)
        return f"; a recipe is a name, as in `harness verify {named.stem} --recipe-dir {named.parent}`"
    for folder in (Path(recipe), Path()):
        if recipe.isidentifier() and files.is_file(folder / f"{recipe}.yaml"):
            return f" in the harness, and one in a folder here: add --recipe-dir {folder}, if the command has it"
    return ""


def file_of(recipe: str) -> SuiteFile:
    """The file of a recipe's suite, read again only if its size or time changed, because every case of a pipeline asks
    for those of its stages. Raises UsageError or SuiteError.
    """
    path = f"{files.recipe_dir(recipe) or files.SUITES}/{recipe}.yaml"  # a Path takes longer than all else here
    state = settled_state(path)
    if state is None:
        return read_suite(suite_path(recipe))[0]  # raises the right error if the file is missing
    return _unchanged(recipe, path, state)


@lru_cache(maxsize=64)
def _unchanged(recipe: str, path: str, state: tuple[int, ...]) -> SuiteFile:
    return read_suite(suite_path(recipe))[0]


def settled_state(path: Path | str) -> tuple[int, ...] | None:
    """A key that changes when the file changes; None if it is missing, or too new for a change to show."""
    try:
        status = os.stat(path)  # noqa: PTH116 - of a text, too
    except OSError:
        return None
    settled = abs(time.time_ns() - status.st_mtime_ns) >= _SETTLED
    return (status.st_ino, status.st_mtime_ns, status.st_size) if settled else None


def defaults_of(file: SuiteFile) -> Flags:
    """The first value of every axis: the flags of a case whose id names none."""
    return Flags({flag: values[0] for flag, values in file.axes.items()})


def short(path: Path) -> str:
    """The path relative to the repository if it lies there, for messages."""
    return str(path.relative_to(files.ROOT)) if path.is_relative_to(files.ROOT) else str(path)


def use_recipe_dir(folder: Path) -> tuple[str, ...]:
    """Make the recipes of a folder known by name, and return their names.

    Raises UsageError for a folder without a suite, and for a recipe whose name is taken.
    """
    folder = files.resolved_path(folder)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} with recipes; `harness new NAME` makes one")
    found = sorted(path for path in folder.glob("*.yaml") if not path.is_dir())
    cards = [path for path in found if is_card_file(path)]  # for `--subject`; they may lie beside the recipe
    names = tuple(path.stem for path in found if path not in cards)
    if cards and not names:
        raise UsageError(f"{folder} has no suite; {cards[0].name}: {_NO_SUITE.format(cards[0])}")
    if not names:
        raise UsageError(f"{folder} has no suite S.yaml beside S.cu and S.py; `harness new NAME` writes the three")
    for name in names:
        if is_ours(name) or files.recipe_dir(name) not in (None, folder):
            where = "the harness" if is_ours(name) else str(files.recipe_dir(name))
            raise UsageError(f"{folder / name}.yaml: the name '{name}' is taken by a file of {where}; choose another")
    for name in names:
        files.RECIPE_DIRS[name] = folder
        if (folder / f"{name}.cu").is_file() or (folder / f"{name}.py").is_file():  # a pipeline has neither file
            by_recipe.use(name, folder / f"{name}.py")
    return names


def is_recipe(word: str) -> bool:
    """Whether a word on a command line is the name of a recipe or pipeline, ours or the user's, and not of a folder."""
    return word in files.RECIPE_DIRS or (word.isidentifier() and (files.SUITES / f"{word}.yaml").is_file())


def recipe_names() -> tuple[str, ...]:
    """The names of all recipes and pipelines, the user's first."""
    return (*files.RECIPE_DIRS, *(path.stem for path in sorted(files.SUITES.glob("*.yaml"))))


def is_ours(name: str) -> bool:
    """Whether a suite, an oracle or a kernel of the harness has this name."""
    ours = files.SUITES / f"{name}.yaml", files.PACKAGE / "oracles" / f"{name}.py", files.KERNELS / f"{name}.cu"
    return any(path.is_file() for path in ours)


def declared_degenerate(case: Case, field: str) -> bool:
    """Whether the case's suite declares that this field has few different values."""
    try:
        entries = file_of(case.recipe).degenerate
    except UsageError:  # the case has no suite
        return False
    return any(covers(entry, case, field) for entry in entries)


def covers(entry: Degenerate, case: Case, field: str) -> bool:
    return (
        (not entry.inputs or case.input in entry.inputs)
        and (not entry.shapes or case.shape in entry.shapes)
        and (not entry.fields or field in entry.fields)
        and holds(entry.when, case.flags)
    )
