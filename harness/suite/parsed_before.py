"""What a YAML file was parsed into, kept in the user's cache by its text: the parser takes a second for all suites.

Only what JSON gives back as it was is kept, and nothing of a file with a mistake.
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

_PARSER = Path(__file__).with_name("yaml_lines.py")  # once it is edited, everything is parsed anew


def find(text: str) -> tuple[Any, dict[Route, int]] | None:
    """Data and lines that were kept of this text, or None."""
    with suppress(OSError):
        content = private_files.read(_folder(), _name(text))
        if content is not None:
            data, lines = json.loads(content)
            return data, {tuple(route): line for route, line in lines}
    return None


def keep(text: str, data: Any, lines: Mapping[Route, int]) -> None:
    """Keep what `find` shall give. A cache that cannot be written keeps nothing."""
    try:
        content = json.dumps([data, [[list(route), line] for route, line in lines.items()]])
    except (TypeError, ValueError, RecursionError):  # a date, say, or an alias of what it lies in
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
