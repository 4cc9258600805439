"""Names for the opposite direction, plane or operand."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from evidence.mutants.generated.change import OTHER

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def other_names(name: str, known: Container[str]) -> Iterator[str]:
    """The names in `known` that differ from `name` in one word, replaced by its opposite."""
    for found in _WORD.finditer(name):
        word = found[0]
        other = OTHER.get(word.lower())
        if other is None:
            continue
        other = other.upper() if word.isupper() else other.capitalize() if word[0].isupper() else other
        changed = name[: found.start()] + other + name[found.end() :]
        if changed in known:
            yield changed
