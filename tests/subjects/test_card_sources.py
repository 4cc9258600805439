"""What NVRTC is given of a card's `.cu` and what that includes, from which folders, and what is sealed of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import files
from harness.errors import CompileError, UsageError
from harness.ground.command_lines import Asked, verify_command
from harness.jit.compile import include_closure
from harness.jit.foreign_sources import refused_option, sources_of, words_and_folders
from harness.records import seal
from harness.records.run_folder import read_run
from harness.runner.request import Request, otherwise
from tests.attacks.test_card_ways import HIDDEN, compiled, folder_in
from tests.attacks.ways import must_be_red


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_in(tmp_path)


# Comments, joined lines, raw strings, trigraphs and separators of digits, and directives that were not rewritten.
NOT_WRITTEN = r"""/\*|\*/|\\\n|(?<!')R"x\(|\?\?|1'a|^\s*(#|%:)\s*include "/"""


@pytest.mark.parametrize("name", HIDDEN)
def test_nvrtc_gets_nothing_of_which_it_could_make_something_else(folder: Path, name: str):
    (folder / "k.cu").write_text(f'{HIDDEN[name][0]}\n{HIDDEN[name][1]} "{folder.parent}/secret.h"\n')
    sources = sources_of(folder / "k.cu", ())
    assert not re.search(NOT_WRITTEN, sources.texts[sources.main], re.MULTILINE)


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


@pytest.mark.slow
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
