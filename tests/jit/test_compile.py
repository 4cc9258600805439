"""The compile owns its flags and its cache."""

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import harness.jit.compile
from harness.contract.case import Flags
from harness.errors import CompileError, RecipeError
from harness.files import KERNELS
from harness.jit.compile import ARCHES, FLAGS, compile_kernel, examine, include_closure, instantiation, ptx_of
from harness.jit.geometry import LaunchGeometry
from harness.jit.machine_code import ptx_digest
from harness.jit.nvrtc import build, nvrtc_build
from harness.jit.signature import read_signatures
from harness.suite.instantiations import Job, examine_or_say

FLAGS_OF_SWIZZLE = Flags({"direction": "rowwise"})


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def kernels(tmp_path):
    return shutil.copytree(KERNELS, tmp_path / "kernels")


def test_flags_that_change_bytes_are_ours():
    assert {"-ftz=false", "-fmad=false", "-prec-div=true", "-prec-sqrt=true"} <= set(FLAGS)


def test_a_build_without_a_log_leaves_pythons_own_bytes_alone():
    """An empty log is one character long, and Python has one object for every such bytes."""
    built = build("a.cu", {"a.cu": "__global__ void k() {}"}, ["k"], ["--gpu-architecture=sm_90a"])
    assert built.log.strip("\0") == ""
    assert [byte for byte in range(256) if bytes([byte])[0] != byte] == []


@pytest.mark.parametrize("arch", ARCHES)
def test_ptx_neither_flushes_nor_contracts(arch):
    flags = {"dtype": "bf16", "block": "block_1x16", "rounding": "rne", "scale_layout": "compact", "fast_math": False}
    flags |= {"scale_format": "e4m3", "global_scale": True}
    ptx = compile_kernel(read_signatures("per_tensor")["per_tensor_encode_rowwise"], flags, arch).ptx
    assert f".target {arch}" in ptx
    assert ".ftz" not in ptx
    assert "fma.rn.f32" not in ptx
    assert "div.rn.f32" in ptx
    assert ("cvt.rn.satfinite.e2m1x2.f32" in ptx) == (arch == "sm_100a")


def test_geometry_is_read_back_from_the_compiled_module(kernels):
    compiled = compile_kernel(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, "sm_90a")
    assert compiled.launch == LaunchGeometry(tile_rows=256, tile_cols=256, threads=64, blocks_per_sm=0, schedule=0)
    assert compiled.spill_bytes == 0
    assert 0 < compiled.registers <= 255


def test_a_change_in_a_header_is_another_kernel(kernels):
    signature = read_signatures("swizzle", kernels)["swizzle"]
    before = compile_kernel(signature, FLAGS_OF_SWIZZLE, "sm_90a")
    assert compile_kernel(signature, FLAGS_OF_SWIZZLE, "sm_90a") == before
    header = kernels / "memory/scale_layout.cuh"
    header.write_text(header.read_text().replace("(r % 32) * 16", "(r % 32) * 32"))
    after = compile_kernel(signature, FLAGS_OF_SWIZZLE, "sm_90a")
    assert after.key != before.key
    assert after.code_digest != before.code_digest


def _code(kernels, arch="sm_90a"):
    compiled = compile_kernel(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, arch)
    return compiled.code_digest or ptx_digest(compiled.ptx, compiled.symbol), compiled.cubin_path


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "compute_90a"])
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


@pytest.mark.parametrize("arch", ["sm_90a", "compute_90a"])
def test_a_constant_table_counts_as_machine_code_only_where_it_is_read(kernels, arch):
    source = kernels / "swizzle.cu"
    text = source.read_text()

    def with_table(values, index):
        table = f"__constant__ int kTable[4] = {{{values}}};\n"
        start = text.index("template <")
        body = text[start:].replace("int rows, int cols) {", f"int rows, int cols) {{\n  {index}", 1)
        source.write_text(text[:start] + table + body)
        return _code(kernels, arch)[0]

    read = "if (kTable[threadIdx.x % 4] == rows) return;"
    assert with_table("1, 2, 3, 4", read) != with_table("1, 2, 3, 5", read)
    assert with_table("1, 2, 3, 4", "") == with_table("1, 2, 3, 5", "")


def _swizzle(kernels=KERNELS, arch="sm_90a"):
    return compile_kernel(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, arch)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("record", b"{", b""),
        ("record", b'"spill_bytes": 0', b'"spill_bytes": 8'),
        ("record", b'"launch"', b'"lunch"'),
        ("cubin", b"swizzle", b"swivel!"),
        ("ptx.gz", b"\x1f", b"\x2f"),
    ],
)
def test_a_damaged_cache_entry_is_compiled_anew(tmp_path, kind, old, new):
    before = _swizzle()
    ptx, cubin = before.ptx, Path(before.cubin_path).read_bytes()
    entry = tmp_path / "cache" / f"{before.key}.{kind}"
    content = entry.read_bytes()
    assert old in content
    entry.write_bytes(content.replace(old, new, 1))
    assert _swizzle() == before
    assert (before.ptx, Path(before.cubin_path).read_bytes()) == (ptx, cubin)
    entry.unlink()
    assert _swizzle() == before
    assert entry.read_bytes() == content


