"""Notes on the larger tensors whose ends were not judged, by case, for the last lines of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.text import one_line

_MOST_LINES = 3
_NOTES: dict[str, list[str]] = {}


def keep_note(case_id: str, shape: str, why: str) -> None:
    """Keep that a case was not judged as the end of a tensor of this shape."""
    _NOTES.setdefault(case_id, []).append(one_line(f"as the end of {shape}: {why}"))


def take_notes(case_id: str) -> list[str]:
    """The notes on a case, which are then forgotten."""
    return _NOTES.pop(case_id, [])


def lines(notes: Iterable[str]) -> list[str]:
    """What the end of a run says of all notes: the most frequent ones, and how many others there are."""
    counts = Counter(notes).most_common()
    shown = counts if len(counts) <= _MOST_LINES else counts[: _MOST_LINES - 1]
    told = [f"{count} case{'s' * (count > 1)} not judged {note}" for note, count in shown]
    rest = sum(count for _, count in counts[len(shown) :])
    return [*told, f"{rest} not judged as the end of other larger tensors"] if rest else told
