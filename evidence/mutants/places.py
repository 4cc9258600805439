"""Where a mutant's change is: at an expression of a scope, however its lines are broken and whichever file has it.

An expression is a sequence of tokens; white space, comments and directives do not count.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from evidence.mutants.source import NAME, NUMBER, Scope, Source, folded, is_python, tokens_of
from harness.files import PACKAGE
from harness.text import nearest

_MARK = re.compile(r"\[-(.*?)-\]|\{\+(.*?)\+\}", re.DOTALL)
_NUMBER = re.compile(r" @(\d+)$")


class Edit(NamedTuple):
    """A change of a file: text[start:end] becomes `new`. first, last: the tokens there; none lie in an insertion"""

    file: str
    first: int
    last: int
    start: int
    end: int
    new: str

    @property
    def key(self) -> tuple[str, int, int, tuple[str, ...]]:
        """Equal for equal edits."""
        return (
            self.file,
            self.first,
            self.last,
            tuple(token.text for token in tokens_of(self.new, is_python(self.file))),
        )

    def applied(self, text: str) -> str:
        """The changed text. Other lines of a kernel keep their numbers."""
        lost = text.count("\n", self.start, self.end) - self.new.count("\n")
        return text[: self.start] + self.new + "\n" * (0 if is_python(self.file) else lost) + text[self.end :]


def edit(source: Source, at: int, wrong: str, length: int) -> Edit:
    """The edit by which tokens[at:at + length] become `wrong`, without what both have in common at either end."""
    old, new = source.tokens[at : at + length], tokens_of(wrong, source.python)
    head = tail = 0
    while head < min(len(old), len(new)) and old[head].text == new[head].text:
        head += 1
    while tail < min(len(old), len(new)) - head and old[-1 - tail].text == new[-1 - tail].text:
        tail += 1
    first, last, new_last = at + head, at + length - tail, len(new) - tail
    inserted = wrong[new[head].start : new[new_last - 1].end] if head < new_last else ""
    if first < last:
        start, end = source.tokens[first].start, source.tokens[last - 1].end
    elif head:  # behind the token before it, and before a comment that ends that line
        start = end = source.tokens[first - 1].end
        inserted = wrong[new[head - 1].end : new[head].start] + inserted
    else:
        start = end = source.tokens[first].start
        inserted += wrong[new[new_last - 1].end : new[new_last].start]

    def apart(i: int, letters: str) -> bool:
        """Whether letters on both sides of new token i are of two words."""
        glued = 0 < i < len(new) and new[i - 1].end == new[i].start
        return not glued and re.fullmatch(r"\w\w", letters) is not None

    before, behind = source.text[:start][-1:], source.text[end : end + 1]
    if inserted and apart(head, before + inserted[0]):
        inserted = " " + inserted
    if apart(new_last, (before + inserted)[-1:] + behind):
        inserted += " "
    return Edit(source.file, first, last, start, end, inserted)


def text_edit(source: Source, start: int, end: int, new: str) -> Edit:
    """The edit by which text[start:end] becomes `new`, of whole tokens."""
    first = bisect_right(source.tokens, start, key=lambda token: token.end)
    last = bisect_left(source.tokens, end, key=lambda token: token.start)
    while 0 < first < last and _glued(source, first - 1):
        first -= 1
    while first < last < len(source.tokens) and _glued(source, last - 1):
        last += 1
    if first < last:
        wrong = source.text[source.tokens[first].start : start] + new + source.text[end : source.tokens[last - 1].end]
        if [token.text for token in tokens_of(wrong, source.python)] != source.words[first:last]:
            return edit(source, first, wrong, last - first)
    return Edit(source.file, 0, 0, start, end, new)  # of a comment or of space


def _glued(source: Source, i: int) -> bool:
    """Whether token i and the next are parts of one word, as of a hexadecimal fraction."""
    one, two = source.tokens[i : i + 2]
    return one.end == two.start and {one.kind, two.kind} <= {NAME, NUMBER}


class Substitution(NamedTuple):
    """The expression `right` becomes `wrong`. number: which one, from 1, of equal ones in a scope; 0 if there is one"""

    right: str
    wrong: str
    number: int = 0


def change_of(text: str) -> Substitution:
    """Read `sum{+ + 1+}`, `wait<[-2-]{+3+}>()` or `[-sync();-] @2`, the second sync() of its scope."""
    number, text = _NUMBER.search(text), _NUMBER.sub("", text)
    right, wrong = (_MARK.sub(lambda mark, kept=kept: mark[kept] or "", text) for kept in (1, 2))
    return Substitution(right, wrong, int(number[1]) if number else 0)


class Places:
    """The scopes of some files, by default of all kernels and oracles.

    root: the folder that has `kernels` and `oracles`; paths: files below it
    """

    def __init__(self, root: Path = PACKAGE, paths: Iterable[Path] | None = None):
        if paths is None:
            paths = (path for tree in ("kernels", "oracles") for path in sorted((root / tree).rglob("*")))
        files = {path.relative_to(root).as_posix(): path for path in paths if path.suffix in (".cu", ".cuh", ".py")}
        self.sources = {file: Source(file, path.read_text(encoding="utf-8")) for file, path in files.items()}
        self._scopes: dict[str, list[tuple[Source, Scope]]] = {}
        for source in self.sources.values():
            for scope in source.scopes:
                self._scopes.setdefault(scope.name, []).append((source, scope))

    def called(self, name: str) -> list[tuple[Source, Scope]]:
        """The scopes of a name, which may begin with a file's stem, `swizzle/kThreads`, where several files have it."""
        stem, _, name = name.rpartition("/")
        return [(source, scope) for source, scope in self._scopes.get(name, ()) if stem in ("", Path(source.file).stem)]

    def name_of(self, source: Source, scope: Scope) -> str:
        """The name by which `called` finds the scopes of this file."""
        files = {found.file for found, _ in self._scopes[scope.name]}
        return scope.name if len(files) == 1 else f"{Path(source.file).stem}/{scope.name}"

    def lines_of(self, name: str, right: str) -> Iterator[tuple[str, int]]:
        """File and number of each line that has a part of an expression, in the scopes of a name."""
        for source, at in self.all_of(name, right):
            for token in source.tokens[at : at + len(tokens_of(right, source.python))]:
                yield source.file, source.text.count("\n", 0, token.start) + 1

    @cache  # noqa: B019 - a process has one index
    def all_of(self, name: str, right: str) -> list[tuple[Source, int]]:
        """Where an expression is in the scopes of a name: files and tokens."""
        return [(source, at) for source, scope in self.called(name) for at in occurrences(source, scope, right)]

    def edit(self, name: str, change: Substitution) -> Edit:
        """The edit that makes a change in a scope. Raises LookupError if it is not there, with what is."""
        found, number = self.all_of(name, change.right), change.number
        if not (number <= len(found) if number else len(found) == 1):
            raise LookupError(self._what_is_there(name, change, len(found)))
        source, at = found[max(number - 1, 0)]
        return edit(source, at, change.wrong, len(tokens_of(change.right, source.python)))

    def _what_is_there(self, name: str, change: Substitution, count: int) -> str:
        if count:
            which = f"; there is no number {change.number}" if change.number else "; ` @2` at the end is the second"
            return f"{name} has `{change.right}` {count} times{which}"
        return self.absent(name, change.right)

    def absent(self, name: str, right: str) -> str:
        """A sentence on an expression that the scopes of a name lack: where it stands, or what is nearest."""
        scopes = self.called(name)
        others = {
            self.name_of(source, scope): None
            for named in self._scopes.values()
            for source, scope in named
            if any(True for _ in occurrences(source, scope, right))
        }
        missing = f"{name} has no `{right}`" if scopes else f"nothing is called {name}"
        if others:
            return f"{missing}; `{right}` is in {' and in '.join(others)}"
        if not scopes:
            return f"{missing}{nearest(name, self._scopes)}"
        return f"{missing}; the nearest there is `{max(_candidates(scopes, right))[1]}`"


def occurrences(source: Source, scope: Scope, right: str) -> Iterator[int]:
    """The tokens of a scope at which an expression begins."""
    words = [token.text for token in tokens_of(right, source.python)]
    for at in range(scope.first, scope.last - len(words) + 1):
        if source.words[at] == words[0] and source.words[at : at + len(words)] == words:
            yield at


def _candidates(scopes: Sequence[tuple[Source, Scope]], right: str) -> Iterator[tuple[float, str]]:
    """Every expression of a length, and how like it is."""
    for source, scope in scopes:
        words = [token.text for token in tokens_of(right, source.python)]
        matcher = difflib.SequenceMatcher(b=words)
        for at in range(scope.first, max(scope.last - len(words), scope.first) + 1):
            tokens = source.tokens[at : min(at + len(words), scope.last)]
            matcher.set_seq1([token.text for token in tokens])
            yield matcher.ratio(), folded(source.text, tokens)


places = cache(Places)