def test_who_wants_what_another_is_compiling_waits_for_it(monkeypatch):
    built = []

    def slow_build(*args):
        built.append(args)
        time.sleep(0.2)
        return build(*args)

    nvrtc_build()
    monkeypatch.setattr(harness.jit.compile, "build", slow_build)
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(lambda _: _swizzle(), range(4))
    assert others == [first] * 3
    assert len(built) == 1


def test_another_compiler_is_another_entry(monkeypatch):
    assert re.search(r"release \d+\.\d+, V\d+\.\d+\.\d+", nvrtc_build())
    before = _swizzle(arch="compute_90a")
    monkeypatch.setattr(harness.jit.compile, "nvrtc_build", lambda: "another")
    assert _swizzle(arch="compute_90a").key != before.key


def examined_alone(compiled):
    return {name: value for name, value in vars(compiled).items() if name != "packed_ptx"}


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_what_is_examined_with_lines_has_the_machine_code_of_a_kernel_without(tmp_path, arch, dtype):
    signature, flags = read_signatures("casts")["casts"], {"dtype": dtype}
    examined = examine(signature, flags, arch)
    assert not list((tmp_path / "cache").glob("*.cubin"))
    for _ in range(2):
        compiled = compile_kernel(signature, flags, arch)
        assert examined_alone(compiled) == vars(examined)
        (tmp_path / "cache" / f"{compiled.key}.record").unlink()


@pytest.mark.parametrize("arch", ARCHES)
def test_the_ptx_of_what_is_examined_is_what_the_emulator_would_have_compiled(tmp_path, monkeypatch, arch):
    signature, flags = read_signatures("casts")["casts"], {"dtype": "bf16"}
    examine(signature, flags, arch)
    with monkeypatch.context() as patch:
        patch.setattr(harness.jit.compile, "build", None)
        kept = compile_kernel(signature, flags, ptx_of(arch))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "another"))
    made = compile_kernel(signature, flags, ptx_of(arch))
    assert kept == made and kept.ptx == made.ptx


def test_what_is_wrong_with_one_kernel_is_not_said_of_others(kernels):
    source = kernels / "swizzle.cu"
    source.write_text(source.read_text() + "template <ScaleLayout d> __global__ void other() { d.wrong; }\n")
    signatures = read_signatures("swizzle", kernels)
    good = examine_or_say(Job(signatures["swizzle"], FLAGS_OF_SWIZZLE, "sm_90a"))
    bad = examine_or_say(Job(signatures["other"], Flags({"d": "compact"}), "sm_90a"))
    assert good.expression == "swizzle<Outputs::rowwise>"
    assert "NVRTC refused other<ScaleLayout::compact> for sm_90a" in bad


def test_a_wrong_kernel_shows_the_compiler_s_log_with_its_line(kernels):
    source = kernels / "swizzle.cu"
    source.write_text(source.read_text().replace("int rows, int cols) {", "int rows, int cols) { wrong;"))
    with pytest.raises(
        CompileError, match=r"(?s)NVRTC refused swizzle<Outputs::rowwise> for sm_90a.*swizzle\.cu\(\d+\)"
    ):
        compile_kernel(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, "sm_90a")


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("namespace my {", "}", "swizzle.cu:{}: swizzle is in a namespace; a kernel of a recipe stands at file scope"),
        ("#if 0", "#endif", "swizzle.cu:{}: swizzle is left out by an `#if`, or in a class; a kernel of a recipe "),
    ],
)
def test_a_kernel_that_is_not_at_file_scope_is_told(kernels, before: str, after: str, sentence: str):
    source = kernels / "swizzle.cu"
    text = source.read_text()
    place = text.index("template <Outputs direction>")
    source.write_text(f"{text[:place]}{before}\n{text[place:]}\n{after}\n")
    signature = read_signatures("swizzle", kernels)["swizzle"]
    with pytest.raises(CompileError) as refused:
        compile_kernel(signature, FLAGS_OF_SWIZZLE, "compute_90a")
    assert str(refused.value).startswith(sentence.format(signature.line))


def test_a_launch_that_is_not_at_file_scope_is_told(kernels):
    source = kernels / "swizzle.cu"
    text, head = source.read_text(), "__constant__ Launch swizzle_launch"
    assert text.count(head) == 1
    source.write_text(re.sub(rf"{head}[^;]*;", r"namespace my { \g<0> }", text))
    with pytest.raises(CompileError) as refused:
        compile_kernel(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, "compute_90a")
    assert str(refused.value) == (
        "swizzle.cu: swizzle_launch is in a namespace; the Launch of a recipe stands at file scope"
    )


