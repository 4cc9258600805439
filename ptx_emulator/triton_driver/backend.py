"""Triton's CUDA compiler, stopped at PTX, in which each instruction has its line of a `.py` and the calls around it.

Triton's PTX has the calls of helpers that an instruction was inlined at only in the comment behind each `.loc`:
`a.py:7:4 @[ b.py:30:9 ]`, innermost first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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


KIND = "emulated"  # the last stage's name, and the ending of its file in Triton's cache
FORM = 1  # version of the cached text; change it when `with_calls` changes
PTX_VERSION = 88  # used if Triton has no ptxas to ask; sm_100a needs 86


@contextmanager
def emulated_backend() -> Iterator[None]:
    """Make Triton compile for CUDA with the emulated backend while the context lasts."""
    from triton import backends

    before = backends.backends["nvidia"]
    backends.backends["nvidia"] = backends.Backend(_backend_class(), before.driver)
    try:
        yield
    finally:
        backends.backends["nvidia"] = before


@cache
def _backend_class() -> type:
    """A subclass of Triton's CUDABackend.

    It has its own keys in Triton's cache, so that no cubin is taken for its PTX.
    """
    import triton
    from triton.backends.nvidia import compiler

    library = Path(triton.__file__).parent

    class EmulatedBackend(compiler.CUDABackend):
        def __init__(self, target: Any):
            super().__init__(target)
            self.binary_ext = KIND

        def parse_options(self, opts: dict[str, Any]) -> Any:
            return super().parse_options({**opts, "ptx_version": opts.get("ptx_version") or _ptx_version(self.target)})

        def add_stages(self, stages: dict[str, Any], options: Any, language: Any) -> None:
            super().add_stages(stages, options, language)
            del stages["cubin"]
            stages[KIND] = lambda ptx, metadata: with_calls(ptx, library).encode()

        def hash(self) -> str:
            return f"{KIND}-{FORM}-{_ptx_version(self.target)}-{self.target.arch}"

    return EmulatedBackend


@cache
def _ptx_version(target: Any) -> int:
    """The PTX version that Triton would use for a GPU, asked of its own ptxas, which is used for nothing else."""
    from triton.backends.nvidia import compiler

    try:
        return compiler.ptx_get_version(compiler.get_ptxas(target.arch).version)
    except (RuntimeError, OSError):
        return PTX_VERSION
