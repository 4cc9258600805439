"""The kernels' headers: floors that know only those below, includes that are used, and closures that stay small."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.check.tree_rules import floors, includes, source_errors, used
from harness.files import KERNELS
from harness.jit.compile import include_closure

FILES = sorted(path.relative_to(KERNELS).as_posix() for path in KERNELS.rglob("*.cu*"))
HEADERS = [name for name in FILES if name.endswith(".cuh")]
RECIPES = [name for name in FILES if name.endswith(".cu")]


def circles(graph: dict[str, list[str]]) -> set[str]:
    """The files that include themselves, directly or not."""
    reached = {name: set(found) for name, found in graph.items()}
    for through in graph:
        for found in reached.values():
            if through in found:
                found |= reached[through]
    return {name for name, found in reached.items() if name in found}


def test_every_header_stands_on_a_floor():
    assert {Path(name).parent.as_posix() for name in HEADERS} == set(floors())
    assert {Path(name).parent.as_posix() for name in RECIPES} == {"."}


def test_headers_include_what_they_use_from_below_and_have_no_numerics():
    """`harness check` does the same for recipes."""
    assert [error for name in HEADERS for error in source_errors(KERNELS / name)] == []


def test_no_header_includes_itself():
    assert circles({name: includes(name) for name in FILES}) == set()
    assert circles({"a": ["b"], "b": ["c", "d"], "c": ["b"], "d": []}) == {"b", "c"}


def test_what_a_header_declares_is_found():
    assert "row_offset" in used("gemm_ordered.cu", "memory/scale_layout.cuh")
    assert used("swizzle.cu", "scheduler/launch.cuh") == {"Launch", "kLaunchTiles", "TileOrigin", "tile_origin"}
    assert used("swizzle.cu", "numerics/rht.cuh") == set()


@pytest.mark.parametrize(("recipe", "headers", "lines"), [("swizzle", 4, 350), ("per_tensor", 26, 2620)])
def test_what_a_recipe_includes_stays_small(recipe: str, headers: int, lines: int):
    sources = include_closure(KERNELS / f"{recipe}.cu")
    assert len(sources) - 1 <= headers
    assert sum(text.count("\n") for text in sources.values()) <= lines


@pytest.mark.parametrize("recipe", ["swizzle.cu", "per_tensor.cu"])
def test_a_recipe_includes_nothing_in_vain(recipe: str):
    """Every header of the closure is one of which the recipe, or a header that it uses, uses something."""
    closure = include_closure(KERNELS / recipe)
    needed, waiting = {recipe}, [recipe]
    while waiting:
        name = waiting.pop()
        found = {header for header in closure if header != name and used(name, header)} - needed
        needed |= found
        waiting += found
    assert set(closure) == needed
