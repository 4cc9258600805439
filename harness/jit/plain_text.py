"""C++ source without what makes its directives hard to find: comments, joined lines, raw strings, digraphs.

Which files a source includes is decided here, before NVRTC sees it. Two readers of C++ disagree sooner or later on
where a comment or a string ends, and what one of them takes for a string is a directive to the other. So NVRTC is
given the text that this module writes. In it no comment is left to end before a `#`, no string spans lines, and a line
is a directive exactly if it begins with `#`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# A directive that opens a file, and what it names: `<file>`, `"file"`, or the first word of a macro → its new text.
Rewrite = Callable[[str, str], str]
Has = Callable[[str], bool]  # whether `__has_include` finds a `<file>` or `"file"`

_TOKEN = re.compile(
    r"""
      (?P<line>\n)
    | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<raw>(?P<kind>u8|[uUL])?R"(?P<mark>[^ ()\\\t\v\f\n"]{0,16})\((?P<body>.*?)\)(?P=mark)")
    | (?P<literal>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    | (?P<open>["'][^\n]*)
    | (?P<hash>\#|%:)
    | (?P<asked>__has_(?:include|embed)\w*)
    | (?P<word>\.?[0-9](?:[eEpP][+-]|'\w|[\w.])*|[A-Za-z_$\x80-\U0010ffff][\w$\x80-\U0010ffff]*)
    | (?P<rest>[^\w\n"'/\#%$.\x80-\U0010ffff]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_GAP = r"(?:[^\S\n]|/\*.*?\*/)*"
_NAMED = r"<[^>\n]*>|\"[^\"\n]*\""
_DIRECTIVE = re.compile(rf"{_GAP}(?P<name>[A-Za-z_]\w*)?", re.DOTALL)
_TARGET = re.compile(rf"{_GAP}(?P<target>{_NAMED}|\w*)", re.DOTALL)
_ASKED = re.compile(rf"{_GAP}\({_GAP}(?P<target>{_NAMED}){_GAP}\)", re.DOTALL)
_OPENS_FILES = ("include", "include_next", "import", "embed")
_PREFIXES = ("u8", "u", "U", "L")


def plain(text: str, rewrite: Rewrite, has: Has) -> str:
    """The text with its directives found and rewritten, each on the line where it was."""
    return _Plain(text, rewrite, has).written()


class _Plain:
    """One text on its way. late: line ends taken out of the present line, which are written at its end"""

    def __init__(self, text: str, rewrite: Rewrite, has: Has):
        whole = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", " ")
        self.parts = whole.split("\\\n")
        self.text, self.rewrite, self.has = "".join(self.parts), rewrite, has
        self.out: list[str] = []
        self.at, self.late, self.directive, self.begins = 0, 0, "", True
        self.joints: list[int] = []  # where lines were joined, as offsets in `text`
        end = 0
        for part in self.parts[:-1]:
            end += len(part)
            self.joints.append(end)
        self.joints.reverse()

    def written(self) -> str:
        while found := _TOKEN.match(self.text, self.at):
            begin, self.at = self.at, found.end()
            kind = found.lastgroup
            if kind == "line":
                self._end_line(begin)
            elif kind == "comment":
                self._blank(found[0])
            elif kind == "hash":
                self._hash(found[0])
            else:
                self.begins = self.begins and found[0].isspace()
                self.out.append(self._token(kind, found, begin))
        self._end_line(len(self.text), "")
        return "".join(self.out)

    def _token(self, kind: str | None, found: re.Match[str], begin: int) -> str:
        token = found[0]
        if kind == "raw":
            return self._raw(found, begin)
        if kind == "literal":
            return _quoted(token)
        if kind == "open":  # a mistake, or words that `#if` skips; they must not begin anything
            return token[0] + re.sub("[\"'\\\\]", " ", _apart(token[1:]))
        if kind == "asked":
            return self._asked(token)
        if kind == "word":
            # Without separators of digits a standard that lacks them reads the same tokens, and a string behind any
            # other word has no prefix that could make it raw.
            word = token.replace("'", "") if token[0] in ".0123456789" else token
            glued = self.text[self.at : self.at + 1] in ("'", '"') and word not in _PREFIXES
            return f"{word} " if glued else word
        return self._between(token)

    def _between(self, token: str) -> str:
        """Operators and spaces. A backslash stays only where it spells a character, as in `\\u00e9`."""
        if token == "/" and self.out and self.out[-1].endswith("*"):
            return " /"
        spells = token.endswith("\\") and self.text[self.at : self.at + 1] in ("u", "U")
        return _apart(token[:-1].replace("\\", " ") + "\\" if spells else token.replace("\\", " "))

    def _end_line(self, at: int, end: str = "\n") -> None:
        while self.joints and self.joints[-1] <= at:
            self.joints.pop()
            self.late += 1
        self.out.append(end + "\n" * self.late)
        self.late, self.directive, self.begins = 0, "", True

    def _blank(self, comment: str) -> None:
        """A comment becomes a space; behind one of several lines NVRTC takes a `#` as the first of its line."""
        lines = comment.count("\n")
        if lines and not self.directive:
            self.out.append("\n" * lines)
            self.begins = True
        else:
            self.out.append(" ")
            self.late += lines

    def _hash(self, spelled: str) -> None:
        if not self.begins:
            self.out.append(spelled)
            return
        found = _DIRECTIVE.match(self.text, self.at)
        self.directive, self.begins = (found["name"] if found else None) or "#", False
        if found:
            self._passed(found)
        if self.directive not in _OPENS_FILES:
            self.out.append(f"#{self.directive.removeprefix('#')}")
            return
        if target := _TARGET.match(self.text, self.at):
            self._passed(target)
        self.out.append(self.rewrite(self.directive, target["target"] if target else ""))

    def _asked(self, word: str) -> str:
        found = _ASKED.match(self.text, self.at) if self.directive else None
        if not found or word != "__has_include":
            return word  # behind `defined`, or of a macro
        self._passed(found)
        return str(int(self.has(found["target"])))

    def _passed(self, found: re.Match[str]) -> None:
        self.at = found.end()
        self.late += found[0].count("\n")

    def _raw(self, found: re.Match[str], begin: int) -> str:
        """A raw string as one with escapes on one line; where lines were joined in it, it has a backslash."""
        body, first = found["body"], found.start("body")
        for joint in self.joints:  # from the last one on
            if first <= joint <= first + len(body):
                body = f"{body[: joint - first]}\\\n{body[joint - first :]}"
        self.late += found["body"].count("\n")
        escaped = body.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return _quoted(f'{found["kind"] or ""}"{escaped}"')


def _apart(text: str) -> str:
    """Text outside of strings in which nothing is, or becomes, a comment or a trigraph."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").replace("??", "? ?")


def _quoted(literal: str) -> str:
    """A literal of the same value in which nothing looks like a comment or a trigraph."""
    return literal.replace("/*", r"/\052").replace("*/", r"*\057").replace("??", r"?\?").replace("??", r"?\?")
