"""A change of one place in a text, and the kinds of mistakes that changes imitate."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import NamedTuple

from evidence.mutants.reach import NARROW

PLUS, MINUS, TWICE = "constant + 1", "constant - 1", "constant x 2"
COMPARISON, SUM, SWAP = "< and <=", "sign of a sum", "swapped arguments"
ABS, CLAMP, FLAG = "abs dropped", "clamp dropped", "flag not passed on"
PLANE, GROUP = "other direction", "other group"
FENCE, BARRIER, VOLATILE = "fence dropped", "barrier dropped", "volatile dropped"
SCOPE, PARTICIPANTS = "narrower scope", "participants"

CONCURRENCY = (FENCE, BARRIER, VOLATILE, SCOPE, PARTICIPANTS)
OPERATORS = (
    PLUS, MINUS, TWICE, COMPARISON, SUM, SWAP, ABS, CLAMP, FLAG, NARROW, PLANE, GROUP, *CONCURRENCY,
)  # fmt: skip

OPPOSITE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "+=": "-=", "-=": "+="}
# Pairs of words in names for opposite directions, planes or operands.
_PAIRS = (
    ("rowwise", "columnwise"), ("row", "col"), ("rows", "cols"), ("across", "down"), ("lines", "blocks"),
    ("upper", "lower"), ("lower", "upper"), ("low", "high"), ("a", "b"), ("m", "n"), ("x", "y"), ("first", "last"),
)  # fmt: skip
OTHER = {word: other for pair in _PAIRS for word, other in (pair, pair[::-1])}
# Variables that index tensors, groups and buffers.
INDICES = {"group", "tensor", "index", "item", "half", "buffer", "slot", "stage", "band", "direction", "window"}


class Mutation(NamedTuple):
    """text[start:end] becomes `wrong`. operator: one of OPERATORS"""

    operator: str
    start: int
    end: int
    wrong: str


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
