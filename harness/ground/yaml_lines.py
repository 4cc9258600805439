"""YAML with line numbers: plain data, and the line of every key and item.

PyYAML takes the text apart. What a word without quotes is (null, a truth value, a number, else text) `value_of` says by
the core schema of YAML 1.2, because PyYAML's own types are those of YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from harness.errors import SuiteError

Route = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)

LARGEST = 1 << 19  # bytes; the largest suite has a fiftieth of that
DEEPEST = 24  # a suite is six deep
MOST_NODES = 20_000  # a limit, because aliases of aliases grow exponentially
MOST_DIGITS = 1000  # characters of a number; Python refuses to print an integer of more than 4300 digits

# libyaml takes a tenth of the time; PyYAML's wheels have it, and a PyYAML built elsewhere may not.
_PARSER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
# Neither parser takes control characters, and both end a line at U+0085, U+2028 and U+2029, as YAML 1.1 did.
_UNREADABLE = re.compile("[^\t\n -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")  # libyaml refuses its escape, and PyYAML's own parser does not
_NAME = re.compile(r"[&*][^\s,\[\]{}]+")


@dataclass(frozen=True)
class Document:
    """A YAML file as data.

    name: how messages call the file
    data: dicts, lists and scalars
    lines: 1-based line of each route into `data`, `("sets", "smoke", 0, "shapes", 2)`
    """

    name: str
    data: Any
    lines: dict[Route, int]

    def where(self, *route: str | int) -> str:
        """`file:line` of a route; of its nearest existing parent if the route itself is not in the file."""
        while route not in self.lines:
            route = route[:-1]
        return f"{self.name}:{self.lines[route]}"

    def each(self, model: type[Model], key: str) -> Iterator[Model]:
        """The entries of the list at `key`. Raises SuiteError, with file and line, for the first invalid one."""
        for number, entry in enumerate(self.data[key]):
            try:
                yield model.model_validate(entry)
            except ValidationError as error:
                raise SuiteError(self.where(key, number), first_mistake(error)) from None


def first_mistake(error: ValidationError) -> str:
    """`field: what is wrong with it`, of the first mistake that pydantic found."""
    first = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"].lower())))


def read(path: Path, name: str, first_key: str = "") -> Document:
    """Parse one file. Raises SuiteError if it cannot be read, is not YAML, is empty, says a key or an anchor twice, has
    a tag or a second document, or is larger or deeper than any suite.

    first_key: the key that such a file begins with, for the sentence about an empty file
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(LARGEST + 1)  # reads no more than that, because a link to a device never ends
    except OSError as error:
        raise SuiteError(f"{name}:1", f"the file cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        sentence = f"the file is not UTF-8 text: byte {error.start} cannot be decoded"
        raise SuiteError(f"{name}:1", sentence) from None
    if len(text) > LARGEST:
        raise SuiteError(f"{name}:1", f"the file has more than {LARGEST} characters; no suite or card needs as many")
    return _Reader(name, text).document(first_key)


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end is still to come.

    route: None for the document, whose one item is its value
    key: of a mapping, the one whose value comes next
    first: the number of the event that opened it
    """

    made: list[Any] | dict[str, Any]
    route: Route | None
    key: str | None = None
    anchor: str | None = None
    first: int = 0


class _Reader:
    """Makes data of the events of PyYAML's parser: a scalar, the start or end of a list or mapping, an alias."""

    def __init__(self, name: str, text: str):
        self.name, self.text = name, text
        self.lines: dict[Route, int] = {(): 1}
        self.within = [_Open([], None)]
        self.events: list[yaml.Event] = []
        self.anchors: dict[str, tuple[int, list[yaml.Event]]] = {}  # line and events; none before its value has ended
        self.alias = 0  # line of the alias whose value is being written out, or 0

    def document(self, first_key: str) -> Document:
        if found := _UNREADABLE.search(self.text):
            code = ord(found[0])
            line = self.text.count("\n", 0, found.start()) + 1
            raise self._invalid(line, f'the character U+{code:04X} may stand in it only as "\\u{code:04x}"')
        try:
            for event in yaml.parse(self.text, Loader=_PARSER):
                self.events.append(event)
                self._take(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = min(mark.line, self.text.rstrip("\n").count("\n")) + 1 if mark else 1
            raise self._invalid(line, error.problem or error.context) from None
        except (ValueError, OverflowError):  # PyYAML's own parser at "\\UFFFFFFFF"
            raise self._invalid(self.events[-1].end_mark.line + 1, "an escape is no character") from None
        if not self.within[0].made:
            raise self._error(1, "the file is empty" + (f"; it starts with `{first_key}:`" if first_key else ""))
        return Document(self.name, self.within[0].made[0], self.lines)

    def _error(self, line: int, sentence: str) -> SuiteError:
        return SuiteError(f"{self.name}:{line}", sentence)

    def _invalid(self, line: int, sentence: str) -> SuiteError:
        return self._error(line, f"this is not valid YAML: {sentence}")

    def _take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._check(event, line)
            self._place(self._scalar(event, line), line)
            if event.anchor and not self.alias:
                self.anchors[event.anchor] = line, [event]
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._check(event, line)
            if len(self.within) > DEEPEST:
                raise self._error(
                    self.alias or line, f"this is nested more than {DEEPEST} deep; a suite is nested six deep"
                )
            made = {} if kind is yaml.MappingStartEvent else []
            anchor = None if self.alias else event.anchor
            self.within.append(_Open(made, self._place(made, line), None, anchor, len(self.events) - 1))
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            ended = self.within.pop()
            if ended.anchor:
                self.anchors[ended.anchor] = self.anchors[ended.anchor][0], self.events[ended.first :]
        elif kind is yaml.AliasEvent:
            self._check_name(event, line)
            outer, self.alias = self.alias, self.alias or line
            for each in self._named(event.anchor, line):
                self._take(each)
            self.alias = outer
        elif kind is yaml.DocumentStartEvent:
            if self.within[0].made:
                raise self._error(line, "a second document begins, and a file has one")
            if event.version not in (None, (1, 2)):
                raise self._error(line, f"this says YAML {'.'.join(map(str, event.version))}, and 1.2 is read")

    def _check(self, event: yaml.NodeEvent, line: int) -> None:
        if event.tag is not None:
            raise self._error(line, "this has a tag, and tags are not read; a number in quotes is text")
        if event.anchor is None or self.alias:
            return
        self._check_name(event, line)
        if event.anchor in self.anchors:
            first = self.anchors[event.anchor][0]
            raise self._invalid(line, f"duplicate anchor &{event.anchor}; the first is on line {first}")
        self.anchors[event.anchor] = line, []

    def _check_name(self, event: yaml.NodeEvent, line: int) -> None:
        # PyYAML ends a name where YAML 1.2 goes on, and reads `&a:b` as the text `:b`.
        written = _NAME.match(self.text, event.start_mark.index)
        if written and written[0][1:] != event.anchor:
            raise self._invalid(line, f"the name in {written[0]} has other characters than letters, digits, - and _")

    def _named(self, anchor: str, line: int) -> list[yaml.Event]:
        if anchor not in self.anchors:
            raise self._invalid(line, f"there is no anchor &{anchor} before the alias *{anchor}")
        if not self.anchors[anchor][1]:
            raise self._error(line, f"*{anchor} stands within the value that it names")
        return self.anchors[anchor][1]

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> Any:
        if event.style:
            if _SURROGATE.search(event.value):
                raise self._invalid(line, "half of a surrogate pair is no character")
            return event.value
        if event.value == "<<":
            raise self._error(line, "a merge (`<<`) is not of YAML 1.2; write out what it would merge")
        try:
            return value_of(event.value)
        except ValueError as error:
            raise self._error(line, f"a value of this file cannot be read: {error}") from None

    def _place(self, value: Any, line: int) -> Route:
        """Put a value where the next one belongs, and note its line. Returns its route."""
        if len(self.lines) > MOST_NODES:
            raise self._error(self.alias or line, f"there are more than {MOST_NODES} values here, aliases written out")
        top = self.within[-1]
        if top.route is None:
            top.made.append(value)
            return ()
        if isinstance(top.made, list):
            route = (*top.route, len(top.made))
            top.made.append(value)
        elif top.key is None:
            self._check_key(top, value, line)
            route = (*top.route, value)
            top.key = value
        else:
            route = (*top.route, top.key)
            top.made[top.key] = value
            top.key = None
            return route
        self.lines[route] = line
        return route

    def _check_key(self, mapping: _Open, key: Any, line: int) -> None:
        if not isinstance(key, str):
            shown = "a key that is a list or a mapping" if isinstance(key, list | dict) else f"the key {key!r}"
            raise self._error(line, f"{shown} must be a word")
        if key in mapping.made:
            first = self.lines[(*mapping.route, key)]
            raise self._error(line, f"key '{key}' appears twice; the first is on line {first}")


_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{f"{sign}.{inf}": float(f"{sign}inf") for sign in ("", "+", "-") for inf in ("inf", "Inf", "INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER = re.compile(
    r"(?P<decimal>[-+]?[0-9]+)|0o(?P<octal>[0-7]+)|0x(?P<hex>[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
)


def value_of(word: str) -> None | bool | int | float | str:
    """The value of a word without quotes: `on`, `12:30`, `1_000` and `2026-01-01` are text, `012` is 12, `1e-3` 0.001.

    Raises ValueError for a number of more than MOST_DIGITS characters.
    """
    if word in _WORDS:
        return _WORDS[word]
    number = _NUMBER.fullmatch(word)
    if number is None:
        return word
    if len(word) > MOST_DIGITS:
        raise ValueError(f"this number has {len(word)} characters, and one may have {MOST_DIGITS}")
    digits, kind = number[number.lastgroup], number.lastgroup
    return float(digits) if kind == "float" else int(digits, {"decimal": 10, "octal": 8, "hex": 16}[kind])
