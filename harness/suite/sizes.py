"""Sizes of a kernel's own memory: a number of bytes, or an expression over the extents of a case, `4 * cols`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence

from harness.text import nearest

NAMES = ("rows", "cols", "elements", "num_tensors")
GEMM_NAMES = ("M", "K", "N", "elements", "num_tensors")
_OPERATORS = {ast.Add: operator.add, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def size_error(size: int | str, names: Sequence[str] = NAMES) -> str | None:
    """The sentence about the first thing that an expression over these names may not have, or None."""
    try:
        tree = _parse(size)
    except (SyntaxError, ValueError):
        return f"'{size}' is not a size; one reads `4 * cols` or `elements // 32 + 16`"
    return next(filter(None, (_error(node, names) for node in ast.walk(tree))), None)


def size_of(size: int | str, extents: Mapping[str, int]) -> int:
    """The bytes of a size without an error. extents: a value for each name"""
    return _value(_parse(size), extents)


def _parse(size: int | str) -> ast.expr:
    return ast.parse(str(size).strip(), mode="eval").body


def _value(node: ast.expr, extents: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return extents[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, extents), _value(right, extents))
    raise TypeError(f"{ast.unparse(node)!r} is no part of a size")


def _error(node: ast.AST, names: Sequence[str]) -> str | None:
    match node:
        case ast.Name(id=name) if name not in names:
            return f"a size knows no '{name}'{nearest(name, names)}"
        case ast.BinOp(op=ast.FloorDiv(), right=divisor) if not _positive(divisor):
            return f"a size divides by '{ast.unparse(divisor)}'; only a positive integer may stand after //"
        case ast.BinOp(op=op) if type(op) not in _OPERATORS:
            return f"a size has no operator as in '{ast.unparse(node)}'; choose +, * or //"
        case ast.Constant(value=value) if type(value) is not int:
            return f"a size is made of integers, and {ast.unparse(node)} is none"
        case ast.BinOp() | ast.Name() | ast.Constant() | ast.operator() | ast.Load():
            return None
    return f"a size has no '{ast.unparse(node)}'; it is made of integers, {', '.join(names)}, +, *, // and brackets"


def _positive(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0
