"""Ways for a card to make the compiler read or write files, and what a card may still ask for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import files
from harness.errors import CompileError, HarnessError, UsageError
from harness.jit import cuda_headers
from harness.jit.compile import FLAGS, include_closure
from harness.jit.nvrtc import build
from harness.records import seal
from harness.records.run_folder import read_run
from harness.runner.as_asked import otherwise
from harness.runner.request import Request
from harness.subjects.card.code import read_code
from harness.subjects.card.options import refused_option, words_and_folders
from harness.subjects.card.sources import sources_of, trusted_folders
from harness.suite.command_lines import Asked, verify_command
from tests.attacks.ways import must_be_red

KERNEL = '\n#ifndef OF_CARD\n#define OF_CARD\nextern "C" __global__ void k() {}\n#endif\n'
WORD = "secretword"


@pytest.mark.parametrize(
    "options",
    [
        ["--time=stolen"], ["-time", "stolen"], ["--fdevice-time-trace=t"], ["--pch-dir=/tmp"], ["--create-pch=x"],
        ["-include=/etc/passwd"], ["--pre-include", "/etc/passwd"], ["-I/etc"], ["-I", ".."], ["--include-path=../.."],
        ["-I inside -o out"], ["-DX -o out"], ["--ptxas-options=-o out"], ["@words"], ["-arch=sm_90"], ["-D"], ["-I"],
    ],
)  # fmt: skip
def test_an_option_that_reads_or_writes_files(tmp_path: Path, options: list[str]):
    assert "is none that a card may have; it may have -D" in refused_option(options, tmp_path, ())


def test_options_that_a_card_may_have(tmp_path: Path):
    (tmp_path / "inside").mkdir()
    options = ["-DX=1", "-D", "Y", "--define-macro=Z", "-U", "X", "-std=c++20", "--std=c++17", "--use_fast_math",
               "-ftz=true", "-fmad", "true", "-maxrregcount=64", "--restrict", "-Iinside", "-I", "inside"]  # fmt: skip
    assert refused_option(options, tmp_path, ()) == ""
    words, folders = words_and_folders(options, tmp_path)
    assert words == options[:-3] and folders == [tmp_path / "inside"] * 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    monkeypatch.chdir(tmp_path)  # so that the current folder has a file, too
    return folder


def compiled(folder: Path, text: str, *options: str) -> str:
    """The PTX of a card's code with this text ahead of its kernel. Raises what the card is refused by."""
    (folder / "k.cu").write_text(text + KERNEL, newline="")
    return read_code(folder / "k.cu", "k.cu", ["k"], "sm_100a", options).ptx


def log(folder: Path, *options: str) -> str:
    """All that NVRTC says of the code, of which a screen has the first line; `#error` in a file that it opens shows."""
    sources = sources_of(folder / "k.cu", options)
    words = [*FLAGS, "-arch=compute_100a", *(f"-I{each}" for each in trusted_folders()), *options]
    try:
        return build(sources.main, sources.texts, [], words).log
    except HarnessError as error:
        return str(error)


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
def test_an_include_of_a_foreign_file(folder: Path, text: str, absolute: bool):
    if absolute:
        text = re.sub(r'(["<])\.\./', rf"\1{folder.parent}/", text)
    with pytest.raises(UsageError, match="leads out of the folder|by no macro|no directive|cannot open") as refused:
        compiled(folder, text)
    assert WORD not in log(folder) and "root:" not in log(folder)
    assert re.search(r"\b(k\.cu|nested\.h|macro\.h)[:(]\d+", str(refused.value))


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


# Comments, joined lines, raw strings, trigraphs and separators of digits, and directives that were not rewritten.
NOT_WRITTEN = r"""/\*|\*/|\\\n|(?<!')R"x\(|\?\?|1'a|^\s*(#|%:)\s*include "/"""


