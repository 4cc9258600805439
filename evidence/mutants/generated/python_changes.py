"""Every change of a Python source by the operators of `change`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from evidence.mutants.generated import change as kinds
from evidence.mutants.generated.change import Mutation, other_names
from harness.contract.case import FlagValue

_ABS = {"abs", "absolute", "fabs"}
_CLAMP = {"fmin", "fmax", "minimum", "maximum", "min", "max", "clip", "clamp", "clamp_max", "clamp_min"}
_COMMUTATIVE = _CLAMP | {"add", "multiply", "isinstance", "lcm", "gcd"}
_NARROW = {"int64": "int32", "uint64": "uint32"}
_CONSTANT = re.compile(r"-?((\w+\.)*[A-Z_]+|[\d.]+)")
# Functions that refuse cases, or whose results only the diagnosis reads. A passing case does not test them; they have
# tests of their own.
_NO_BYTES = re.compile(r"_?(refuse|require)|(en|de)code_steps$")
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Add: "+", ast.Sub: "-"}


def changes_of_python(text: str, flags: Mapping[str, FlagValue]) -> Iterator[Mutation]:
    """Changes of what a module computes, never of a docstring, an annotation, an error text or a refusal.

    flags: see `changes_of_cuda`
    """
    source = PythonText(text)
    for node in _code(source.tree):
        yield from source.changes(node, flags)


class PythonText:
    """A module's text and syntax, and the changes of a node."""

    def __init__(self, text: str):
        self.text = text
        self.tree = ast.parse(text)
        lines = text.splitlines(keepends=True)
        self._starts = [sum(map(len, lines[:i])) for i in range(len(lines))]
        self._lines = [line.encode() for line in lines]
        names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        self.names = names | {node.arg for node in ast.walk(self.tree) if isinstance(node, ast.arg)}
        constants = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        self.strings = {value for value in constants if isinstance(value, str)}

    def span(self, node: ast.expr) -> tuple[int, int]:
        return self._at(node.lineno, node.col_offset), self._at(
            int(node.end_lineno or 0), int(node.end_col_offset or 0)
        )

    def _at(self, line: int, column: int) -> int:
        """The position in the text of a line and a column in bytes."""
        return self._starts[line - 1] + len(self._lines[line - 1][:column].decode())

    def of(self, node: ast.expr) -> str:
        first, last = self.span(node)
        return self.text[first:last]

    def changes(self, node: ast.AST, flags: Mapping[str, FlagValue]) -> Iterator[Mutation]:
        match node:
            case ast.Constant(value=value) if type(value) in (int, float):
                yield from self._constants(node)
            case ast.Constant(value=str(value)) if self.of(node)[1:-1] == value:
                first, last = self.span(node)
                for other in other_names(value, self.strings):
                    yield Mutation(kinds.PLANE, first + 1, last - 1, other)
            case ast.Compare(left=left, ops=signs, comparators=comparators):
                for sign, before, after in zip(signs, [left, *comparators], comparators, strict=False):
                    yield from self._sign(kinds.COMPARISON, sign, before, after)
            case ast.BinOp(left=left, op=sign, right=right):
                yield from self._sign(kinds.SUM, sign, left, right)
            case ast.AugAssign(target=target, op=sign, value=value):
                yield from self._sign(kinds.SUM, sign, target, value)
            case ast.Attribute(value=ast.Attribute(attr="flags"), attr=name) if name in flags:
                yield Mutation(kinds.FLAG, *self.span(node), repr(flags[name]))
            case ast.Call():
                yield from self._call(node, flags)
            case ast.Subscript(slice=ast.Name(id=name) as index) if name in kinds.INDICES:
                for wrong in (f"{name} + 1", f"{name} - 1"):
                    yield Mutation(kinds.GROUP, *self.span(index), wrong)
        if isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            for other in other_names(node.id, self.names):
                yield Mutation(kinds.PLANE, *self.span(node), other)

    def _constants(self, node: ast.Constant) -> Iterator[Mutation]:
        number, hexadecimal = node.value, self.of(node).lower().startswith("0x")
        seen = {number}
        for operator, result in (
            (kinds.PLUS, number + 1),
            (kinds.MINUS, number - 1),
            (kinds.TWICE, number * 2),
        ):
            if result not in seen:
                seen.add(result)
                written = f"{result:#x}" if hexadecimal else repr(result)
                yield Mutation(operator, *self.span(node), f"({written})" if result < 0 else written)

    def _sign(self, operator: str, sign: ast.AST, before: ast.expr, after: ast.expr) -> Iterator[Mutation]:
        written = _SIGNS.get(type(sign))
        if written is None:
            return
        start, end = self.span(before)[1], self.span(after)[0]
        at = self.text.index(written, start, end)
        yield Mutation(operator, at, at + len(written), kinds.OPPOSITE[written])

    def _attribute(self, node: ast.Attribute) -> Iterator[Mutation]:
        last = self.span(node)[1]
        first = last - len(node.attr)
        if node.attr in _NARROW:
            yield Mutation(kinds.NARROW, first, last, _NARROW[node.attr])
        for other in other_names(node.attr, self.names):
            yield Mutation(kinds.PLANE, first, last, other)

    def _call(self, node: ast.Call, flags: Mapping[str, FlagValue]) -> Iterator[Mutation]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        # Without abs, `np.abs(x)` leaves its argument, and `x.abs()` the text before the method.
        is_method = isinstance(node.func, ast.Attribute) and not (
            isinstance(node.func.value, ast.Name) and node.func.value.id in ("np", "torch")
        )
        operands = ([node.func.value] if is_method else []) + node.args
        parts = [self.of(operand) for operand in operands]
        if name in _ABS and parts:
            yield Mutation(kinds.ABS, *self.span(node), f"({parts[0]})")
        if name in _CLAMP and len(parts) >= 2 and not node.keywords:
            for part in parts[: 1 if is_method or len(parts) > 2 else 2]:
                if not _CONSTANT.fullmatch(part):
                    yield Mutation(kinds.CLAMP, *self.span(node), f"({part})")
        if name not in _COMMUTATIVE:
            for one, other in pairwise(node.args):
                yield from self._swap(one, other)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if isinstance(argument, ast.Name) and argument.id in flags:
                yield Mutation(kinds.FLAG, *self.span(argument), repr(flags[argument.id]))

    def _swap(self, one: ast.expr, other: ast.expr) -> Iterator[Mutation]:
        (first, end), (begin, last) = self.span(one), self.span(other)
        if self.of(one) != self.of(other):
            wrong = self.text[begin:last] + self.text[end:begin] + self.text[first:end]
            yield Mutation(kinds.SWAP, first, last, wrong)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that decide what a module computes, without code that refuses cases or only serves the diagnosis."""
    match node:
        case ast.FunctionDef(name=name) if _NO_BYTES.match(name):
            return
        case ast.If(body=[ast.Raise(), *_]):
            for child in node.orelse:
                yield from _code(child)
            return
    yield node
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _code(child)
