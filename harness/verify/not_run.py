"""Notes on what was not judged of a case, or played, or read as nothing set it, for last lines of a run and pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from harness.contract.case import Case
from harness.device.played import HOW
from harness.files import recipe_dir
from harness.suite.suite import suite_of
from harness.text import one_line

_MOST_LINES = 3  # of each of the two kinds
_LARGER = "not judged as the end of "
_PLAYED = "had "
_NOTES: dict[str, list[str]] = {}


def keep_note(case_id: str, shape: str, why: str) -> None:
    """Keep that a case was not judged as the end of a tensor of this shape."""
    _keep(case_id, f"{_LARGER}{shape}: {why}")


def note_no_corners(case: Case) -> None:
    """Keep that no larger tensor is known for a case, where a user's suite has not said that there is none."""
    if recipe_dir(case.recipe) is None:
        return
    file = suite_of(case.recipe).file
    if not file.pipeline and "corners" not in file.model_fields_set:
        why = f"{case.recipe}.yaml has no `corners`, so no index of 32 bits is found; docs/own_kernel.md shows them"
        keep_note(case.id, "a larger tensor", why)


def note_unset(case: Case, program: Any) -> None:
    """Keep which variables of a program's modules its kernels read and nothing sets."""
    for where, declared in getattr(program, "unset", ()):
        _keep(case.id, f"read zeros at {where}, {declared}: nothing sets it, as a card's `constants` could")


def note_played(case: Case, program: Any) -> None:
    """Keep which calls of libraries the emulator played."""
    for name in getattr(program, "played", ()):
        _keep(case.id, f"{_PLAYED}{name} {HOW}")


def played(notes: Iterable[str]) -> list[str]:
    """The notes on calls of libraries, as a screen has them: `cublas_gemm was played ...`."""
    return [note.removeprefix(_PLAYED).replace(f" {HOW}", f" was {HOW}") for note in notes if note.startswith(_PLAYED)]


def take_notes(case_id: str) -> tuple[str, ...]:
    """The notes on a case, which are then forgotten."""
    return tuple(dict.fromkeys(_NOTES.pop(case_id, [])))


def counted(records: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Note → the number of cases that have it. records: of finished cases"""
    return Counter(note for record in records for note in record.get("notes", ()))


def lines(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The last lines of a run: the most frequent notes, and how many others there are."""
    counts = counted(records).most_common()
    larger = [each for each in counts if each[0].startswith(_LARGER)]
    others = [each for each in counts if not each[0].startswith(_LARGER)]
    return [
        *_told(larger, f"{_LARGER}other larger tensors"),
        *_told(others, "with other notes, which verify.md has"),
    ]


def _told(counts: list[tuple[str, int]], others: str) -> list[str]:
    shown = counts if len(counts) <= _MOST_LINES else counts[: _MOST_LINES - 1]
    told = [f"{count} case{'s' * (count > 1)} {note}" for note, count in shown]
    rest = sum(count for _, count in counts[len(shown) :])
    return [*told, f"{rest} {others}"] if rest else told


def _keep(case_id: str, note: str) -> None:
    _NOTES.setdefault(case_id, []).append(one_line(note))
