"""The oracle module of a recipe, by its name."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def oracle_of(recipe: str) -> ModuleType:
    """`harness/oracles/<recipe>.py`. Raises ModuleNotFoundError for a recipe without one, which a pipeline is."""
    return import_module(f"harness.oracles.{recipe}")
