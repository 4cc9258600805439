"""Random changes of a text that leave most of it unchanged."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

TOKENS = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xc2\x85", b"\xe2\x80\xa8", b"\r", b"\n", b"\t",
    b"9" * 5000, b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"null", b"true", b"{}", b"[]", b'""', b".inf", b"2**99",
    b"[" * 3000, b"{" * 3000, b'{"a":' * 2000, b"- " * 2000, b"? " * 500, b"(" * 300, b"9*" * 500 + b"9",
    b"&a [*a]", b"*a", b"&a", b"&a [&b [*a, *a], *a]", b"<<: *a", b"!!python/object/apply:os.system [ls]", b"!!set {a}",
    b"!!timestamp 2001-99-99", b"!!binary x", b"%YAML 1.1\n---\n", b"---\n", b"...\n", b": ", b"|", b">", b"'", b'"',
    b"\\u0000", b"\\ud800", b"../../etc/passwd", b"<script>alert(1)</script>", b"=cmd|' /C calc'!A0",
    b"file:/dev/zero", b"file:/proc/self/mem#x", b"99999999*64x64", b"64*64x64", b"PASS", b"MISMATCH", b"EXCLUDED",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 0.0, 1e-300, 1e300, 1 << 53, 1 << 200, "", "x", "PASS", "CONVENTION", "EXCLUDED",
    "MISMATCH", "numpy", "torch", "emulator", "cuda", "sm_90a", "normal", "\x1b[2J", "[/]", "\u202e", [], {}, [[]],
    ["numpy", "torch"], ["sm_90a"], {"sm_90a": {"exact": "0" * 32}},
)  # fmt: skip
_WORD = re.compile(rb"[A-Za-z0-9_.]+")


def mutated(data: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """The text after one to four changes of bits, spans, lines or words. others: texts to take parts from"""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        data = rng.choice(_CHANGES)(data, rng, others or (data,))
    return data


def mutated_json(document: Any, rng: random.Random) -> Any:
    """The value after one to three changes of something in it: replaced, removed, doubled, moved or scaled."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(document))
        if places:
            _change(*rng.choice(places), rng, places)
    return document


def _places(value: Any) -> Any:
    """Every list and object in a value, with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _change(holder: Any, key: Any, rng: random.Random, places: Sequence[tuple[Any, Any]]) -> None:
    old = copy.deepcopy(holder[key])
    match rng.choice(("value", "value", "remove", "double", "other", "scale", "scale")):
        case "value":
            holder[key] = copy.deepcopy(rng.choice(_VALUES))
        case "remove":
            del holder[key]
        case "double" if isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), old)
        case "double":
            holder[rng.choice(("surprise", f"{key}_", ""))] = old
        case "other":
            where, name = rng.choice(places)
            try:
                holder[key] = copy.deepcopy(where[name])
            except (KeyError, IndexError, TypeError):
                holder[key] = None  # an earlier change removed this place
        case "scale" if isinstance(old, int | float) and not isinstance(old, bool):
            holder[key] = old * rng.choice((-1, 0, 0.5, 0.999, 1.001, 2, 1e6))


def _flip(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes(byte ^ 1 << rng.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]


def _cut(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _span(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Drop a span, repeat it, or insert or substitute a token or a part of another text."""
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice((0, 1, 2, 5, 20, 200)))
    other = rng.choice(others)
    at = rng.randrange(len(other) + 1)
    span = data[start:end]
    new = rng.choice((b"", span * 2, span * 50, rng.choice(TOKENS), other[at : at + 200]))
    return data[:start] + new + data[end:]


def _lines(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Move or repeat a line."""
    lines = data.split(b"\n")
    line = rng.randrange(len(lines))
    lines.insert(rng.randrange(len(lines) + 1), lines[line] if rng.random() < 0.5 else lines.pop(line))
    return b"\n".join(lines)


def _word(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Replace a word by another word or a token."""
    words = [found.span() for found in _WORD.finditer(data)]
    if not words:
        return data
    (a, b), (c, d) = rng.choice(words), rng.choice(words)
    return data[:a] + rng.choice((data[c:d], rng.choice(TOKENS))) + data[b:]


_CHANGES: tuple[Callable[[bytes, random.Random, Sequence[bytes]], bytes], ...] = (_flip, _cut, _span, _lines, _word)
