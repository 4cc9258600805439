"""Suites that a test writes, and the sentence about a mistake in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import SuiteError
from harness.suite.suite import Suite, load_suite


def written(folder: Path, text: str) -> Suite:
    """The suite of this text, in a file that has the recipe's name."""
    recipe = text.partition("recipe: ")[2].split()[0]
    path = folder / "suites" / f"{recipe}.yaml"
    path.parent.mkdir()
    path.write_text(text)
    return load_suite(path)


def assert_mistake(folder: Path, text: str, change: tuple[str, str], sentence: str, line: int) -> None:
    """The text is right, and with one change it is refused in one sentence, which tells the line."""
    path, (old, new) = written(folder, text).path, change
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SuiteError) as caught:
        load_suite(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.where.endswith(f"suites/{path.name}:{line}")