@pytest.mark.parametrize("name", HIDDEN)
def test_an_include_that_looks_like_part_of_something_else(folder: Path, name: str):
    """Whatever NVRTC makes of the text, by any standard, a foreign file is not opened; and it gets nothing of which it
    could make something else.
    """
    begin, end = HIDDEN[name]
    for before, after in (("", ""), ("#if 0\n", "\n#endif"), ("#define X ", ""), ("#if 0\n#endif\n", "\n/**/")):
        for standard in ("-std=c++11", "-std=c++14", "-std=c++17"):
            try:
                compiled(folder, f'{before}{begin}\n{end} "{folder.parent}/secret.h"{after}\n', standard)
            except HarnessError:
                assert WORD not in log(folder, standard)
        written = sources_of(folder / "k.cu", ()).texts["/dev/null/k.cu"]
        assert not re.search(NOT_WRITTEN, written, re.MULTILINE), written


@pytest.mark.parametrize(
    "text",
    [
        '#if __has_include("/etc/passwd")\n#error there\n#endif',
        "#if __has_include(<../secret.h>)\n#error there\n#endif",
        '#if defined(__has_include) && __has_include("link.h")\n#error there\n#endif',
    ],
)  # fmt: skip
def test_whether_a_foreign_file_is_there(folder: Path, text: str):
    assert ".entry k(" in compiled(folder, text)


def test_a_header_of_a_toolkit_that_a_macro_sends_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
        with pytest.raises(UsageError, match="by no macro") as refused:
            compiled(tmp_path / "card", f'#define {macro} "{tmp_path}/own.h"\n#include <{header}>\n')
        assert WORD not in str(refused.value)
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
    with pytest.raises(UsageError, match="a link to passwd"):
        read_code(tmp_path / link, link, ["k"], "sm_100a", ())


