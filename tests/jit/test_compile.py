"""The compile owns its flags and its cache."""

import shutil
from pathlib import Path

import pytest

from harness.contract.case import Flags
from harness.errors import CompileError
from harness.files import KERNELS
from harness.jit.compile import ARCHES, FLAGS, compile_kernel, include_closure, instantiation, ptx_of
from harness.jit.geometry import Launch
from harness.jit.signature import read_signatures

FLAGS_OF_SWIZZLE = Flags({"direction": "rowwise"})


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def kernels(tmp_path):
    return shutil.copytree(KERNELS, tmp_path / "kernels")


def test_flags_that_change_bytes_are_ours():
    assert {"-ftz=false", "-fmad=false", "-prec-div=true", "-prec-sqrt=true"} <= set(FLAGS)


@pytest.mark.parametrize("arch", ARCHES)
def test_ptx_neither_flushes_nor_contracts(arch):
    flags = {"dtype": "bf16", "block": "block_1x16", "rounding": "rne", "scale_layout": "compact", "fast_math": False}
    ptx = compile_kernel(read_signatures("per_tensor")["per_tensor_encode_rowwise"], flags, arch).ptx
    assert f".target {arch}" in ptx
    assert ".ftz" not in ptx
    assert "fma.rn.f32" not in ptx
    assert "div.rn.f32" in ptx
    assert ("cvt.rn.satfinite.e2m1x2.f32" in ptx) == (arch == "sm_100a")


def test_geometry_is_read_back_from_the_compiled_module(kernels):
    compiled = compile_kernel(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, "sm_90a")
    assert compiled.launch == Launch(tile_rows=256, tile_cols=256, threads=256, blocks_per_sm=0, schedule=0)
    assert compiled.spill_bytes == 0
    assert 0 < compiled.registers <= 255


def test_a_change_in_a_header_is_another_kernel(kernels):
    signature = read_signatures("swizzle", kernels)["swizzle"]
    before = compile_kernel(signature, FLAGS_OF_SWIZZLE, "sm_90a")
    assert compile_kernel(signature, FLAGS_OF_SWIZZLE, "sm_90a") == before
    header = kernels / "memory/scale_layout.cuh"
    header.write_text(header.read_text().replace("(r % 32) * 16", "(r % 32) * 32"))
    after = compile_kernel(signature, FLAGS_OF_SWIZZLE, "sm_90a")
    assert after.cubin_path != before.cubin_path
    assert after.code_digest != before.code_digest


def _code(kernels, arch="sm_90a"):
    compiled = compile_kernel(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, arch)
    return compiled.code_digest, compiled.cubin_path


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_line_that_moved_and_a_header_with_another_name_are_the_same_machine_code(kernels, arch):
    before, cubin = _code(kernels, arch)
    source, header = kernels / "swizzle.cu", kernels / "memory/scale_layout.cuh"
    source.write_text("\n// Another line.\n" + source.read_text())
    header.write_text("\n\n" + header.read_text())
    assert _code(kernels, arch)[1] != cubin
    assert _code(kernels, arch)[0] == before
    header.rename(kernels / "moved.cuh")
    for file in kernels.rglob("*.cu*"):
        file.write_text(file.read_text().replace('#include "memory/scale_layout.cuh"', '#include "moved.cuh"'))
    assert _code(kernels, arch)[0] == before


def test_a_constant_table_counts_as_machine_code_only_where_it_is_read(kernels):
    source = kernels / "swizzle.cu"
    text = source.read_text()

    def with_table(values, index):
        table = f"__constant__ int kTable[4] = {{{values}}};\n"
        start = text.index("template <")
        body = text[start:].replace("int rows, int cols) {", f"int rows, int cols) {{\n  {index}", 1)
        source.write_text(text[:start] + table + body)
        return _code(kernels)[0]

    read = "if (kTable[threadIdx.x % 4] == rows) return;"
    assert with_table("1, 2, 3, 4", read) != with_table("1, 2, 3, 5", read)
    assert with_table("1, 2, 3, 4", "") == with_table("1, 2, 3, 5", "")


def test_a_damaged_cache_entry_is_compiled_anew(kernels, tmp_path):
    signature = read_signatures("swizzle", kernels)["swizzle"]
    before = compile_kernel(signature, FLAGS_OF_SWIZZLE, "sm_90a")
    for entry in (tmp_path / "cache").glob("*.json"):
        entry.write_text("{")
    assert compile_kernel(signature, FLAGS_OF_SWIZZLE, "sm_90a") == before


def test_a_wrong_kernel_shows_the_compiler_s_log_with_its_line(kernels):
    source = kernels / "swizzle.cu"
    source.write_text(source.read_text().replace("int rows, int cols) {", "int rows, int cols) { wrong;"))
    with pytest.raises(
        CompileError, match=r"(?s)NVRTC refused swizzle<Outputs::rowwise> for sm_90a.*swizzle\.cu\(\d+\)"
    ):
        compile_kernel(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, "sm_90a")


@pytest.mark.parametrize("target", ["<cuda_fp4.h>", '"../b.cuh"', '"b/../../b.cuh"', '"/b.cuh"', '"./b.cuh"', "B"])
def test_what_cannot_be_hashed_is_refused(tmp_path, target):
    (tmp_path / "b.cuh").write_text("")
    (tmp_path / "kernels").mkdir()
    source = tmp_path / "kernels" / "a.cu"
    source.write_text(f"#include {target}\n")
    with pytest.raises(CompileError, match=r"a\.cu:1: only `#include \"path/below/kernels\.cuh\"` is allowed"):
        include_closure(source)


def test_includes_start_from_the_kernels_folder(tmp_path):
    """Also those of a header in a folder below it."""
    (tmp_path / "low").mkdir()
    (tmp_path / "a.cu").write_text('#include "low/b.cuh"\n')
    (tmp_path / "low" / "b.cuh").write_text('#include "low/c.cuh"  // a word\n')
    (tmp_path / "low" / "c.cuh").write_text("")
    assert list(include_closure(tmp_path / "a.cu")) == ["a.cu", "low/b.cuh", "low/c.cuh"]
    assert list(include_closure(tmp_path / "low" / "b.cuh", tmp_path)) == ["low/b.cuh", "low/c.cuh"]
    (tmp_path / "low" / "c.cuh").write_text('#include "b.cuh"\n')
    with pytest.raises(CompileError, match=r"low/c\.cuh:1: no file 'b\.cuh' in the kernels' folder"):
        include_closure(tmp_path / "a.cu")


def test_a_missing_header_names_the_line_that_wants_it(tmp_path):
    (tmp_path / "a.cu").write_text('\n#include "b.cuh"\n')
    with pytest.raises(CompileError, match=r"a\.cu:2: no file 'b\.cuh'"):
        include_closure(tmp_path / "a.cu")


def test_a_template_parameter_without_a_flag_is_named():
    with pytest.raises(CompileError, match=r"swizzle\.cu:\d+: template parameter 'direction' of swizzle names no flag"):
        instantiation(read_signatures("swizzle")["swizzle"], {"rht": True})


@pytest.mark.parametrize("arch", ARCHES)
def test_ptx_alone_is_the_ptx_beside_the_machine_code(arch):
    signature = read_signatures("casts")["casts"]
    whole, ptx = (compile_kernel(signature, {"dtype": "bf16"}, a) for a in (arch, ptx_of(arch)))
    assert ptx.ptx == whole.ptx and ptx.launch == whole.launch
    assert Path(whole.cubin_path).stat().st_size > 0 == Path(ptx.cubin_path).stat().st_size
