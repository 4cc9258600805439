"""Whether the three files of a recipe agree: kernels/S.cu, oracles/S.py and suites/S.yaml. Nothing is compiled.

Every problem is a sentence that starts with `file:line`. A pipeline is a suite alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.errors import SuiteError, UsageError
from harness.files import KERNELS, ROOT, SUITES
from harness.inputs.dtypes import DTYPES
from harness.suite.kernel_parameters import binding_problems, kernel_problems
from harness.suite.schema import nearest
from harness.suite.shapes import is_grouped
from harness.suite.suite import Suite, suite_of

ORACLES = ROOT / "harness" / "oracles"
FUNCTIONS = ("outputs", "inputs", "numpy_oracle", "torch_oracle")

_THREE = "a recipe is harness/kernels/S.cu, harness/oracles/S.py and suites/S.yaml"


def problems(recipes: Iterable[str] = ()) -> list[str]:
    """What is wrong with these recipes, or with all that have any of the three files."""
    return list(dict.fromkeys(problem for name in recipes or stems() for problem in _problems(name)))


def stems() -> list[str]:
    """Everything that has a kernel, a suite, or an oracle that answers for bytes; helpers of oracles do not."""
    answering = {path.stem for path in ORACLES.glob("*.py") if "def numpy_oracle(" in path.read_text(encoding="utf-8")}
    return sorted(answering | {path.stem for path in (*KERNELS.glob("*.cu"), *SUITES.glob("*.yaml"))})


def _problems(name: str) -> Iterator[str]:
    kernel, oracle = KERNELS / f"{name}.cu", ORACLES / f"{name}.py"
    there = [path for path in (kernel, oracle) if path.is_file()]
    if not (SUITES / f"{name}.yaml").is_file():
        if not there:
            raise UsageError(f"there is no recipe '{name}'{nearest(name, stems())}")
        yield f"{_short(there[0])}:1: there is no suites/{name}.yaml; {_THREE}"
        return
    try:
        suite = suite_of(name)
    except SuiteError as error:
        yield str(error)
        return
    if suite.file.pipeline:
        for path in there:
            yield f"{_short(path)}:1: {name} is a pipeline, whose stages are other recipes; remove this file"
        return
    found = [*_missing(suite, kernel), *_missing(suite, oracle), *_dtype_problems(suite), *_quality_problems(suite)]
    found += _oracle_problems(suite, oracle) if oracle in there else []
    found += kernel_problems(suite) if kernel in there else []
    yield from found or binding_problems(suite)


def _missing(suite: Suite, path: Path) -> Iterator[str]:
    if not path.is_file():
        others = sorted(other.stem for other in path.parent.glob(f"*{path.suffix}"))
        yield f"{suite.document.where('recipe')}: there is no {_short(path)}{nearest(path.stem, others)}"


def _dtype_problems(suite: Suite) -> Iterator[str]:
    for index, value in enumerate(suite.file.axes.get("dtype", [])):
        if value not in DTYPES:
            yield f"{suite.document.where('axes', 'dtype', index)}: there is no dtype '{value}'{nearest(value, DTYPES)}"


def _quality_problems(suite: Suite) -> Iterator[str]:
    for index, variant in enumerate(suite.file.quality):
        for name, _, text in (part.partition("=") for part in variant.split(",") if variant != "default"):
            try:
                suite.flag(name, text)
            except UsageError as error:
                yield f"{suite.document.where('quality', index)}: {error}"


def _oracle_problems(suite: Suite, path: Path) -> Iterator[str]:
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except SyntaxError as error:
        yield f"{_short(path)}:{error.lineno}: this is not Python: {error.msg}"
        return
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    names |= {name.asname or name.name for node in body if isinstance(node, ast.ImportFrom) for name in node.names}
    needed = (*FUNCTIONS, "inputs_of") if is_grouped(suite.file) else FUNCTIONS
    for function in (function for function in needed if function not in names):
        yield f"{_short(path)}:1: there is no function '{function}'; this oracle needs {', '.join(needed)}"


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))
