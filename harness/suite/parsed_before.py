"""A cache of parsed YAML files in the user's cache folder, by their text: the parser takes a second for all suites.

Only data that JSON reproduces exactly is kept, and nothing from a file with a mistake.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ruamel.yaml

from harness import private_files

Route = tuple[str | int, ...]

_PARSER = Path(__file__).with_name("yaml_lines.py")  # part of the key: editing it invalidates the cache


def find(text: str) -> tuple[Any, dict[Route, int]] | None:
    """The data and lines that were kept for this text, or None."""
    with suppress(OSError):
        content = private_files.read(_folder(), _name(text))
        if content is not None:
            data, lines = json.loads(content)
            return data, {tuple(route): line for route, line in lines}
    return None


def keep(text: str, data: Any, lines: Mapping[Route, int]) -> None:
    """Keep data and lines for `find`. If the cache cannot be written, nothing is kept."""
    try:
        content = json.dumps([data, [[list(route), line] for route, line in lines.items()]])
    except (TypeError, ValueError, RecursionError):  # for example a date, or an alias that contains itself
        return
    if json.loads(content)[0] == data:
        with suppress(OSError):
            private_files.write(_folder(), _name(text), content.encode())


def _folder() -> Path:
    return private_files.cache_root() / "yaml"


def _name(text: str) -> str:
    digest = hashlib.sha256(f"{ruamel.yaml.__version__}\0".encode())
    for content in (_PARSER.read_bytes(), text.encode("utf-8", "surrogatepass")):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()
