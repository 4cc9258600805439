"""Every change of host code: the operators of `python_changes`, and those of conditions, members and calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from evidence.mutants.generated.change import Mutation
from evidence.mutants.generated.python_changes import PythonText

EQUAL, CONNECTIVE, NEGATED = "equal or not", "and and or", "condition negated"
TRUTH, MEMBER, DROPPED = "other truth", "other member", "call dropped"

_EQUAL = {ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}
_UNEQUAL = {"==": "!=", "is": "is not", "in": "not in"}
_OTHER = _UNEQUAL | {wrong: right for right, wrong in _UNEQUAL.items()}
_CONNECTED = {"and": "or", "or": "and", "|": "&", "&": "|"}
_FUNCTIONS = {"any": "all", "all": "any", "min": "max", "max": "min"}
# Arguments that decide how something is printed or stored, or that guard against what never happens.
_NO_RESULT = {"strict", "frozen", "encoding", "eq", "init", "repr", "kw_only", "exist_ok", "parents", "flush", "doc"}


def changes_of_host(text: str) -> Iterator[Mutation]:
    """Changes of what a module decides, refusals too; never of a text, an annotation, an import or a decorator."""
    source = PythonText(text)
    attributes = [node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)]
    members = {(source.of(node.value), node.attr) for node in attributes if _is_member(node)}
    for node in _code(source.tree):
        yield from source.changes(node, {})
        yield from _changes(source, node, members)


def _changes(source: PythonText, node: ast.AST, members: set[tuple[str, str]]) -> Iterator[Mutation]:
    match node:
        case ast.Compare(left=left, ops=signs, comparators=comparators):
            for sign, before, after in zip(signs, [left, *comparators], comparators, strict=False):
                if written := _EQUAL.get(type(sign)):
                    yield from _between(source, EQUAL, before, after, written, _OTHER[written])
        case ast.BoolOp(op=sign, values=values):
            written = "and" if isinstance(sign, ast.And) else "or"
            for before, after in pairwise(values):
                yield from _between(source, CONNECTIVE, before, after, written, _CONNECTED[written])
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() as sign, right=right):
            written = "|" if isinstance(sign, ast.BitOr) else "&"
            yield from _between(source, CONNECTIVE, left, right, written, _CONNECTED[written])
        case ast.Call(func=ast.Name(id=name) as function) if name in _FUNCTIONS:
            yield Mutation(CONNECTIVE, *source.span(function), _FUNCTIONS[name])
        case ast.Constant(value=bool(value)):
            yield Mutation(TRUTH, *source.span(node), str(not value))
        case ast.Expr(value=ast.Call() as call):
            yield Mutation(DROPPED, *source.span(call), "pass")
        case ast.Attribute() if _is_member(node):
            of_type = sorted(name for kind, name in members if kind == source.of(node.value))
            other = of_type[(of_type.index(node.attr) + 1) % len(of_type)]
            if other != node.attr:
                yield Mutation(MEMBER, *source.span(node), f"{source.of(node.value)}.{other}")
    tests = [node.test] if isinstance(node, ast.If | ast.IfExp | ast.While) else getattr(node, "ifs", ())
    for test in tests:
        inner = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
        yield Mutation(NEGATED, *source.span(test), f"({source.of(inner)})" if inner else f"not ({source.of(test)})")


def _is_member(node: ast.Attribute) -> bool:
    """Whether this is written as a member of an enumeration, `Verdict.PASS`."""
    return isinstance(node.value, ast.Name) and node.value.id[0].isupper() and node.attr.isupper()


def _between(
    source: PythonText, operator: str, before: ast.expr, after: ast.expr, right: str, wrong: str
) -> Iterator[Mutation]:
    """The change of a word between two expressions; none where a comment stands there."""
    start, end = source.span(before)[1], source.span(after)[0]
    gap = source.text[start:end]
    word = re.escape(right).replace(r"\ ", r"\s+")
    found = re.search(rf"\b{word}\b" if right[0].isalpha() else word, gap)
    if found and "#" not in gap:
        yield Mutation(operator, start + found.start(), start + found.end(), wrong)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of host code that decide something."""
    match node:
        case ast.FunctionDef(name="__repr__" | "__str__") | ast.Raise() | ast.JoinedStr():
            return
        case ast.ClassDef(bases=[ast.Name(id="Protocol")]):
            return  # annotations, as nobody calls its methods
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Assign(targets=[ast.Name(id="__slots__")]):
            return
        case ast.keyword(arg=name) if name in _NO_RESULT:
            return
        case ast.IfExp(body=ast.Constant(value=str(one)), orelse=ast.Constant(value=str(other))) if one and other:
            return  # which of two words a sentence has
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _code(child)
