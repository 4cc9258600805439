"""The names that an oracle's file defines at its top level, read without running the file.

A star import brings the public names of its module, which is imported for them.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator

_BODIES = ("body", "orelse", "finalbody")


def defined(body: Iterable[ast.stmt]) -> set[str] | None:
    """The names that statements define; None if a star import fails, so that they are not known.

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
            for name in _BODIES:
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
