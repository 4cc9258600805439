"""The flags that a function is for, as its module declares them: HARNESS_FLAGS = {"outputs": "rowwise"}.

They are read from the source. The process that chooses the cases of a run runs no line of a subject, so they must be
written out where they stand.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.contract.case import FlagValue
from harness.errors import SuiteError
from harness.files import SUITES
from harness.subjects.subject import source_of
from harness.suite.suite_file import read_suite
from harness.text import nearest, spell

NAME = "HARNESS_FLAGS"
_FORM = f"{NAME} is read without running the module, so write it out once at its top level: {NAME} = " + (
    '{"outputs": "rowwise", "rounding": ["rne", "sr"]}'
)
_CHANGES = ("clear", "pop", "popitem", "setdefault", "update")

Flags = Mapping[str, tuple[FlagValue, ...]]


def declared_flags(subject: str, suites: Iterable[Path] = ()) -> Flags:
    """Flag → the values that a subject's module declares; none without a declaration.

    suites: files of the recipes that it is called for; they, or other recipes of ours that it is for, too, must have
    each flag and each of its values
    Raises SuiteError with file and line. A module that is not there or is no Python declares nothing: importing it says
    what is wrong.
    """
    declared, where = _declared(subject)
    if suites and declared and _unknown(declared, suites):
        mistake = _unknown(declared, {*suites, *SUITES.glob("*.yaml")})
        if mistake:
            raise SuiteError(where, f"{NAME}: {mistake}")
    return declared


def _unknown(declared: Flags, suites: Iterable[Path]) -> str:
    """A flag, or a value of one, that no recipe of these suites has; empty if they have all."""
    every = [read_suite(suite)[0].axes for suite in sorted(suites)]  # unchecked, because here only names count
    for flag, values in declared.items():
        known = list(dict.fromkeys(value for axes in every for value in axes.get(flag, ())))
        if not known:
            flags = list(dict.fromkeys(name for axes in every for name in axes))
            return f"no recipe has a flag '{flag}'{nearest(flag, flags)}"
        for value in values:
            if not any(value == one and type(value) is type(one) for one in known):
                return f"{flag} has no value '{spell(value)}'{nearest(value, known)}"
    return ""


def _declared(subject: str) -> tuple[dict[str, tuple[FlagValue, ...]], str]:
    """The flags, and file and line of their declaration."""
    path = Path(source_of(subject) or "")
    if path.suffix != ".py" or not path.is_file():
        return {}, ""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return {}, ""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and _names(node)]
    for node in ast.walk(tree):
        if node not in assigned and _changes(node):
            raise SuiteError(f"{path.name}:{node.lineno}", _FORM)
    if not assigned:
        return {}, ""
    where = f"{path.name}:{assigned[-1].lineno}"
    if len(assigned) > 1 or assigned[0].value is None:
        raise SuiteError(where, _FORM)
    try:
        said = ast.literal_eval(assigned[0].value)
    except ValueError:
        raise SuiteError(where, _FORM) from None
    if not isinstance(said, dict):
        raise SuiteError(where, _FORM)
    found = {}
    for flag, values in said.items():
        listed = tuple(values) if isinstance(values, list | tuple | set) else (values,)
        if (
            not isinstance(flag, str)
            or not listed
            or not all(type(value) in (bool, int, float, str) for value in listed)
        ):
            raise SuiteError(where, _FORM)
        found[flag] = listed
    return found, where


def _names(node: ast.AST) -> bool:
    """Whether a statement at the top level assigns to the name and to nothing else."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == NAME


def _changes(node: ast.AST) -> bool:
    """Whether a part of the module sets the flags in another way, which reading the source does not see."""
    match node:
        case ast.AugAssign(target=ast.Name(id=name)) | ast.NamedExpr(target=ast.Name(id=name)):
            return name == NAME
        case ast.Assign(targets=targets):
            return any(isinstance(each, ast.Name) and each.id == NAME for each in targets) or any(
                isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name) and each.value.id == NAME
                for each in targets
            )
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name == NAME
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            return name == NAME and method in _CHANGES
        case ast.ImportFrom(names=names):
            return any((each.asname or each.name) == NAME for each in names)
    return False
