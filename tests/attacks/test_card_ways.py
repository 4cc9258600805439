"""Ways for a card to make the compiler read or write files, and what a card may still ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.subjects.card.options import refuse_foreign_files, refused_option, words_and_folders


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
        '#include "/etc/passwd"', "#include </etc/passwd>", '# /* */ include "../secret.h"', '%:include "../secret.h"',
        '#inc\\\nlude "../secret.h"', '#include_next "../secret.h"', '#embed "../secret.h"', '#include "link.h"',
        "#define F <../secret.h>\n#include F", '#if __has_include("../secret.h")\n#endif', '#include "nested.h"',
        '/*\n// */ #include "../secret.h"',
    ],
)  # fmt: skip
def test_an_include_of_a_foreign_file(tmp_path: Path, text: str):
    (tmp_path / "secret.h").write_text("secret")
    folder = tmp_path / "card"
    folder.mkdir()
    (folder / "link.h").symlink_to("../secret.h")
    (folder / "nested.h").write_text('#include "../secret.h"\n')
    (folder / "k.cu").write_text(text)
    with pytest.raises(UsageError, match="leads out of the card's folder|by no macro") as refused:
        refuse_foreign_files(folder / "k.cu", [folder], [])
    assert "root:" not in str(refused.value)


def test_includes_of_its_own_files_and_of_none(tmp_path: Path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.h").write_text('#include "b.h"\n#ifdef __has_include\n#endif\n')
    (tmp_path / "part" / "b.h").write_text("// #include </etc/passwd>\n")
    (tmp_path / "k.cu").write_text('#include "part/a.h"\n#include <part/../part/b.h>\n#include <cuda_fp16.h>\n')
    (tmp_path / "linked").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "linked"):
        refuse_foreign_files(folder / "k.cu", [folder], [])
