"""Compiled code as a subject: a card of our own kernel passes, and a mistake in it is one sentence or one screen."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.device.device import Device
from harness.device.emulator import EmulatorDevice
from harness.errors import Exit, UsageError
from harness.ground.command_lines import Asked
from harness.jit.compile import compile_kernel
from harness.jit.cuda_headers import folder_with
from harness.jit.signature import read_signatures
from harness.records.run_folder import read_run
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.suite.suite import find_case, suite_of
from harness.verdict import Result, Verdict
from harness.verify.screen import screen

CASE = "swizzle/default/48x80/normal/eager"
COMPACT = "swizzle/to=compact/48x80/normal/eager"
PER_TENSOR = "per_tensor/default/48x80/normal/eager"
ENTRY = "_Z7swizzleIL7Outputs1EEvPKhPhii"
CARD = f"""\
code: swizzle.ptx
recipe: swizzle
flags: {{direction: rowwise, to: swizzled}}
launches:
  - kernel: {ENTRY}
    grid: ["(cols + 255) // 256", "((rows + 127) // 128 * 128 + 255) // 256"]
    block: 64
    arguments:
      - array: scale_inv
      - array: swizzled_scale_inv
      - i32: rows
      - i32: cols
"""
PADDED = "(rows + 127) // 128 * 128", "(cols // 16 + 3) // 4 * 4"
# One thread for each byte, and the ways that a byte can reach it.
SOURCE = """
struct Tensor { const unsigned char* bytes; short unused; int rows; };
__device__ int tiled(int row, int col, int cols) {
  return ((row / 128) * (cols / 4) + col / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
}
extern "C" __global__ void by_struct(Tensor in, unsigned char* out, int cols) {
  for (int i = threadIdx.x; i < in.rows * cols; i += 128) out[tiled(i / cols, i % cols, cols)] = in.bytes[i];
}
extern "C" __global__ void by_table(unsigned char** arrays, int rows, int cols) {
  for (int i = threadIdx.x; i < rows * cols; i += 128) arrays[1][tiled(i / cols, i % cols, cols)] = arrays[0][i];
}
extern "C" __global__ void copy(const unsigned char* in, unsigned char* out, int n) {
  for (int i = threadIdx.x; i < n; i += 128) out[i] = in[i];
}
extern "C" __global__ void add(const unsigned char* in, unsigned char* out, int n) {
  for (int i = threadIdx.x; i < n; i += 128) out[i] += in[i];
}
extern "C" __global__ void shuffle(const unsigned char* in, unsigned char* out, int n) {
  __shared__ unsigned char staged[128];
  for (int i = 0; i < n; i += 128) {
    staged[threadIdx.x] = in[i + threadIdx.x];
    out[i + threadIdx.x] = staged[127 - threadIdx.x];
  }
}
extern "C" __global__ void approximates(const unsigned char* in, unsigned char* out, int rows, int cols, int shows) {
  float eight;
  asm("ex2.approx.f32 %0, %1;" : "=f"(eight) : "f"(rows > 0 ? 3.0f : 2.0f));
  int more = shows ? __float_as_int(eight) & 2 : int(eight + 0.5f) - 8;
  for (int i = threadIdx.x; i < rows * cols; i += 128) out[tiled(i / cols, i % cols, cols)] = in[i] + more;
}
template <int kThreads> __global__ void by_template(const unsigned char* in, unsigned char* out, int rows, int cols) {
  for (int i = threadIdx.x; i < rows * cols; i += kThreads) out[tiled(i / cols, i % cols, cols)] = in[i];
}
"""


@pytest.fixture(scope="module")
def ptx() -> str:
    flags = {"direction": "rowwise", "to": "swizzled"}
    return compile_kernel(read_signatures("swizzle")["swizzle"], flags, "compute_100a").ptx


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ptx: str) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "swizzle.ptx").write_text(ptx)
    (tmp_path / "own.cu").write_text(SOURCE)
    (tmp_path / "card.yaml").write_text(CARD)
    return tmp_path


def judged(case: str = CASE, on: Device | None = None) -> Result:
    card = read_card("card.yaml")
    device = with_card(on or EmulatorDevice(), card)
    card.check([find_case(case)])
    return verify_card(find_case(case), device)


def own(folder: Path, launches: str, more: str = "", recipe: str = "swizzle") -> None:
    (folder / "card.yaml").write_text(f"code: own.cu\nrecipe: {recipe}\n{more}launches:\n{launches}")


def launch(kernel: str, *arguments: str) -> str:
    return f"  - kernel: {kernel}\n    block: 128\n    arguments:\n" + "".join(
        f"      - {each}\n" for each in arguments
    )


# The kernel takes all but its output from variables that a host sets.
SET_BY_HOST = f"""
{SOURCE[: SOURCE.index("extern")]}
struct Shape {{ int rows; short unused; float three; }};
namespace ours {{ __constant__ int cols[2]; }}
__constant__ Shape shape;
__constant__ const unsigned char* source;
__device__ int moved;
extern "C" __global__ void k(unsigned char* out) {{
  int cols = ours::cols[0] * ours::cols[1];
  for (int i = threadIdx.x; i < shape.rows * cols; i += 128)
    out[tiled(i / cols, i % cols, cols)] = source[i] + int(shape.three) - 3 + *(volatile int*)&moved;
  // the end
}}
"""
CONSTANTS = f"""constants:
  "*cols*": {{i32: [4, (cols // 16 + 3) // 4]}}
  shape: {{struct: [i32: '{PADDED[0]}', i16: 7, f32: 3.5]}}
  source: {{array: scale_inv}}
  moved: {{i32: 0}}
"""

# Each block copies what another has staged in a workspace, behind a `grid.sync()`.
COOPERATIVE = """
#include <cooperative_groups.h>
extern "C" __global__ void k(const unsigned char* in, unsigned char* out, unsigned char* staged, int cols) {
  auto grid = cooperative_groups::this_grid();
  int size = 512 / gridDim.x, at = blockIdx.x * size;
  for (int i = threadIdx.x; i < size; i += blockDim.x) staged[at + i] = in[at + i];
  grid.sync();
  at = (gridDim.x - 1 - blockIdx.x) * size;
  for (int i = at + threadIdx.x; i < at + size; i += blockDim.x) {
    int row = i / cols, col = i % cols;
    out[row % 32 * 16 + row / 32 * 4 + col] = staged[i];
  }
}
"""

# Right


def test_a_card_of_our_own_kernel_passes(folder: Path):
    result = judged()
    assert (result.verdict, result.reason) == (Verdict.PASS, "")
    assert result.bytes_compared == 3 * 128 * 8 and result.oracles == ("numpy", "torch")
    assert result.targets == ("sm_100a",) and result.subject.startswith("card.yaml (source ")
    assert len(result.launched) == 1 and result.launched[0].startswith("sm_100a _Z7swizzle")


@pytest.mark.parametrize(
    "launches",
    [
        launch("by_struct", f"struct: [array: scale_inv, pad: 4, i32: '{PADDED[0]}']", "array: swizzled_scale_inv",
               f"i32: {PADDED[1]}"),
        launch("by_struct", f"struct: [array: scale_inv, i16: 7, i32: '{PADDED[0]}']", "array: swizzled_scale_inv",
               f"i32: {PADDED[1]}"),
        launch("by_table", "pointers: [scale_inv, swizzled_scale_inv]", f"i32: {PADDED[0]}", f"i32: {PADDED[1]}"),
        launch("by_template<128>", "array: scale_inv", "array: swizzled_scale_inv", f"i32: {PADDED[0]}",
               f"i32: {PADDED[1]}"),
    ],
)  # fmt: skip
def test_structs_tables_of_pointers_and_templates(folder: Path, launches: str):
    own(folder, launches)
    assert judged().verdict is Verdict.PASS, judged().story


def cooperates(folder: Path, grid: str, cooperative: str) -> None:
    (folder / "own.cu").write_text(COOPERATIVE)
    given = "array: scale_inv", "array: swizzled_scale_inv", "array: staged", "i32: (cols // 16 + 3) // 4 * 4"
    launches = launch("k", *given).replace("block", f"grid: {grid}\n    cooperative: {cooperative}\n    block")
    own(folder, launches, "workspace: {staged: 512}\n")


@pytest.mark.skipif(not folder_with("cooperative_groups.h"), reason="no CUDA toolkit")
@pytest.mark.parametrize(
    ("grid", "cooperative", "verdict", "sentence"),
    [
        ("8", "true", Verdict.PASS, ""),
        ("8", "false", Verdict.LAUNCH_ERROR, "it synchronises its grid, as by grid.sync(), and its launch is not coop"),
        ("200000", "true", Verdict.SETUP_ERROR, "card.yaml:5: k: a cooperative launch of 200,000 CTAs of 128 threads "
                                                "is too large: a GPU of sm_100a holds at most 2,560 at once"),
    ],
)  # fmt: skip
def test_a_grid_is_synchronised_in_a_cooperative_launch(folder: Path, grid, cooperative, verdict, sentence):
    cooperates(folder, grid, cooperative)
    result = judged("swizzle/default/16x16/normal/eager" if verdict is Verdict.PASS else CASE)
    assert result.verdict is verdict and sentence in result.reason, result.reason


def constants_of(folder: Path, old: str = "", new: str = "", source: str = SET_BY_HOST) -> None:
    """A card whose kernel reads constants. old, new: what is replaced in their YAML"""
    assert CONSTANTS.count(old) == 1 or not old
    (folder / "own.cu").write_text(source)
    own(folder, launch("k", "array: swizzled_scale_inv"), CONSTANTS.replace(old, new) if old else CONSTANTS)


def test_constants_are_set_as_by_a_host(folder: Path):
    constants_of(folder)
    for case in (CASE, "swizzle/default/128x256/normal/eager"):
        result = judged(case)
        assert result.verdict is Verdict.PASS, result.story
        assert not any("read zeros" in note for note in result.notes)


@pytest.mark.gpu
def test_a_gpu_sets_constants_and_synchronises_a_grid_too(folder: Path):
    from harness.device.cuda import CudaDevice

    gpu = CudaDevice()
    constants_of(folder)
    for case in (CASE, "swizzle/default/128x128/normal/graph", "swizzle/default/128x256/normal/eager"):
        assert judged(case, gpu).verdict is Verdict.PASS
    constants_of(folder, source=SET_BY_HOST.replace("// the end", "__syncthreads(); if (!threadIdx.x) moved = 5;"))
    assert "'moved', set at card.yaml:7, has changed" in judged(CASE, gpu).reason
    constants_of(folder, "moved: {i32: 0}", "moved: {i32: 1}")
    assert judged(CASE, gpu).verdict is Verdict.MISMATCH
    if folder_with("cooperative_groups.h"):
        cooperates(folder, "8", "true")
        assert judged("swizzle/default/16x16/normal/eager", gpu).verdict is Verdict.PASS
        cooperates(folder, "200000", "true")
        wanted = Verdict.SETUP_ERROR, "card.yaml:5: CUDA refuses the launch: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"
        result = judged(CASE, gpu)
        assert (result.verdict, result.reason) == wanted


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [("f32: 3.5", "f32: 4", Verdict.MISMATCH), ("moved: {i32: 0}", "moved: {u32: 1}", Verdict.MISMATCH),
     ("moved: {i32: 0}", "moved: {i32: '9' }", Verdict.MISMATCH), ("[4,", "[3,", Verdict.UNWRITTEN)],
)  # fmt: skip
def test_other_constants_give_other_bytes(folder: Path, old: str, new: str, verdict: Verdict):
    constants_of(folder, old, new)
    assert judged().verdict is verdict


def test_a_variable_that_is_set_and_then_written_is_told(folder: Path):
    constants_of(folder, source=SET_BY_HOST.replace("// the end", "__syncthreads(); if (!threadIdx.x) moved = 5;"))
    result = judged()
    assert "'moved', set at card.yaml:7, has changed after the last launch" in result.reason, result.reason
    assert result.verdict is Verdict.OUT_OF_BOUNDS


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("shape:", "shapes:", "5: own.cu has no variable 'shapes'; did you mean 'shape'?"),
        ('"*cols*"', '"*"', "4: own.cu has 4 variables that '*' fits: "),
        ("moved: {i32: 0}", "moved: {i32: [0, 1]}", "7: 'moved' is i32 of 8 bytes, and the PTX declares 4 bytes"),
        ("moved: {i32: 0}", "moved: {f32: 0}", "7: 'moved' is f32, and the PTX declares .u32"),
        ("moved: {i32: 0}", "moved: 0", "7: '0' has no type; a constant reads `moved: {f32: 2.5}`"),
        ("moved: {i32: 0}", "moved: [0]", "7: '[0]' has no type; a constant reads `moved: {f32: 2.5}`"),
        ("moved: {i32: 0}", "moved: {i32: []}", "7: "),
        ("moved: {i32: 0}", "moved: {i32: [true]}", "7: "),
        ("moved: {i32: 0}", "moved: {i32: 1.5}", "7: "),
        ("moved: {i32: 0}", "moved: {i33: 0}", "7: unknown key 'i33'"),
        ("moved: {i32: 0}", "moved: {i32: 0, f32: 1}", "7: constants.moved: an argument has one of"),
        ("moved: {i32: 0}", "moved: {i32: row}", "7: a size knows no 'row'; did you mean 'rows'?"),
        ("f32: 3.5", "f32: 3.5, pad: 4", "5: 'shape' is a struct of 16 bytes, and the PTX declares 12 bytes of .b8"),
        ("array: scale_inv", "array: scale", "6: there is no array 'scale' in swizzle/"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_constant_is_one_sentence(folder: Path, old: str, new: str, sentence: str):
    constants_of(folder, old, new)
    with pytest.raises(UsageError) as refused:
        read_card("card.yaml").check([find_case(CASE)])
    assert str(refused.value).startswith(f"card.yaml:{sentence}"), refused.value


def test_a_number_that_does_not_fit_its_constant_is_the_card_s_mistake(folder: Path):
    constants_of(folder, "moved: {i32: 0}", "moved: {u32: -1}")
    result = judged()
    assert result.verdict is Verdict.SETUP_ERROR
    assert result.reason == "card.yaml:7: -1 does not fit an argument of type u32"


def test_several_launches_that_share_a_workspace(folder: Path):
    size = f"{PADDED[0]} * ({PADDED[1]})"
    copied = launch("copy", "array: scale_inv", "array: mine", f"i32: {size}")
    tiled = launch("by_template<128>", "array: mine", "array: swizzled_scale_inv", *(f"i32: {each}" for each in PADDED))
    own(folder, copied + tiled, f"workspace: {{mine: '{size}'}}\n")
    assert judged().verdict is Verdict.PASS, judged().story
    own(folder, tiled + copied, f"workspace: {{mine: '{size}'}}\n")
    result = judged()
    assert result.verdict is Verdict.UNWRITTEN and "reads 1 bytes" in result.reason and "own.cu:" in result.reason


def test_an_array_that_is_set_to_zero_first(folder: Path):
    size = f"{PADDED[0]} * ({PADDED[1]})"
    added = launch("add", "array: scale_inv", "array: mine", f"i32: {size}")
    tiled = launch("by_template<128>", "array: mine", "array: swizzled_scale_inv", *(f"i32: {each}" for each in PADDED))
    own(folder, "  - zero: mine\n" + added + tiled, f"workspace: {{mine: '{size}'}}\n")
    assert judged().verdict is Verdict.PASS, judged().story
    own(folder, added + tiled, f"workspace: {{mine: '{size}'}}\n")
    assert judged().verdict is Verdict.UNWRITTEN


# What a card declares


def test_scales_in_tiles_are_expected_in_tiles(folder: Path):
    size = f"{PADDED[0]} * ({PADDED[1]})"
    copied = launch("copy", "array: scale_inv", "array: swizzled_scale_inv", f"i32: {size}")
    own(folder, copied)
    assert judged().verdict is Verdict.MISMATCH
    own(folder, copied, "arrays: {swizzled_scale_inv: {layout: compact}}\n")
    assert judged().verdict is Verdict.PASS, judged().story


def test_padding_that_is_not_there_is_told(folder: Path):
    own(folder, launch("copy", "array: swizzled_scale_inv", "array: scale_inv", "i32: 1"),
        "arrays: {scale_inv: {padding: absent}}\n")  # fmt: skip
    result = judged(COMPACT)
    assert result.verdict is Verdict.UNWRITTEN and "239 of 240 bytes" in result.reason


def test_an_output_that_is_given_is_told(folder: Path):
    own(folder, "  - zero: rowwise_data\n", "given: [rowwise_amax, rowwise_scale_inv]\n", "per_tensor")
    card = read_card("card.yaml")
    with pytest.raises(UsageError, match="no launch takes the output"):
        card.check([find_case(PER_TENSOR)])


def test_cases_of_other_flags_are_excluded(folder: Path):
    assert judged().verdict is Verdict.PASS
    result = verify_card(find_case(COMPACT), with_card(EmulatorDevice(), read_card("card.yaml")))
    assert (result.verdict, result.reason) == (Verdict.EXCLUDED, "the card is for to=swizzled")


# Wrong cards


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        ("      - i32: cols\n", "", f"card.yaml:8: '{ENTRY}' takes 4 arguments, and 3 are given; it takes a pointer, a "
         "pointer, .u32, .u32"),
        ("i32: rows", "f32: rows", f"card.yaml:11: argument 3 of '{ENTRY}' is f32, and the kernel takes .u32 there"),
        ("i32: rows", "i64: rows", f"card.yaml:11: argument 3 of '{ENTRY}' is i64, and the kernel takes .u32 of 4"),
        ("array: scale_inv", "u64: rows", f"card.yaml:9: argument 1 of '{ENTRY}' is u64, and the kernel takes a "),
        ("i32: rows", "array: scale_inv", f"card.yaml:11: argument 3 of '{ENTRY}' is an array"),
        ("array: scale_inv", "array: scale", "card.yaml:9: there is no array 'scale' in"),
        ("i32: rows", "i32: row", "card.yaml:11: a size knows no 'row'; did you mean 'rows'?"),
        ("i32: rows", "int: rows", "card.yaml:11: unknown key 'int'"),
        ("i32: rows", "{i32: rows, u32: rows}", "it has i32 and u32"),
        (f"kernel: {ENTRY}", "kernel: swizzle", "card.yaml:5: swizzle.ptx has no entry 'swizzle'"),
        ("block: 64", "blocks: 64", "card.yaml:7: unknown key 'blocks'; did you mean 'block'?"),
        ("recipe: swizzle", "recipe: swizle", "card.yaml:2: there is no recipe 'swizle'; did you mean 'swizzle'?"),
        ("to: swizzled", "to: tiles", "card.yaml:3: to has no value 'tiles'"),
        ("to: swizzled", "too: swizzled", "card.yaml:3: swizzle has no flag 'too'; did you mean 'to'?"),
        ("swizzle.ptx", "nosuch.ptx", "card.yaml:1: nosuch.ptx: there is no such file"),
        ("swizzle.ptx", "card.yaml", "card.yaml:1: card.yaml: code is a .ptx, a .cubin or a .cu file"),
        ("recipe: swizzle", "recipe: per_tensor", "card.yaml:3: per_tensor has no flag 'direction'"),
        ("array: swizzled_scale_inv", "array: scale_inv", "no launch takes the output 'swizzled_scale_inv' of"),
        ("code:", "conventions: [rounding]\ncode:", "card.yaml:1: conventions"),
        ("code:", "arrays: {scale: {layout: compact}}\ncode:", "card.yaml:1: swizzle has no array 'scale'"),
        ("block: 64", "block: [1, 1, 1, 1]", "card.yaml:7: launches.block"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_card_is_one_sentence(folder: Path, old: str, new: str, sentence: str):
    assert CARD.count(old) >= 1
    (folder / "card.yaml").write_text(CARD.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        judged()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


NONE = "card.yaml:2: none of the 1 selected cases "


@pytest.mark.parametrize(
    ("case", "more", "sentence"),
    [
        (PER_TENSOR, "", "is of swizzle; name the recipe of the card, as in `harness verify swizzle`"),
        (
            COMPACT,
            "",
            "is one of this card: the card is for to=swizzled; without --case and -k the cases of a set take",
        ),
        (CASE, "multiple_of: {cols: 112}", "is one of this card: the card is for cols that are multiples of 112; "),
        (CASE, "most_elements: 100", "is one of this card: the card is for at most 100 elements; "),
    ],
)
def test_no_case_of_the_card_is_selected(folder: Path, case: str, more: str, sentence: str):
    (folder / "card.yaml").write_text(CARD.replace("launches:", f"{more}\nlaunches:"))
    with pytest.raises(UsageError) as caught:
        read_card("card.yaml").check([find_case(case)])
    assert str(caught.value).startswith(NONE + sentence)


@pytest.mark.slow
def test_a_shard_without_a_case_of_the_card_is_merged_with_the_others(folder: Path):
    for number in (1, 2):
        words = (
            "verify",
            "swizzle",
            "--subject",
            "card.yaml",
            "--case",
            CASE,
            "--case",
            COMPACT,
            "--device",
            "emulator",
        )
        run = subprocess.run(
            [sys.executable, "-m", "harness", *words, "--shard", f"{number}/2", "--run-dir", str(number)], check=False
        )
        assert run.returncode in (Exit.CLEAN, Exit.NO_DEVICE)
    done = subprocess.run([sys.executable, "-m", "harness", "merge", "1", "2", "--into", "all"], check=False)
    assert done.returncode == Exit.CLEAN
    assert {record["verdict"] for record in read_run(folder / "all").records} == {Verdict.PASS, Verdict.EXCLUDED}


# Wrong launches


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        (f"kernel: {ENTRY}", "kernel: copi", "card.yaml:5: own.cu has no kernel 'copi'; did you mean 'copy'?"),
        (f"kernel: {ENTRY}", "kernel: 'c*'", "card.yaml:5: own.cu has no kernel 'c*'; choose "),
        (f"kernel: {ENTRY}", "kernel: copy<1>", "card.yaml:5: own.cu has no kernel 'copy<1>': "),
        ("own.cu", "nosuch.cu", "card.yaml:1: nosuch.cu: there is no such file"),
        ("own.cu", "own.cu\narch: sm_1", "card.yaml:1: own.cu: NVRTC refused it for sm_1: "),
        (
            CARD.replace("swizzle.ptx", "own.cu"),
            "# nothing\n",
            "card.yaml:1: the file is empty; it starts with `code:`",
        ),
    ],
)
def test_a_card_of_a_cu_that_cannot_be_read_is_one_sentence_with_one_place(folder: Path, old: str, new: str, sentence):
    text = CARD.replace("swizzle.ptx", "own.cu")
    assert text.count(old) == 1
    (folder / "card.yaml").write_text(text.replace(old, new))
    with pytest.raises(UsageError) as refused:
        read_card("card.yaml").check([find_case(CASE)])
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    "old, new, verdict, sentence",
    [
        ("array: scale_inv\n      - array: swizzled_scale_inv", "array: swizzled_scale_inv\n      - array: scale_inv",
         Verdict.UNWRITTEN, "swizzled_scale_inv"),
        ('["(cols', "[0, 1] # ", Verdict.SETUP_ERROR, "card.yaml:5: "),
        ("block: 64", "block: 512", Verdict.SETUP_ERROR, "a block of (512, 1, 1) threads, where 1 to 64 are"),
        ("block: 64", "block: 16", Verdict.UNWRITTEN, "were never written"),
        ("i32: rows", "i32: 300", Verdict.OUT_OF_BOUNDS, "buffer 'scale_inv'"),
        ("i32: rows", "i32: rows * 1000000000", Verdict.SETUP_ERROR, "does not fit an argument of type i32"),
        ("block: 64", "block: 64\n    shared: 300000", Verdict.SETUP_ERROR, "bytes of shared memory"),
        ("block: 64", "block: 64\n    cluster: 3", Verdict.SETUP_ERROR, "clusters of (3, 1, 1)"),
    ],
)  # fmt: skip
def test_a_wrong_launch_names_what_is_wrong(folder: Path, old: str, new: str, verdict: Verdict, sentence: str):
    assert CARD.count(old) == 1
    (folder / "card.yaml").write_text(CARD.replace(old, new))
    result = judged()
    assert (result.verdict, sentence in result.reason) == (verdict, True), result.reason
    assert "\n" not in result.reason


@pytest.mark.parametrize(("outputs", "verdict"), [("rowwise", Verdict.PASS), ("both", Verdict.UNWRITTEN)])
def test_a_launch_without_blocks_is_left_out_of_a_case_without_elements(folder: Path, outputs: str, verdict: Verdict):
    names = [f"{side}_{kind}" for side in ("rowwise", "columnwise") for kind in ("data", "scale_inv", "amax")]
    pointers = ", ".join(names[: 3 if outputs == "rowwise" else 6])
    table = launch("by_table", f"pointers: [{pointers}]", "i32: rows", "i32: cols")
    own(folder, f"{table}    grid: (rows + 63) // 64\n", recipe="row_scaled")
    result = judged(f"row_scaled/outputs={outputs}/0x80/normal/eager")
    assert result.verdict is verdict, result.reason  # columnwise, there is an amax of 0 for every column


@pytest.mark.parametrize(
    "old, new, verdict",
    [
        ("{%r179, %r185,", "{%r185, %r179,", Verdict.MISMATCH),
        ("\tst.global.v4.u32", "\t//", Verdict.UNWRITTEN),
        ("[%rd6+512]", "[%rd6+51200]", Verdict.OUT_OF_BOUNDS),
    ],
)
def test_a_changed_instruction_gets_its_screen(folder: Path, ptx: str, old: str, new: str, verdict: Verdict):
    assert old in ptx
    (folder / "swizzle.ptx").write_text(ptx.replace(old, new))
    result = judged()
    assert result.verdict is verdict, result.reason
    *_, again = screen(result, Asked.here("card.yaml")).splitlines()
    assert again.startswith("reproduce ") and again.endswith(f" verify swizzle --subject card.yaml --case '{CASE}'")
    assert " trace " not in screen(result, Asked.here("card.yaml"))
    assert (
        verdict is not Verdict.MISMATCH
        or "right bytes in other places" in result.story
        or "wrong place" in result.story
    )


@pytest.mark.parametrize("lines", [True, False])
def test_a_race_names_the_line_of_the_source_or_of_the_ptx(folder: Path, lines: bool):
    own(folder, launch("shuffle", "array: scale_inv", "array: swizzled_scale_inv", "i32: 1024"))
    if not lines:
        text = re.sub(r"^\s*\.loc[^\n]*$", "", read_card("card.yaml").code.ptx, flags=re.MULTILINE)
        (folder / "own.ptx").write_text(text)
        (folder / "card.yaml").write_text((folder / "card.yaml").read_text().replace("own.cu", "own.ptx"))
    result = judged()
    assert result.verdict is Verdict.NONDETERMINISTIC
    if lines:
        staged = next(n for n, line in enumerate(SOURCE.splitlines(), 1) if "127 - threadIdx" in line)
        assert f"race at own.cu:{staged}: reads 1 " in result.reason
    else:
        found = re.search(r"race at own\.ptx:(\d+): reads .* at own\.ptx:(\d+)", result.reason)
        assert found, result.reason
        ptx_lines = (folder / "own.ptx").read_text().splitlines()
        assert "ld.shared" in ptx_lines[int(found[1]) - 1] and "st.shared" in ptx_lines[int(found[2]) - 1]


def test_a_last_launch_that_waits_for_nobody_may_end_before_the_one_ahead(folder: Path):
    size = f"{PADDED[0]} * ({PADDED[1]})"
    tiled = launch("by_template<128>", "array: scale_inv", "array: swizzled_scale_inv", *(f"i32: {n}" for n in PADDED))
    copied = launch("copy", "array: scale_inv", "array: mine", f"i32: {size}")
    workspace = f"workspace: {{mine: '{size}'}}\n"
    own(folder, tiled + copied, workspace)
    assert judged().verdict is Verdict.PASS
    own(folder, tiled + copied.replace("block: 128", "block: 128\n    early: true"), workspace)
    result = judged()
    assert "in launch 1 (by_template<128>), which may not have ended when launch 2 has" in result.reason
    assert result.reason.startswith("race at own.cu:")


@pytest.mark.parametrize("shows", [0, 1])
def test_what_depends_on_an_approximate_instruction_names_it(folder: Path, shows: int):
    sizes = [f"i32: {each}" for each in PADDED]
    own(folder, launch("approximates", "array: scale_inv", "array: swizzled_scale_inv", *sizes, f"i32: {shows}"))
    result = judged()
    if not shows:
        assert result.verdict is Verdict.PASS, result.story
        return
    line = next(n for n, line in enumerate(SOURCE.splitlines(), 1) if "ex2.approx" in line)
    cause = f"approximate instruction: PTX leaves the last bits of ex2.approx.f32 at own.cu:{line} open"
    assert result.verdict is Verdict.NONDETERMINISTIC
    assert (
        f"runs on the same input differ in swizzled_scale_inv, because of an {cause}; with the nearest" in result.reason
    )
    assert f"cause     {cause}\nnearest   with the nearest value in every order" in result.story
    assert (result.second_opinion["differing"], result.second_opinion["alike"]) == (0, True)


def test_what_the_emulator_lacks_is_named(folder: Path, ptx: str):
    (folder / "swizzle.ptx").write_text(ptx.replace("ld.param.u64", "nosuch.instruction.u64", 1))
    result = judged()
    assert result.verdict is Verdict.NOT_EMULATED
    assert "card.yaml:5: not emulated: nosuch.instruction.u64 at swizzle.cu:" in result.reason
    (folder / "swizzle.ptx").write_text(ptx.replace("\tld.param.u64", "\t?", 1))
    result = judged()
    assert result.verdict is Verdict.NOT_EMULATED
    assert result.reason.startswith("swizzle.ptx: not emulated: PTX line ")


def test_a_cu_that_does_not_compile_is_the_kernel_s_and_one_without_its_option_the_card_s(folder: Path):
    (folder / "own.cu").write_text(
        "__global__ void k(const unsigned char* in, unsigned char* out) { MISSING(in, out); }\n"
    )
    text = CARD.replace("swizzle.ptx", "own.cu")
    (folder / "card.yaml").write_text(text)
    result = judged()
    assert (result.verdict, "own.cu(1): error: " in result.reason) == (Verdict.COMPILE_ERROR, True), result.reason
    assert result.verdict.exit_code is Exit.BYTES_DIFFER
    for options in ("[-I nowhere, --nosuch-option]", "[-include=nosuch.h]", "[-I, /etc]", "[-I..]", "[--time=t]"):
        (folder / "card.yaml").write_text(text.replace("own.cu", f"own.cu\noptions: {options}"))
        with pytest.raises(UsageError, match=r"^card.yaml:1: own.cu: option .* is none that a card may have; it"):
            judged()


# The draft


def test_a_draft_has_the_parameters_and_is_refused_until_it_is_filled_in(folder: Path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["card", "--from", "swizzle.ptx", "swizzle"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert text.count("array: FILL_IN") == 2 and text.count("u32: FILL_IN") == 2 and "block: [64]" in text
    (folder / "card.yaml").write_text(text)
    with pytest.raises(UsageError, match="a size knows no 'FILL_IN'"):
        judged()
    for old, new in (
        ('["FILL_IN"]', '["(cols + 255) // 256", 1]'), ("array: FILL_IN", "array: scale_inv"),
        ("array: FILL_IN", "array: swizzled_scale_inv"), ("u32: FILL_IN", "u32: rows"), ("u32: FILL_IN", "u32: cols"),
    ):  # fmt: skip
        text = text.replace(old, new, 1)
    (folder / "card.yaml").write_text(text)
    assert judged().verdict is Verdict.PASS


@pytest.mark.parametrize("place", ["swizzle.ptx", "../swizzle.ptx", "own: kernels/swizzle #1.ptx"])
def test_a_draft_on_standard_output_has_its_code_from_the_current_folder(folder: Path, place: str, monkeypatch, capsys):
    (folder / "cards").mkdir()
    monkeypatch.chdir(folder / "cards")
    Path(place).parent.mkdir(exist_ok=True)
    if not Path(place).exists():
        shutil.copy(folder / "swizzle.ptx", place)
    with pytest.raises(SystemExit):
        main(["card", "--from", place, "swizzle"])
    Path("draft.yaml").write_text(capsys.readouterr().out.replace("y: FILL_IN", "y: scale_inv").replace("FILL_IN", "1"))
    card = read_card("draft.yaml")
    assert card.file.code == place and card.code.program.entries


def test_a_draft_has_the_shapes_of_a_case_with_elements(folder: Path, capsys):
    suite = suite_of("row_scaled")
    assert not suite.cases("smoke")[0].elements
    with pytest.raises(SystemExit):
        main(["card", "--from", "swizzle.ptx", "row_scaled"])
    text = capsys.readouterr().out
    case = next(case for case in suite.cases("smoke") if case.elements)
    assert f"#   input: in, bfloat16[{case.rows}, {case.cols}] where the tensor is {case.shape}" in text


def test_a_draft_of_a_cu_has_all_its_kernels(folder: Path, capsys):
    with pytest.raises(SystemExit):
        main(["card", "--from", "own.cu"])
    text = capsys.readouterr().out
    assert [line.split()[-1] for line in text.splitlines() if "kernel:" in line] == [
        "by_struct", "by_table", "copy", "add", "shuffle", "approximates",
    ]  # fmt: skip
    assert "struct: [pad: 16]  # by_struct_param_0, 16 bytes at a multiple of 8" in text


def test_a_draft_of_a_cu_has_a_kernel_with_clusters(folder: Path, capsys):
    (folder / "other.cu").write_text("__global__ void __cluster_dims__(2, (1 + 1)) __launch_bounds__(64) k(int* x) {}")
    with pytest.raises(SystemExit):
        main(["card", "--from", "other.cu"])
    text = capsys.readouterr().out
    assert "kernel: _Z1kPi" in text and "block: [64]" in text


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--from", "card.yaml"], "card.yaml is neither a .ptx nor a .cu"),
        (["--from", "nosuch.ptx"], "nosuch.ptx: there is no such file"),
        (["--from", "swizzle.ptx", "--kernel", "other"], "swizzle.ptx has no entry 'other'"),
        (["--from", "swizzle.ptx", "swizle"], "there is no recipe 'swizle'"),
        (["--from", "swizzle.ptx", "--out", "card.yaml"], "card.yaml is there already"),
    ],
)
def test_a_draft_that_cannot_be_made(folder: Path, words: list[str], sentence: str, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["card", *words])
    assert ended.value.code == 64
    error = capsys.readouterr().err
    assert error.startswith("error: ") and sentence in error and error.count("\n") == 1
