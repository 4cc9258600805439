"""Whether the three files of a recipe agree: kernels/S.cu, oracles/S.py and suites/S.yaml. Nothing is compiled.

A recipe of the tree also keeps the rules of `tree_rules` and `set_rules`; a user's need not. Every error is a sentence
that starts with `file:line`. A pipeline is a suite alone.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.check import set_rules, tree_rules
from harness.check.kernel_parameters import binding_errors, kernel_errors
from harness.contract.dtypes import DTYPES
from harness.errors import HarnessError, SuiteError, UsageError
from harness.expected import torch_calls
from harness.files import INSTALLED, KERNELS, PACKAGE, RECIPE_DIRS, SUITES, recipe_dir
from harness.ground.side_by_side import each_alone
from harness.oracles.by_recipe import not_python
from harness.suite.shapes import is_grouped
from harness.suite.suite import Suite, suite_of
from harness.suite.suite_file import short, suite_path
from harness.text import nearest

ORACLES = PACKAGE / "oracles"
LONGEST = 600.0  # seconds that the check of a recipe of the user's may take
FUNCTIONS = ("outputs", "inputs", "numpy_oracle", "torch_oracle")


def errors(recipes: Iterable[str] = ()) -> list[str]:
    """Sentences about these recipes; by default about all of the user's if there are any, else about all of ours.

    Ours are all that have any of the three files.
    Each of the user's is checked in another process, because an oracle may end the one that asks it for its fields.
    """
    names = list(recipes or sorted(RECIPE_DIRS) or stems())
    found = each_alone(_told, names, 1, LONGEST) if RECIPE_DIRS else ((name, list(_errors(name))) for name in names)
    return list(dict.fromkeys(error for name, told in found for error in (_ended(name) if told is None else told)))


def _told(name: str) -> list[str]:
    """The sentences, with an error that ends the check as one of them, because not every error can be pickled."""
    if "torch" in sys.modules:
        torch_calls.leave_gpus_alone()  # threads of torch do not survive a fork
    try:
        return list(_errors(name))
    except HarnessError as error:
        return [str(error)]


def _ended(name: str) -> list[str]:
    oracle = short((recipe_dir(name) or ORACLES) / f"{name}.py")
    why = f"asked for its fields, it ended its process, or did not answer in {LONGEST:.0f} s; its functions must return"
    return [f"{oracle}:1: {why}"]


def stems() -> list[str]:
    """Stems of all kernels, suites and oracles; a module without `numpy_oracle` is a helper of oracles."""
    oracles = {path.stem for path in ORACLES.glob("*.py") if "def numpy_oracle(" in path.read_text(encoding="utf-8")}
    return sorted(oracles | {path.stem for path in (*KERNELS.glob("*.cu"), *SUITES.glob("*.yaml"))})


def _errors(name: str) -> Iterator[str]:
    own = recipe_dir(name)
    kernel, oracle = (own or KERNELS) / f"{name}.cu", (own or ORACLES) / f"{name}.py"
    present = [path for path in (kernel, oracle) if path.is_file()]
    in_tree = not own and not INSTALLED
    if not own and not (SUITES / f"{name}.yaml").is_file():
        if not present:
            suite_path(name)  # raises UsageError, with the nearest choice
        three = "harness/kernels/S.cu, harness/oracles/S.py and suites/S.yaml"
        yield f"{short(present[0])}:1: there is no suites/{name}.yaml; a recipe is {three}"
        return
    try:
        suite = suite_of(name)
    except SuiteError as error:
        yield str(error)
        return
    if suite.file.pipeline:
        for path in present:
            yield f"{short(path)}:1: {name} is a pipeline, whose stages are other recipes; remove this file"
        if not present and in_tree:
            yield from (*tree_rules.suite_errors(suite), *set_rules.errors(suite))
        return
    found = [*_missing(suite, kernel), *_missing(suite, oracle), *_dtype_errors(suite), *_quality_errors(suite)]
    found += _oracle_errors(suite, oracle) if oracle in present else []
    found += kernel_errors(suite) if kernel in present else []
    found = found or list(binding_errors(suite))
    if in_tree and not found:
        found = [*tree_rules.text_errors(suite, kernel, oracle), *set_rules.errors(suite)]
    yield from found


def _missing(suite: Suite, path: Path) -> Iterator[str]:
    if not path.is_file():
        others = sorted(other.stem for other in path.parent.glob(f"*{path.suffix}") if other.stem != path.stem)
        what = "is no file" if path.exists() or path.is_symlink() else ""
        told = f"{short(path)} {what}" if what else f"there is no {short(path)}{nearest(path.stem, others)}"
        yield f"{suite.document.where('recipe')}: {told}"


def _dtype_errors(suite: Suite) -> Iterator[str]:
    for index, value in enumerate(suite.file.axes.get("dtype", [])):
        if value not in DTYPES:
            yield f"{suite.document.where('axes', 'dtype', index)}: there is no dtype '{value}'{nearest(value, DTYPES)}"


def _quality_errors(suite: Suite) -> Iterator[str]:
    for index, variant in enumerate(suite.file.quality):
        for name, _, text in (part.partition("=") for part in variant.split(",") if variant != "default"):
            try:
                suite.flag(name, text)
            except UsageError as error:
                yield f"{suite.document.where('quality', index)}: {error}"


def _oracle_errors(suite: Suite, path: Path) -> Iterator[str]:
    try:
        body = ast.parse(path.read_bytes()).body
    except SyntaxError as error:
        yield f"{short(path)}{not_python(error)}"
        return
    names = defined(body)
    needed = (*FUNCTIONS, "inputs_of") if is_grouped(suite.file) else FUNCTIONS
    for function in needed if names is not None else ():
        if function in names:
            continue
        yield f"{short(path)}:1: there is no function '{function}'; this oracle needs {', '.join(needed)}"


def defined(body: Iterable[ast.stmt]) -> set[str] | None:
    """The names that statements define, read without running them; None if a star import fails, which is imported.

    What it fails with is told where the oracle is loaded.
    """
    found: set[str] = set()
    for node in _statements(body):
        if isinstance(node, ast.ImportFrom) and any(name.name == "*" for name in node.names):
            names = _public("." * node.level + (node.module or ""))
            if names is None:
                return None
            found |= names
        else:
            found |= set(_names(node))
    return found


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, and those in branches, loops and `try`, but not those in functions and classes."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, name, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _statements(handler.body)


def _names(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Import() | ast.ImportFrom():
            yield from (name.asname or name.name for name in node.names)
        case ast.Assign():
            inside = (each for target in node.targets for each in ast.walk(target))
            yield from (each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
        case ast.AnnAssign(target=ast.Name()) if node.value is not None:
            yield node.target.id


def _public(module: str) -> set[str] | None:
    """The names that `from module import *` brings; None if it cannot be imported."""
    try:
        found = importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a module may raise anything; pytest's skip is not an Exception
        return None
    return set(getattr(found, "__all__", (name for name in vars(found) if not name.startswith("_"))))
