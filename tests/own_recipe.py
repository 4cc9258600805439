"""A recipe as `harness new` writes it, in a folder of its own, and changes to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from harness import files
from harness.commands import new
from harness.oracles import by_recipe
from harness.plugin import use_recipe_dir

NAME = "toy"


def written(folder: Path, name: str = NAME) -> Path:
    """The folder of a new recipe."""
    done = CliRunner().invoke(new.command, [name, "--into", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def change(folder: Path, suffix: str, before: str, after: str, first: bool = False) -> None:
    """Replace the one place of a text, or the first of several, in one of the three files."""
    path = folder / f"{NAME}{suffix}"
    text = path.read_text()
    assert text.count(before) == 1 or first, before
    path.write_text(text.replace(before, after, 1))


@contextmanager
def in_use(folder: Path) -> Iterator[tuple[str, ...]]:
    """Have its recipes found in this process for a while."""
    try:
        yield use_recipe_dir(folder)
    finally:
        files.RECIPE_DIRS.clear()
        by_recipe.forget()
