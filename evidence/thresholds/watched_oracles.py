"""Watch number comparisons in oracles, by replacing the modules with rewritten copies."""

from __future__ import annotations

import ast
import numbers
import operator
from pathlib import Path
from typing import Any

import numpy as np

from evidence.mutants.reach import import_oracles_from
from evidence.thresholds.outcomes import ABOVE, BELOW, EDGE, EQUAL, NEXT, OUTCOMES, UNORDERED, Site
from harness.files import PACKAGE

_RELATIONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_CLAMPS = ("fmin", "fmax", "minimum", "maximum")
_SITES: list[Site] = []


def replace(folder: Path) -> None:
    """Watch all oracles that are imported from now on. Call it in a separate process."""
    for path in sorted((PACKAGE / "oracles").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.fix_missing_locations(_Watch(f"oracles/{path.name}", source.splitlines()).visit(ast.parse(source)))
        names = "compared as _compared, bounded as _bounded"
        at = _after_future(tree)
        tree.body[at:at] = ast.parse(f"from {__name__} import {names}").body
        (folder / path.name).write_text(ast.unparse(tree), encoding="utf-8")
    import_oracles_from(folder)


def compared(number: int, relation: str, a: Any, b: Any) -> Any:
    """Record a comparison and return its result."""
    note(number, a, b)
    return getattr(operator, relation)(a, b)


def bounded(number: int, a: Any, b: Any) -> tuple[Any, Any]:
    """Record a clamp and return both arguments."""
    note(number, a, b)
    return a, b


def note(number: int, a: Any, b: Any) -> None:
    site = _SITES[number]
    if OUTCOMES.complete(site) or not (_is_number(a) and _is_number(b)):
        return
    below, equal, above = (bool(np.any(_host(found))) for found in (a < b, a == b, a > b))
    unordered = not (below or equal or above) or bool(np.any(_host((a != a) | (b != b))))
    beside = site.relation in NEXT and _is_integral(a) and bool(np.any(_host(a - b == NEXT[site.relation])))
    sides = BELOW * below | EQUAL * equal | ABOVE * above | UNORDERED * unordered | EDGE * (equal or beside)
    OUTCOMES.note(site, sides)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, np.ndarray) or hasattr(value, "is_floating_point"):
        return "bool" not in str(value.dtype)
    return isinstance(value, numbers.Number | np.generic)


def _is_integral(value: Any) -> bool:
    return isinstance(value, int) or "int" in str(getattr(value, "dtype", ""))


def _host(found: Any) -> Any:
    return found.any().item() if hasattr(found, "any") else found


class _Watch(ast.NodeTransformer):
    """Rewrites comparisons into calls of `compared`, and makes clamps take their arguments from `bounded`."""

    def __init__(self, file: str, lines: list[str]):
        self.file, self.lines = file, lines

    def visit_If(self, node: ast.If) -> ast.AST:
        # A condition that refuses cases never holds in a passing case.
        refuses = isinstance(node.body[0], ast.Raise)
        test = node.test if refuses else self.visit(node.test)
        body, otherwise = ([self.visit(each) for each in part] for part in (node.body, node.orelse))
        return ast.copy_location(ast.If(test, body, otherwise), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        relation = _RELATIONS.get(type(node.ops[0]))
        right = node.comparators[0]
        if len(node.ops) != 1 or relation is None or _is_text(node.left) or _is_text(right):
            return node
        arguments = [ast.Constant(self._site(node, relation, right)), ast.Constant(relation), node.left, right]
        return ast.copy_location(ast.Call(ast.Name("_compared", ast.Load()), arguments, []), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        clamps = isinstance(node.func, ast.Attribute) and node.func.attr in _CLAMPS and len(node.args) == 2
        constant = next((each for each in node.args[::-1] if _is_constant(each)), None) if clamps else None
        if constant is None:
            return node
        number = ast.Constant(self._site(node, "clamp", constant))
        both = ast.Call(ast.Name("_bounded", ast.Load()), [number, *node.args], [])
        return ast.copy_location(ast.Call(node.func, [ast.Starred(both, ast.Load())], node.keywords), node)

    def _site(self, node: ast.expr, relation: str, constant: ast.expr) -> int:
        text = self.lines[node.lineno - 1].strip()
        _SITES.append(Site(self.file, node.lineno, text, relation, ast.unparse(constant)))
        return len(_SITES) - 1


def _is_constant(node: ast.expr) -> bool:
    """Whether a node is a number, a name in capitals, or made of such, like `np.float32(E2M1_MAX)`."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.Call(args=[first, *_]):
            return _is_constant(first)
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, int | float)


def _after_future(tree: ast.Module) -> int:
    return 1 + max((number for number, node in enumerate(tree.body) if _is_head(node)), default=-1)


def _is_head(node: ast.stmt) -> bool:
    """Whether this is the docstring, or an import that must come before all others."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
