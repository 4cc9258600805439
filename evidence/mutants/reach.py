"""The cases that a mutant can reach: all of the recipes whose sources include its file."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path

import harness.oracles
from evidence.mutants.catalogue import KERNELS, Mutant
from harness.contract.case import Case
from harness.files import KERNELS as CUDA
from harness.files import PACKAGE
from harness.jit.compile import include_closure
from harness.suite.suite import suite_of

ORACLES = PACKAGE / "oracles"
NARROW = "32-bit index"  # the theme of mutants that only show beyond 2^31 elements


@cache
def recipes_of(file: str) -> tuple[str, ...]:
    """Stems whose kernel includes, or whose oracle imports, `kernels/PATH` or `oracles/NAME`, directly or not."""
    tree, _, name = file.partition("/")
    closure = _included if tree == KERNELS else _imported
    recipes = (path.stem for path in sorted(CUDA.glob("*.cu")))
    return tuple(recipe for recipe in recipes if name in closure(recipe))


def cases(mutant: Mutant, set_name: str) -> Iterator[Case]:
    """Cases of a set in running order: the mutant's own, then round-robin the cheapest of every recipe.

    Recipes of the mutant's own cases come first. For a 32-bit index, ends of larger tensors and the largest cases come
    first.
    """
    reached = recipes_of(mutant.file)
    own = [case_id.partition("/")[0] for case_id in mutant.cases]
    of_set = {recipe: suite_of(recipe).cases(set_name) for recipe in reached}
    by_id = {case.id: case for found in of_set.values() for case in found}
    first = [by_id[case_id] for case_id in mutant.cases if case_id in by_id]
    narrow = mutant.theme == NARROW

    def cost(case: Case) -> tuple[bool, int, str]:
        return narrow and bool(suite_of(case.recipe).corners(case)), case.work, case.id

    yield from first
    for recipes in ([r for r in reached if r in own], [r for r in reached if r not in own]):
        by_cost = (sorted(set(of_set[r]) - set(first), key=cost, reverse=narrow) for r in recipes)
        # Round-robin, so that a mutant in a shared header is not run on one recipe for long.
        yield from (case for turn in zip_longest(*by_cost) for case in turn if case is not None)


def import_oracles_from(folder: Path) -> None:
    """Have every later import of `harness.oracles` find the modules of a folder. Call it in a process of its own."""
    for name in [name for name in sys.modules if name.startswith("harness.oracles.")]:
        del sys.modules[name]
        # `from harness.oracles import nvfp4` would find the old module as an attribute of the package.
        vars(harness.oracles).pop(name.rpartition(".")[2], None)
    harness.oracles.__path__[:] = [str(folder)]


@cache
def _included(recipe: str) -> frozenset[str]:
    return frozenset(include_closure(CUDA / f"{recipe}.cu"))


@cache
def _imported(recipe: str) -> frozenset[str]:
    found: set[str] = set()
    waiting: list[str] = [f"{recipe}.py"]
    while waiting:
        name = waiting.pop()
        if name not in found and (ORACLES / name).is_file():
            found.add(name)
            waiting += _siblings(ORACLES / name)
    return frozenset(found)


@cache
def _siblings(path: Path) -> Sequence[str]:
    """Modules of `harness.oracles` that a file imports, as file names; a name that is no module yields no file."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "harness.oracles":
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harness.oracles."):
            names.append(node.module.rpartition(".")[2])
    return [f"{name}.py" for name in names]
