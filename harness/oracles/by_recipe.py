"""The oracle module of a recipe, by its name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from harness.oracles import own

_OWN: dict[str, Path] = {}


def use(recipe: str, path: Path) -> None:
    """Use a file as the oracle of a user's recipe."""
    _OWN[recipe] = path


def oracle_of(recipe: str) -> Any:
    """The module `harness/oracles/<recipe>.py`, or a user's file. Raises OracleError if that is not valid Python.

    Raises ModuleNotFoundError for a recipe without an oracle, such as a pipeline.
    """
    return own.load(_OWN[recipe]) if recipe in _OWN else import_module(f"harness.oracles.{recipe}")


def forget() -> None:
    """Stop using files as oracles."""
    _OWN.clear()
