"""YAML with line numbers: plain data, and the line of every key and item."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from harness.errors import SuiteError
from harness.suite import parsed_before
from harness.suite.parsed_before import Route

Model = TypeVar("Model", bound=BaseModel)

LARGEST = 1 << 19  # bytes; the largest suite has a fiftieth of that
DEEPEST = 24  # a suite is six deep; a thousand levels take minutes to parse
MOST_NODES = 20_000  # a limit, because aliases of aliases grow exponentially

_QUOTED = re.compile(r'[ -]*\w+: "(?:[^"\\]|\\.)*"')  # a quoted line of a kernel, whose brackets are not YAML's
_TOO_DEEP = f"this is nested more than {DEEPEST} deep; a suite is nested six deep"


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
    """Parse one file. Raises SuiteError if it cannot be read, is not YAML, is empty, says a key or an anchor twice, or
    is larger or deeper than any suite.

    first_key: the key that such a file begins with, for the sentence about an empty file
    """
    line = 1
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST + 1)  # reads no more than that, because a link to a device never ends
        if found := parsed_before.find(text):
            return Document(name, *found)
        _refuse_giants(text, name)
        document = _parse(text, name, first_key)
        parsed_before.keep(text, document.data, document.lines)
        return document
    except OSError as error:
        sentence = f"the file cannot be read: {error.strerror or error}"
    except UnicodeDecodeError as error:
        sentence = f"the file is not UTF-8 text: byte {error.start} cannot be decoded"
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        sentence = f"this is not valid YAML: {error.problem or error.context}"
    except YAMLError as error:
        sentence = f"this is not valid YAML: {str(error).splitlines()[0]}"
    except ReusedAnchorWarning as error:
        sentence = f"this is not valid YAML: {' '.join(str(error).split())}"
    except RecursionError:
        sentence = _TOO_DEEP
    except (ValueError, OverflowError) as error:
        # A number of thousands of digits, or a date that is none.
        sentence = f"a value of this file cannot be read: {error}"
    raise SuiteError(f"{name}:{line}", sentence)


def _parse(text: str, name: str, first_key: str) -> Document:
    yaml = YAML(typ="safe", pure=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ReusedAnchorWarning)
        root = yaml.compose(text)
    if root is None:
        raise SuiteError(f"{name}:1", "the file is empty" + (f"; it starts with `{first_key}:`" if first_key else ""))
    lines: dict[Route, int] = {(): 1}
    _walk(yaml, root, (), name, lines)
    return Document(name, yaml.constructor.construct_document(root), lines)


def _refuse_giants(text: str, name: str) -> None:
    if len(text) > LARGEST:
        raise SuiteError(f"{name}:1", f"the file has more than {LARGEST} characters; no suite or card needs as many")
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        for character in "" if _QUOTED.fullmatch(line) else line:
            depth = max(0, depth + (character in "[{") - (character in "]}"))
            if depth > DEEPEST:
                raise SuiteError(f"{name}:{number}", _TOO_DEEP)


def _walk(yaml: YAML, node: Node, route: Route, name: str, lines: dict[Route, int]) -> None:
    where = f"{name}:{node.start_mark.line + 1}"
    if len(route) > DEEPEST:
        raise SuiteError(where, _TOO_DEEP)
    if len(lines) > MOST_NODES:
        raise SuiteError(where, f"there are more than {MOST_NODES} values here, aliases written out")
    if isinstance(node, MappingNode):
        for key_node, value in node.value:
            key = yaml.constructor.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise SuiteError(f"{name}:{line}", f"the key {key!r} must be a word")
            if (*route, key) in lines:
                first = lines[(*route, key)]
                raise SuiteError(f"{name}:{line}", f"key '{key}' appears twice; the first is on line {first}")
            lines[(*route, key)] = line
            _walk(yaml, value, (*route, key), name, lines)
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*route, index)] = item.start_mark.line + 1
            _walk(yaml, item, (*route, index), name, lines)
