"""The line of a `.py` that an instruction comes from, and the calls of helpers that it was inlined at.

Triton's PTX has the calls only in the comment behind each `.loc`: `a.py:7:4 @[ b.py:30:9 ]`, innermost first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"^(\s*)\.loc\s+\d+ \d+ \d+[^\n/]*//\s*(\S+:\d+:\d+ @\[.*)$", re.MULTILINE)
_FRAME = re.compile(r"([^\s@\[\]]+):(\d+):(\d+)")


class Frame(NamedTuple):
    """A place in a source, as in `.loc`. file: the file's number"""

    file: int
    line: int
    column: int

    def __str__(self) -> str:
        return " ".join(map(str, self))


def with_calls(ptx: str, library: Path) -> str:
    """Move the calls from comments into the PTX's `.loc` lines, where tools find them.

    library: the folder of Triton's own functions; their lines are replaced by the user's calls of them
    """
    files = {int(number): Path(folder, name) for number, folder, name in _FILE.findall(ptx)}
    numbers = {path.name: number for number, path in files.items()}

    def rewritten(match: re.Match[str]) -> str:
        frames = _frames(match[2], numbers)
        own = [frame for frame in frames if not files[frame.file].is_relative_to(library)]
        return _lines(match[1], frames[frames.index(own[0]) :]) if own else match[0]

    return _LOC.sub(rewritten, ptx)


def _frames(comment: str, numbers: Mapping[str, int]) -> list[Frame]:
    """The frames in a comment, innermost first; none if a file is unknown."""
    found = [(numbers.get(name), int(line), int(column)) for name, line, column in _FRAME.findall(comment)]
    return [] if any(number is None for number, _, _ in found) else [Frame(*each) for each in found]


def _lines(indent: str, frames: list[Frame]) -> str:
    """A `.loc` for each call, and then the instruction's own."""
    above = [None, *reversed(frames[1:])]
    return "\n".join(
        f"{indent}.loc {frame}" + (f", function_name $L__call, inlined_at {call}" if call else "")
        for call, frame in zip(above, reversed(frames), strict=True)
    )
