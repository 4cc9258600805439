"""Hostile files: mutations of right ones, and a limit on how long anything may take to refuse them.

HARNESS_FUZZ=100 hunts a hundred times as long, with other examples each time (or `--hypothesis-seed`).
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from processes import LONGEST

from evidence.alarm import at_most
from evidence.mutated_text import TOKENS

FACTOR = int(os.environ.get("HARNESS_FUZZ", "1"))


def bounded(examples: int) -> settings:
    """Settings with so many examples, the same each time; in a longer hunt FACTOR times as many, and others."""
    return settings(
        max_examples=examples * FACTOR, derandomize=FACTOR == 1, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def patience() -> AbstractContextManager[None]:
    """Raise TimeoutError in what takes too long."""
    return at_most(int(LONGEST))


@st.composite
def mutated(draw: st.DrawFn, *originals: bytes) -> bytes:
    """One of the originals after one to four changes: of bits, spans, lines or words."""
    data = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        data = _changed(draw, data, originals)
    return data


def _changed(draw: st.DrawFn, data: bytes, originals: tuple[bytes, ...]) -> bytes:
    start = draw(st.integers(0, len(data)))
    end = min(len(data), start + draw(st.sampled_from((1, 2, 5, 20, 200))))
    head, span, tail = data[:start], data[start:end], data[end:]
    match draw(st.sampled_from(("flip", "cut", "drop", "repeat", "insert", "replace", "lines", "word", "splice"))):
        case "flip" if span:
            return head + bytes([span[0] ^ 1 << draw(st.integers(0, 7))]) + span[1:] + tail
        case "cut":
            return head
        case "drop":
            return head + tail
        case "repeat":
            return head + span * draw(st.sampled_from((2, 3, 50))) + tail
        case "insert":
            return head + draw(st.sampled_from(TOKENS)) + span + tail
        case "replace":
            return head + draw(st.sampled_from(TOKENS)) + tail
        case "lines":
            lines = data.split(b"\n")
            line = draw(st.integers(0, len(lines) - 1))
            lines.insert(draw(st.integers(0, len(lines))), lines[line] if draw(st.booleans()) else lines.pop(line))
            return b"\n".join(lines)
        case "word" if words := [found.span() for found in re.finditer(rb"[A-Za-z0-9_.]+", data)]:
            (a, b), (c, d) = (words[draw(st.integers(0, len(words) - 1))] for _ in range(2))
            return data[:a] + (data[c:d] if draw(st.booleans()) else draw(st.sampled_from(TOKENS))) + data[b:]
        case "splice":
            other = draw(st.sampled_from(originals))
            at = draw(st.integers(0, len(other)))
            return head + other[at : at + 200] + tail
    return data
