"""The oracle module of a recipe, by its name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from harness.oracles import own

_OWN: dict[str, Path] = {}


def use(recipe: str, path: Path) -> None:
    """Take the oracle of a recipe of the user's from a file."""
    _OWN[recipe] = path


def oracle_of(recipe: str) -> Any:
    """`harness/oracles/<recipe>.py`, or a file of the user's. Raises OracleError for one that is no Python.

    Raises ModuleNotFoundError for a recipe without an oracle, which a pipeline is.
    """
    return own.load(_OWN[recipe]) if recipe in _OWN else import_module(f"harness.oracles.{recipe}")


def forget() -> None:
    """Take no oracle from a file any more."""
    _OWN.clear()
