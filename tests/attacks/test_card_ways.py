"""Ways for a card to make the compiler read files that are not the card's, or write some."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from harness.errors import CompileError, HarnessError
from harness.jit import cuda_headers
from harness.subjects.card import code
from harness.subjects.card.code import read_code
from tests.attacks.ways import StillGreenError, must_be_refused

KERNEL = '\n#ifndef OF_CARD\n#define OF_CARD\nextern "C" __global__ void k() {}\n#endif\n'
WORD = "secretword"


def folder_in(tmp_path: Path) -> Path:
    """A card's folder beside a file that is not its own, in which every word is told from any other."""
    folder = tmp_path / "card"
    (folder / "part").mkdir(parents=True)
    for place in (tmp_path / "secret.h", tmp_path / "own.h"):
        place.write_text(f"#error {WORD}\n")
    (folder / "link.h").symlink_to("../secret.h")
    (folder / "nested.h").write_text('#include "../secret.h"\n')
    (folder / "part" / "macro.h").write_text("#include FILE_OF_CARD\n")
    (folder / "part" / "a.h").write_text('#pragma once\n#include "b.h"\n#ifdef __has_include\n#endif\n')
    (folder / "part" / "b.h").write_text(f"#pragma once\n// #include <{tmp_path}/secret.h>\nenum {{ kOf = 3 }};\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # so that the current folder has a file, too
    return folder_in(tmp_path)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that NVRTC says, of which a message has the first line; an `#error` in a file that it opens is among it."""
    logs: list[str] = []
    build = code.build

    def listening(*given: object) -> object:
        try:
            return build(*given)
        except CompileError as error:
            logs.append(str(error))
            raise

    monkeypatch.setattr(code, "build", listening)
    return logs


def compiled(folder: Path, text: str, *options: str) -> str:
    """The PTX of a card's code with this text ahead of its kernel. Raises what the card is refused by."""
    (folder / "k.cu").write_text(text + KERNEL, newline="")
    return read_code(folder / "k.cu", "k.cu", (), "sm_100a", options).ptx


def must_be_silently_refused(heard: list[str], call: Callable[[], object], because: str) -> None:
    """The call is refused, and NVRTC has opened no foreign file whatever came of it."""
    try:
        must_be_refused(call, because)
    finally:
        must_hear_nothing(heard)


def must_hear_nothing(heard: list[str]) -> None:
    if any(word in log for log in heard for word in (WORD, "/etc/passwd(1)")):
        raise StillGreenError(f"NVRTC has opened a foreign file:\n{heard}")


FOREIGN = [
    '#include "/etc/passwd"', "#include </etc/passwd>", '# /* */ include "../secret.h"', '%:include "../secret.h"',
    '#inc\\\nlude "../secret.h"', '#include_next "../secret.h"', '#embed "../secret.h"', '#include "link.h"',
    "#define F <../secret.h>\n#include F", '#include "nested.h"', '/*\n// */ #include "../secret.h"',
    'int __device__ x; /*\n*/ #include "../secret.h"', '#define FILE_OF_CARD "../secret.h"\n#include "part/macro.h"',
    '#import "../secret.h"', '#include "/dev/null"', '#include "part/../../secret.h"', '#include "own.h"',
    "#include <own.h>",
    '\f#\v include /*\n\n*/ "../secret.h"',
]  # fmt: skip


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("text", FOREIGN)
def test_an_include_of_a_foreign_file(folder: Path, heard: list[str], text: str, absolute: bool):
    if absolute:
        text = re.sub(r'(["<])\.\./', rf"\1{folder.parent}/", text)
    because = r"\b(k\.cu|nested\.h|macro\.h)[:(]\d+.*(leads out of|by no macro|no directive|cannot open)"
    must_be_silently_refused(heard, lambda: compiled(folder, text), because)


HIDDEN = {
    "digits": ("1'a \"' /* \"", "*/ #include"),
    "a comment of two lines that were joined": ("__device__ int x; /\\/*\n*/* a", "*\\/*\n*// #include"),
    "a character": ("'/*'", "*/ #include"),
    "a raw string": ('R"x(', ')x" #include'),
    "a raw string that digits hide": ('1\'a"\'R"x("', ')x" #include'),
    "a raw string of another alphabet": ('éR"x("', ')x" #include'),
    "an apostrophe": ("don't R\"x( /*", '*/ )x" #include'),
    "a string": ("\"/*\" '/*'", "'*/' \"*/\" #include"),
    "operators": ("2 * / 3 *//**// 4", "*/**// #include"),
    "an apostrophe and a string": ('don\'t "R"x(', ')x" #include'),
    "an apostrophe behind a joined line": ("don't \\\n /*", "*/ #include"),
    "trigraphs": ("// ??/", "??=include"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", HIDDEN)
def test_an_include_that_looks_like_part_of_something_else(folder: Path, heard: list[str], name: str):
    """Whatever NVRTC makes of the text, by any standard, a foreign file is not opened."""
    begin, end = HIDDEN[name]
    for before, after in (("", ""), ("#if 0\n", "\n#endif"), ("#define X ", ""), ("#if 0\n#endif\n", "\n/**/")):
        for standard in ("-std=c++11", "-std=c++14", "-std=c++17"):
            with suppress(HarnessError):
                compiled(folder, f'{before}{begin}\n{end} "{folder.parent}/secret.h"{after}\n', standard)
    must_hear_nothing(heard)


@pytest.mark.parametrize(
    "option",
    ["--time=stolen", "-time=stolen", "--fdevice-time-trace=stolen", "--include-path={}", "-I{}", "-I..",
     "-include=secret.h", "--pre-include=secret.h"],
)  # fmt: skip
def test_an_option_of_the_compiler(folder: Path, heard: list[str], option: str):
    """Some write a file, which lies in the current folder here, and some read one."""
    option, there = option.format(folder.parent), {*folder.parent.iterdir()}
    text = "" if "time" in option else "#include <secret.h>\n"
    try:
        must_be_silently_refused(heard, lambda: compiled(folder, text, option), "is none that a card may have; it may")
    finally:
        if written := {*folder.parent.iterdir()} - there:
            raise StillGreenError(f"NVRTC has written {written}")


def test_a_header_of_a_toolkit_that_a_macro_sends_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: list[str]
):
    """A toolkit's headers name some includes by macros, which a card could define; and files that a card could have."""
    cuda, text = tmp_path / "cuda" / "include", f"#error {WORD}\n"
    for name, said in {
        "first.h": "#include <thrust/sort.h>\n", "thrust/sort.h": "#include SORT_OF_SYSTEM\n",
        "second.h": "#ifndef ALL\n#define ALL <cuda_fp16.h>\n#endif\n#  include ALL\n",
        "third.h": "#define X <__THRUST_HOST_SYSTEM_ROOT/own.h>\n#include X\n", "thrust/system/cpp/own.h": "",
        "outer.h": '#include "inner.h"\n', "inner.h": "enum { kInner = 1 };\n",
    }.items():  # fmt: skip
        (cuda / name).parent.mkdir(parents=True, exist_ok=True)
        (cuda / name).write_text(said)
    (tmp_path / "secret").mkdir()
    for name in ("secret/own.h", "own.h"):
        (tmp_path / name).write_text(text)
    (tmp_path / "card").mkdir()
    monkeypatch.setattr(cuda_headers, "candidates", lambda: (cuda,))
    for macro, header in (
        ("SORT_OF_SYSTEM", "first.h"),
        ("ALL", "second.h"),
        ("ALL", "../../card/../cuda/include/second.h"),
    ):
        text = f'#define {macro} "{tmp_path}/own.h"\n#include <{header}>\n'
        must_be_silently_refused(heard, lambda text=text: compiled(tmp_path / "card", text), "by no macro")
    (tmp_path / "card" / "inner.h").write_text(f'#include "{tmp_path}/own.h"\n')
    (tmp_path / "card" / "link.h").symlink_to(cuda / "outer.h")
    for header in ("link.h", "../../card/link.h", str(tmp_path / "card" / "link.h")):
        assert ".entry k(" in compiled(tmp_path / "card", f"#include <{header}>\nstatic_assert(kInner);\n")
    (tmp_path / "card" / "inner.h").write_text("enum { kCard = 1 };\n")
    both = '#include "inner.h"\n#include <outer.h>\nstatic_assert(kInner + kCard == 2);\n'
    assert ".entry k(" in compiled(tmp_path / "card", both)
    thrust = f"#define __THRUST_HOST_SYSTEM_ROOT {tmp_path}/secret\n#include <third.h>\n"
    assert ".entry k(" in compiled(tmp_path / "card", thrust)


@pytest.mark.parametrize("link", ["k.cu", "k.ptx", "k.cubin"])
def test_code_that_is_a_link_to_another_kind_of_file(tmp_path: Path, link: str):
    (tmp_path / link).symlink_to("/etc/passwd")
    must_be_refused(lambda: read_code(tmp_path / link, link, (), "sm_100a", ()), "this is a link to passwd")