HEAD = "// extern __shared__ u8 raw[];\n/* extern __shared__ u8 raw[];\n*/"
READS = "if (rows == 7 && raw[threadIdx.x] == 3) return;\n"
DYNAMIC = (
    "swizzle.cu:{}: `extern __shared__`: a recipe's launch has no dynamic shared memory; make it static, or launch it "
    "with a card (`shared:`)"
)


def with_dynamic_memory(kernels: Path, declared: str, before: str, name: str) -> int:
    """Let a kernel of swizzle.cu read dynamic shared memory, declared before a text; tell the declaration's line."""
    path = kernels / "swizzle.cu"
    head, _, kernel = path.read_text().partition(f" {name}(\n")
    kernel = kernel.replace("  const TileOrigin tile", f"{READS}  const TileOrigin tile", 1)
    text = f"{HEAD}{head} {name}(\n{kernel}"
    at = text.rindex(before, 0, text.index(READS) + len(READS))
    path.write_text(f"{text[:at]}{declared}\n{text[at:]}")
    return text.count("\n", 0, at) + 1


@pytest.mark.parametrize("arch", ["sm_90a", "compute_90a"])
@pytest.mark.parametrize(
    ("declared", "before"),
    [
        ("extern __shared__ u8 raw[];", "if (rows == 7"),
        ("extern __shared__ __align__(16) u8 raw[];", "if (rows == 7"),
        ("extern __align__(16) __shared__ u8 raw[];", "template <Outputs"),
        ("namespace inner { extern __shared__ u8 raw[]; }\nusing inner::raw;", "template <Outputs"),
    ],
)
def test_dynamic_shared_memory_is_refused_with_its_line(kernels: Path, arch: str, declared: str, before: str):
    line = with_dynamic_memory(kernels, declared, before, "swizzle")
    with pytest.raises(CompileError) as refused:
        compile_kernel(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, arch)
    assert str(refused.value) == DYNAMIC.format(line)
    if arch.startswith("sm"):
        with pytest.raises(CompileError, match="no dynamic shared memory"):
            examine(read_signatures("swizzle", kernels)["swizzle"], FLAGS_OF_SWIZZLE, arch)


def test_a_kernel_without_dynamic_shared_memory_is_not_refused_for_another(kernels: Path):
    with_dynamic_memory(kernels, "extern __shared__ u8 raw[];", "if (rows == 7", "unswizzle")
    other = "\n__global__ void plain() {\n  extern __shared__ u8 raw[];\n  raw[threadIdx.x] = 1;\n}\n"
    path = kernels / "swizzle.cu"
    path.write_text(path.read_text() + other)
    signatures = read_signatures("swizzle", kernels)
    assert compile_kernel(signatures["swizzle"], FLAGS_OF_SWIZZLE, "compute_90a").ptx.count(".extern .shared") == 1
    with pytest.raises(CompileError, match="no dynamic shared memory"):
        compile_kernel(signatures["unswizzle"], FLAGS_OF_SWIZZLE, "compute_90a")


def test_a_macro_s_dynamic_shared_memory_is_refused_at_the_kernel(kernels: Path):
    with_dynamic_memory(
        kernels, "#define NAMED(name) extern __shared__ u8 name[]\nNAMED(raw);", "template <", "swizzle"
    )
    signature = read_signatures("swizzle", kernels)["swizzle"]
    with pytest.raises(CompileError) as refused:
        compile_kernel(signature, FLAGS_OF_SWIZZLE, "compute_90a")
    assert str(refused.value) == DYNAMIC.format(signature.line)


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
    with pytest.raises(RecipeError, match=r"swizzle\.cu:\d+: template parameter 'direction' of swizzle names no flag"):
        instantiation(read_signatures("swizzle")["swizzle"], {"rht": True})


@pytest.mark.parametrize("arch", ARCHES)
def test_ptx_alone_is_the_ptx_beside_the_machine_code_with_its_lines(arch):
    signature = read_signatures("casts")["casts"]
    whole, ptx = (compile_kernel(signature, {"dtype": "bf16"}, a) for a in (arch, ptx_of(arch)))
    assert "casts.cu" in ptx.ptx and "casts.cu" not in whole.ptx
    assert _without_lines(ptx.ptx) == _without_lines(whole.ptx)
    assert ptx.launch == whole.launch
    assert not Path(ptx.cubin_path).exists()


def _without_lines(ptx):
    ptx = re.sub(r"^\s*\.(loc|file)\b.*\n|^\$L__\w+:\n|^\s*$\n", "", ptx, flags=re.MULTILINE)
    return ptx.partition("\t.section\t.debug")[0].strip()
