"""The tokens of a kernel or an oracle, and its scopes: functions, types, members as `Type::name`, and constants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import NamedTuple

NAME, NUMBER, STRING = "name", "number", "string"  # kinds of tokens; all else is a sign
_TOKEN = r"""
    (?P<skipped>%s|\s+)
  | (?P<string>\"{3}.*?\"{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<number>0[xX][\da-fA-F']+[uUlL]*|(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign><<=|>>=|->|::|<<|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%%&|^]=|.)
"""
_FLAGS = re.VERBOSE | re.MULTILINE | re.DOTALL
CLOSING = {"(": ")", "[": "]", "{": "}"}
_CUDA = re.compile(_TOKEN % r"//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*", _FLAGS)
_PYTHON = re.compile(_TOKEN % r"\#[^\n]*", _FLAGS)
_TYPES = {"struct", "class", "union", "enum"}
_ATTRIBUTES = {"__launch_bounds__", "alignas", "__align__", "__attribute__", "decltype", "requires"}


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class Scope(NamedTuple):
    """tokens[first:last] of a source are what is called `name`"""

    name: str
    first: int
    last: int


def tokens_of(text: str, python: bool) -> list[Token]:
    """The tokens of a text, but for comments, directives and, in Python, commas before a closing bracket."""
    matches = (_PYTHON if python else _CUDA).finditer(text)
    found = [Token(str(match.lastgroup), match[0], *match.span()) for match in matches if match.lastgroup != "skipped"]
    if not python:
        return found
    pairs = zip_longest(found, found[1:])
    return [one for one, two in pairs if not (one.text == "," and two and two.text in CLOSING.values())]


def is_python(file: str) -> bool:
    return file.endswith(".py")


def folded(text: str, tokens: Sequence[Token]) -> str:
    """The tokens as one line, with a space wherever the text has space or a comment."""
    gaps = [" " * (text[one.end : two.start] != "") for one, two in pairwise(tokens)]
    return "".join(token.text + gap for token, gap in zip_longest(tokens, gaps, fillvalue=""))


@dataclass(frozen=True, eq=False)
class Source:
    """A file of kernels or oracles. file: its path below `harness/`"""

    file: str
    text: str

    @property
    def python(self) -> bool:
        return is_python(self.file)

    @cached_property
    def tokens(self) -> list[Token]:
        return tokens_of(self.text, self.python)

    @cached_property
    def words(self) -> list[str]:
        return [token.text for token in self.tokens]

    @cached_property
    def ends(self) -> list[bool]:
        """Whether each token ends a statement: a semicolon or brace, in Python the last of a logical line."""
        if not self.python:
            return [word in (";", "{", "}") for word in self.words]
        depth, found = 0, []
        for one, two in pairwise(self.tokens):
            depth += (one.text in CLOSING) - (one.text in CLOSING.values())
            found.append(depth == 0 and "\n" in self.text[one.end : two.start])
        return [*found, True]

    @cached_property
    def scopes(self) -> list[Scope]:
        """Outer scopes before inner ones."""
        found = self._python_scopes(ast.parse(self.text)) if self.python else self._scopes(0, len(self.tokens), "")
        return list(found)

    def scope_of(self, first: int, last: int) -> Scope:
        """The innermost scope of tokens[first:last]. Raises ValueError if it is in none, as an import."""
        around = [scope for scope in self.scopes if scope.first <= first and last <= scope.last]
        return min(around, key=lambda scope: scope.last - scope.first)

    def _python_scopes(self, node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[Scope]:
        starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        for child in node.body:
            match child:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), *_])])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    first = child.lineno
                case _:
                    continue
            end = starts[child.end_lineno] if child.end_lineno < len(starts) else len(self.text)
            within = [i for i, token in enumerate(self.tokens) if starts[first - 1] <= token.start < end]
            yield Scope(prefix + name, within[0], within[-1] + 1)
            if isinstance(child, ast.ClassDef):
                yield from self._python_scopes(child, f"{name}.")

    def _scopes(self, first: int, end: int, prefix: str) -> Iterator[Scope]:
        """The scopes of declarations from a token on."""
        while first < end:
            name, body, last = self._declaration(first, end)
            words = {token.text for token in self.tokens[first : body or last]}
            if body and words & {"namespace", "extern"} and "(" not in words:
                yield from self._scopes(body + 1, last - 1, prefix)
            elif name:
                yield Scope(prefix + name, first, last)
                if body and words & _TYPES and "(" not in words and "enum" not in words:
                    yield from self._scopes(body + 1, self.closing(body), f"{prefix}{name}::")
            first = last

    def _declaration(self, first: int, end: int) -> tuple[str, int | None, int]:
        """The name that is declared at a token, its first `{` if it has one, and where it ends."""
        name, body, i, named = "", None, first, False
        if self.tokens[first].text == "template":
            i = self._template_end(first + 1)
        is_type = False
        while i < end:
            text = self.tokens[i].text
            if text in _ATTRIBUTES:
                i = self.closing(i + 1)
            elif text == ";":
                return name, body, i + 1
            elif text == "{":
                body, close = body or i, self.closing(i)
                after = self.tokens[close + 1].text if close + 1 < end else ""
                if after not in (";", ",", "{") and not (is_type or "=" in name):
                    return name, body, close + 1
                named, i = True, close
            elif text in CLOSING:
                named, i = True, self.closing(i)
            elif text in ("=", ":") or text == "operator":
                if text == "operator":
                    name = "operator " + self.tokens[i + 1].text
                named = True
            elif text in _TYPES and not named:
                is_type = True
            elif self.tokens[i].kind == NAME and not named:
                name = text
            i += 1
        return name, body, end

    def _template_end(self, i: int) -> int:
        depth = 0
        while True:
            text = self.tokens[i].text
            depth += (text == "<") - (text == ">") - 2 * (text == ">>")
            i += 1
            if depth <= 0:
                return i

    def closing(self, i: int) -> int:
        """The index of the bracket that closes the one at token i."""
        depth = 0
        for j in range(i, len(self.tokens)):
            depth += (self.tokens[j].text in CLOSING) - (self.tokens[j].text in CLOSING.values())
            if depth == 0:
                return j
        return len(self.tokens) - 1