RIGHT = {
    "its own files": '#include "part/a.h"\n#include <part/../part/b.h>\nstatic_assert(kOf == 3);\n',
    "what `#if` leaves out": '#if 0\n#include FILE\n#include "/etc/passwd"\n#include_next <x>\n don\'t /* \n#endif\n',
    "comments": '// #include "/etc/passwd"\n/*\n#include "/etc/passwd"\n*/ // \\\n#include "../secret.h"\n',
    "strings": '__device__ char s[] = "\\\n#include </etc/passwd> /* \\" ";\nstatic_assert(sizeof(s) == 29);\n',
    "raw strings": '__device__ char s[] = R"(\n#include "/etc/passwd"\\\n*/ ??/)";\n'
    "static_assert(sizeof(s) == 32 && __LINE__ == 4);\n",
    "digits and lines": "#define SUM(a, b) \\\n  a + /* of\n two lines */ b\nstatic_assert(SUM(1'000, 1) == 1001);\n"
    "static_assert(__LINE__ == 5);\n",
    "the toolkit": "#include <cuda_fp16.h>\n#if !__has_include(<cuda_fp16.h>)\n#error not there\n#endif\n",
    "itself": '#ifndef AGAIN\n#define AGAIN\n#include "k.cu"\n#endif\n',
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_no_include_or_of_its_own_is_right(folder: Path, name: str):
    (folder.parent / "linked").symlink_to(folder)
    for each in (folder, folder.parent / "linked"):
        assert ".entry k(" in compiled(each, RIGHT[name])


WRONG = (
    '#include <lib/of.h>\nextern "C" __global__ void k(const unsigned char* in, unsigned char* out) { out[0] = kOf; }\n'
)
CARD = """\
code: k.cu
recipe: swizzle
launches:
  - {kernel: k, block: 1, arguments: [{array: scale_inv}, {array: swizzled_scale_inv}]}
"""
CASE = "swizzle/default/48x80/normal/eager"


@pytest.fixture
def including(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a card, `card`, and one with headers, `headers`, one of which includes another."""
    for name, text in {
        "card/card.yaml": CARD, "card/k.cu": WRONG, "headers/lib/of.h": '#include "../deep/er/b.h"\n',
        "headers/deep/er/b.h": "enum { kOf = 3 };\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    files.INCLUDE_DIRS.clear()


def test_headers_of_a_folder_on_the_command_line(including: Path):
    """They get into the worker that compiles, into the seal and into the command that repeats a case."""
    words = ["verify", "swizzle", "--subject", "card/card.yaml", "--case", CASE, "--jobs", "1", "--run-dir", "run"]
    command = [sys.executable, "-m", "harness", *words, "--include", "headers", "--device", "emulator"]
    done = subprocess.run(command, capture_output=True, text=True)
    must_be_red(done, "verify swizzle --subject card/card.yaml --include headers ", code=1)
    about = read_run(including / "run").about
    assert about["asked"]["include_dirs"] == [str(including / "headers")]
    assert {f"subject {including}/headers/{name}" for name in ("lib/of.h", "deep/er/b.h")} <= set(about["sealed"])


@pytest.mark.parametrize("named", [[], ["headers/deep"], ["card", "headers"], ["headers/../headers"]])
def test_a_folder_that_the_command_line_does_not_name(including: Path, named: list[str]):
    """Where cases ran with other folders than those of the words, the run is red, and no command has them."""
    asked = {"folder": str(including), "subject": "card/card.yaml", "include_dirs": [str(including / "headers")]}
    about = {"asked": asked | {"recipe_dirs": {}, "options": []}, "device": {"subject": "card/card.yaml (source 0)"}}
    words = [word for each in named for word in ("--include", each)]
    request = Request.of(["suites/swizzle.yaml", "--subject", "card/card.yaml", *words], including, including)
    same = named == ["headers/../headers"]
    assert ("--include was '" in otherwise(request, about)) == (not same)
    command = verify_command(CASE, asked=Asked.from_header(about, including / "run", "card/card.yaml"))
    assert ("--include '?'" in command) == (not {"headers", "headers/../headers"} & {*named})
    assert str(including / "headers") not in command


def test_a_folder_without_a_card_to_include_from_it(including: Path):
    for words in ([], ["--subject", "m:f"], ["--subject", "cuda_fp4"]):
        with pytest.raises(UsageError, match="--include names headers for the .cu of a card"):
            Request.of(["suites/swizzle.yaml", "--include", "headers", *words], including, including)
    with pytest.raises(UsageError, match="there is no folder .*/nope with headers"):
        Request.of(["--subject", "card/card.yaml", "--include", "nope"], including, including)


@pytest.mark.parametrize("changed", ["headers/lib/of.h", "headers/deep/er/b.h", "card/k.cu", "card/card.yaml"])
def test_a_file_that_a_card_includes_is_sealed(including: Path, changed: str):
    files.use_include_dir(including / "headers")
    before = seal.seal(subject="card/card.yaml")
    (including / changed).write_text((including / changed).read_text() + "\n")
    assert seal.changed(before, seal.seal(subject="card/card.yaml")) == [f"subject {including / changed}"]


@pytest.mark.parametrize(
    "text",
    ['# /* */ include "../secret.h"', '%:include "../secret.h"', '#inc\\\nlude "../secret.h"', "#include FILE",
     '#include_next "../secret.h"', '/*\n*/ #include "/etc/passwd"', '#if 1\n/**/#include </etc/passwd>\n#endif'],
)  # fmt: skip
def test_a_recipe_includes_a_file_that_its_cached_kernel_would_not_show(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
):
    """A recipe's files are read before NVRTC, too: the key of the cache has what they include."""
    monkeypatch.setitem(files.RECIPE_DIRS, "recipe", folder)
    (folder / "recipe.cu").write_text('// #include FILE\n/*\n#include "/etc/passwd"\n*/\n#include "part/own.cuh"\n')
    (folder / "part" / "own.cuh").write_text("// none\n")
    assert list(include_closure(folder / "recipe.cu")) == ["recipe.cu", "part/own.cuh"]
    (folder / "part" / "own.cuh").write_text(text)
    with pytest.raises(CompileError, match=r"own.cuh:\d+: only `#include"):
        include_closure(folder / "recipe.cu")
