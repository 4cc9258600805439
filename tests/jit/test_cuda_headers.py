"""Headers of a CUDA toolkit, made up here: its own, and those of its C++ libraries in a folder among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import CompileError, NoDevice, UsageError
from harness.jit import cuda_headers
from harness.jit.compile import include_folders
from harness.subjects.card.code import read_code


@pytest.fixture
def include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The headers of the only toolkit."""
    folder = tmp_path / "toolkit" / "include"
    contents = {
        "cuda.h": "#define CUDA_VERSION 13010\n",
        "cooperative_groups.h": "#include <cuda/std/cstdint>\n",
        "cccl/cuda/ptx": "#include <cooperative_groups.h>\n",
        "cccl/cuda/std/cstdint": "typedef int number;\n",
        "cccl/cuda/std/__cccl/version.h": "#define CCCL_VERSION 3000002\n",
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    monkeypatch.setenv("CUDA_HOME", str(folder.parent))
    cuda_headers.candidates.cache_clear()
    only = tuple(each for each in cuda_headers.candidates() if each.is_relative_to(folder))
    cuda_headers.candidates.cache_clear()
    monkeypatch.setattr(cuda_headers, "candidates", lambda: only)
    return folder


@pytest.mark.parametrize("header", ["cooperative_groups.h", "cuda/ptx", "cuda/std/cstdint"])
def test_both_folders_of_a_toolkit_are_included_each_with_its_version(include: Path, header: str):
    found = include_folders({"own.cu": f"#include <{header}>\n"}, users=True)
    assert list(found.items()) == [(include, "13010"), (include / "cccl", "3000002")]


def test_a_toolkit_without_libraries_has_one_folder(include: Path):
    (include / "cccl").rename(include / "elsewhere")
    assert include_folders({"own.cu": "#include <cooperative_groups.h>\n"}, users=True) == {include: "13010"}


@pytest.mark.parametrize("header", ["cooperative_groups.h", "cuda/ptx"])
def test_a_card_finds_both_folders(include: Path, header: str, tmp_path: Path):
    (tmp_path / "own.cu").write_text(f'#include <{header}>\nextern "C" __global__ void k(number*) {{}}\n')
    assert "k" in read_code(tmp_path / "own.cu", "own.cu", ["k"], "sm_90a", ()).program.entries


@pytest.mark.parametrize(
    ("header", "remedy"),
    [
        ("cstdint", "NVRTC has no standard headers; use <cuda/std/cstdint>"),
        ("stdint.h", "NVRTC has no standard headers; use <cuda/std/cstdint>"),
        ("iostream", "NVRTC has no standard headers; CUDA's own are <cuda/std/...>"),
        ("cub/cub.cuh", "`pip install nvidia-cuda-cccl` brings it"),
        ("cuda_fp4.h", "`pip install nvidia-cuda-runtime` brings it"),
    ],
)
def test_a_header_that_is_missing_has_its_remedy(include: Path, header: str, remedy: str, tmp_path: Path):
    of_the_machine = header in ("cub/cub.cuh", "cuda_fp4.h")  # a package has it; the others no NVRTC takes
    with pytest.raises(NoDevice if of_the_machine else CompileError) as refused:
        include_folders({"own.cu": f"\n#include <{header}>\n"}, users=True)
    looked = f"{include}, {include / 'cccl'}"
    assert str(refused.value) == f"own.cu:2: no <{header}>: {remedy}; looked for in {looked}"
    (tmp_path / "own.cu").write_text(f"#include <{header}>\n")
    with pytest.raises(UsageError) as refused:
        read_code(tmp_path / "own.cu", "own.cu", [], "sm_90a", ())
    told = "" if header == "cuda_fp4.h" else f"; {remedy}"
    assert str(refused.value).endswith(f'cannot open source file "{header}"{told}')


def test_without_libraries_a_standard_header_is_named_all_the_same(include: Path):
    (include / "cccl").rename(include / "elsewhere")
    assert cuda_headers.remedy("cstdint") == "NVRTC has no standard headers; use <cuda/std/cstdint>"


OF_A_MAP = "of a tensor map declare `struct alignas(64) CUtensorMap { char bytes[128]; };`, or compile with `nvcc -ptx`"
FOR_THE_HOST = "is for the host, and NVRTC does not take it; "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("// <cuda.h>\n#include <cuda.h>\n", f"own.cu:2: <cuda.h> {FOR_THE_HOST}{OF_A_MAP}"),
        ("#include <typedefs.h>\n", f"own.cu:1: <typedefs.h> includes <cuda.h>, which {FOR_THE_HOST}{OF_A_MAP}"),
        ('\n# include "own.h"\n', f'own.cu:2: "own.h" includes <cuda.h>, which {FOR_THE_HOST}{OF_A_MAP}'),
        ("#include <blas.h>\n", f"own.cu:1: <blas.h> {FOR_THE_HOST}compile with `nvcc -ptx`"),
    ],
)
def test_a_header_for_the_host_is_told_at_the_line_that_includes_it(include: Path, text: str, sentence: str, tmp_path):
    (include / "cuda.h").write_text("#include <typedefs.h>\n#include <stdlib.h>\n")
    (include / "typedefs.h").write_text("#pragma once\n#include <cuda.h>\n")
    (include / "blas.h").write_text("#include <nosuch.h>\n")
    (tmp_path / "own.h").write_text("#include <typedefs.h>\n")
    (tmp_path / "own.cu").write_text(text)
    with pytest.raises(UsageError) as refused:
        read_code(tmp_path / "own.cu", "own.cu", [], "sm_90a", ())
    assert str(refused.value) == sentence
