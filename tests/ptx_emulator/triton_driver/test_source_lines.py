"""The calls in the comments of Triton's PTX reach the emulator, without the lines of Triton's own library."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptx_emulator.triton_driver.backend import with_calls

FILES = '\t.file\t1 "/home/me/kernels.py"\n\t.file\t2 "/lib/triton/language/standard.py"\n'
OWN, LIBRARY = "kernels.py:7:3", "standard.py:170:27"


def locs(comment: str) -> list[str]:
    """The `.loc` lines that `with_calls` writes for a `.loc` with this comment, at the comment's innermost place."""
    number, line, column = (1 if comment.startswith("kernels") else 2), *comment.split(" ")[0].split(":")[1:]
    text = with_calls(f"{FILES}\t.loc\t{number} {line} {column}   // {comment}\n", Path("/lib/triton"))
    return [each.strip() for each in text.removeprefix(FILES).splitlines()]


@pytest.mark.parametrize("comment, wanted", [
    (f"{OWN} @[ kernels.py:30:9 ]", [".loc 1 30 9", ".loc 1 7 3, function_name $L__call, inlined_at 1 30 9"]),
    (f"{LIBRARY} @[ {OWN} ]", [".loc 1 7 3"]),
    (f"{LIBRARY} @[ standard.py:191:40 @[ {OWN} @[ kernels.py:30:9 ] ] ]",
     [".loc 1 30 9", ".loc 1 7 3, function_name $L__call, inlined_at 1 30 9"]),
    (f"{OWN} @[ {LIBRARY} @[ kernels.py:30:9 ] ]",  # a function of ours that the library calls
     [".loc 1 30 9", ".loc 2 170 27, function_name $L__call, inlined_at 1 30 9",
      ".loc 1 7 3, function_name $L__call, inlined_at 2 170 27"]),
])  # fmt: skip
def test_the_calls_of_a_line(comment: str, wanted: list[str]):
    assert locs(comment) == wanted


@pytest.mark.parametrize("comment", [OWN, LIBRARY, f"{OWN} @[ unknown.py:1:2 ]", ""])
def test_a_line_without_calls_stays(comment: str):
    text = f"{FILES}\t.loc\t1 7 3   // {comment}\n\tret;\n"
    assert with_calls(text, Path("/lib/triton")) == text
