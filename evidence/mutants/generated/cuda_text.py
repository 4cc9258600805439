"""Tokens of CUDA C++, and the calls among them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from evidence.mutants.source import CLOSING, NAME, Token, tokens_of

# Words before a bracket that is no call.
_NO_CALL = {
    "if", "for", "while", "switch", "return", "sizeof", "alignas", "asm", "volatile", "static_assert", "defined",
    "decltype", "__launch_bounds__",
}  # fmt: skip
# Code that affects neither bytes nor time: compiler hints, and compile-time checks.
_LEFT_ALONE = {"static_assert", "__launch_bounds__"}


class Call(NamedTuple):
    """name: index of its token; open, close: indices of the round brackets; arguments: (start, end) in the text"""

    name: int
    open: int
    close: int
    arguments: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class CudaText:
    """A source file, without comments and preprocessor lines, static_assert and __launch_bounds__."""

    text: str

    @cached_property
    def tokens(self) -> list[Token]:
        found = tokens_of(self.text, python=False)
        kept: list[Token] = []
        skip_to = 0
        for i, token in enumerate(found):
            if token.text in _LEFT_ALONE:
                skip_to = self._closing_of(found, i + 1) + 1
            if i >= skip_to:
                kept.append(token)
        return kept

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(token.text for token in self.tokens if token.kind == NAME)

    @cached_property
    def template_parameters(self) -> dict[str, str]:
        """The kind of each non-type template parameter by name: `bool`, `int` or an enum."""
        found = {}
        for first, last in self.template_heads:
            for i in range(first, last):
                before, here, after = self.tokens[i - 1 : i + 2]
                if here.kind == before.kind == NAME and after.text in (",", ">"):
                    found[here.text] = before.text
        return found

    @cached_property
    def template_heads(self) -> list[tuple[int, int]]:
        """Indices of the brackets of every `template <...>`."""
        return [
            (i + 1, self._closing_angle(i + 1) or i + 1)
            for i, token in enumerate(self.tokens)
            if token.text == "template"
        ]

    def in_template_head(self, i: int) -> bool:
        return any(first <= i <= last for first, last in self.template_heads)

    def spaced(self, i: int) -> bool:
        """Whether a token has white space on both sides, which tells a binary operator from an angle bracket."""
        token = self.tokens[i]
        return self.text[token.start - 1].isspace() and self.text[token.end].isspace()

    def is_declared(self, i: int) -> bool:
        """Whether the name at token i is being declared: it follows a type, perhaps with `*` or `&`."""
        before = self.tokens[i - 1]
        if before.text in ("*", "&", ">", "&&"):
            return not self.text[before.start - 1].isspace() and self.text[before.end].isspace()
        return before.kind == NAME and before.text not in ("return", "else", "case", "constexpr", "new")

    def statement_end(self, i: int) -> int:
        """The end in the text of the statement that begins at token i, including its semicolon."""
        depth = 0
        for token in self.tokens[i:]:
            depth += (token.text in CLOSING) - (token.text in CLOSING.values())
            if token.text == ";" and depth == 0:
                return token.end
        return self.tokens[i].end

    def has_no_output(self, i: int) -> bool:
        """Whether the asm statement with its bracket at token i has no outputs, which makes it implicitly volatile."""
        statement = self.text[self.tokens[i].start : self.tokens[self._closing_of(self.tokens, i)].end]
        return re.search(r'"[+=]\w+"', statement) is None

    def begins_statement(self, i: int) -> bool:
        return i > 0 and self.tokens[i - 1].text in (";", "{", "}", ")", "else")

    def calls(self) -> Iterator[Call]:
        """All calls and initialisations, `f(a, b)`, `f<x>(a)`, `T t(a, b)`, but no function declarations."""
        for i, token in enumerate(self.tokens):
            if token.kind != NAME or token.text in _NO_CALL:
                continue
            opening = i + 1
            if self._is_angle(opening):
                opening = (self._closing_angle(opening) or opening) + 1
            if opening < len(self.tokens) and self.tokens[opening].text == "(":
                close = self._closing_of(self.tokens, opening)
                if not self._declares(opening, close):
                    yield Call(i, opening, close, tuple(self._arguments(opening, close)))

    def template_arguments(self, i: int) -> list[tuple[int, int]]:
        """(start, end) in the text of the arguments `<...>` of the name at token i; none if it has none."""
        if not self._is_angle(i + 1):
            return []
        return list(self._arguments(i + 1, self._closing_angle(i + 1) or i + 1))

    def at(self, position: int) -> int:
        """The index of the first token at or after a position in the text."""
        return bisect_left(self.tokens, position, key=lambda token: token.start)

    def _is_angle(self, i: int) -> bool:
        """Whether the token opens template arguments: `<` with no space before it."""
        return (
            i < len(self.tokens)
            and self.tokens[i].text == "<"
            and self.tokens[i - 1].end == self.tokens[i].start
            and self._closing_angle(i) is not None
        )

    def _closing_angle(self, i: int) -> int | None:
        depth = 0
        for j in range(i, len(self.tokens)):
            text = self.tokens[j].text
            if text in ("<", ">") and not (j > i and self.spaced(j)):
                depth += 1 if text == "<" else -1
                if depth == 0:
                    return j
            elif text in (";", "{"):
                return None
        return None

    @staticmethod
    def _closing_of(tokens: list[Token], i: int) -> int:
        depth = 0
        for j in range(i, len(tokens)):
            depth += (tokens[j].text in CLOSING) - (tokens[j].text in CLOSING.values())
            if depth == 0:
                return j
        return len(tokens) - 1

    def _arguments(self, opening: int, close: int) -> Iterator[tuple[int, int]]:
        first, i = opening + 1, opening + 1
        while i < close:
            if self.tokens[i].text in CLOSING:
                i = self._closing_of(self.tokens, i)
            elif self._is_angle(i):
                i = self._closing_angle(i) or i
            elif self.tokens[i].text == ",":
                yield self.tokens[first].start, self.tokens[i - 1].end
                first = i + 1
            i += 1
        if first < close:
            yield self.tokens[first].start, self.tokens[close - 1].end

    def _declares(self, opening: int, close: int) -> bool:
        """Whether round brackets hold parameters, `(int a, const T& b)`, and not arguments."""
        for start, _ in self._arguments(opening, close):
            i = self.at(start)
            words = self.tokens[i : i + 8]
            if words[0].kind == NAME and words[1].kind == NAME:
                return True
            if self._is_angle(i + 1):
                i = self._closing_angle(i + 1) or i
                words = self.tokens[i : i + 3]
            if words[1].text in ("*", "&") and self.is_declared(i + 2):
                return True
        return False
