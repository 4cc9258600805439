"""A card whose kernel has an index of 32 bits is found at the end of a larger tensor, and a right one never is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.contract.field import Field
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import make_inputs
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.suite.suite import find_case, suite_of
from harness.verdict import Result, Verdict
from harness.verify.corner import control, inputs_around
from harness.verify.not_run import keep_note, lines, take_notes

CASE = "swizzle/default/128x256/normal/eager"
ROWS, COLS = "268435584x256", "128x1073742080"
SOURCE = """
__device__ void tile(const unsigned char* in, unsigned char* out, size_t down, size_t across, size_t tiles) {
  in += (down * 128 + threadIdx.x) * (4 * tiles) + across * 4;
  out += (down * tiles + across) * 512 + threadIdx.x % 32 * 16 + threadIdx.x / 32 * 4;
  for (int c = 0; c < 4; ++c) out[c] = in[c];
}
extern "C" __global__ void right(const unsigned char* in, unsigned char* out, int tiles) {
  tile(in, out, blockIdx.y + blockIdx.z * size_t(gridDim.y), blockIdx.x, tiles);
}
extern "C" __global__ void linear(const unsigned char* in, unsigned char* out, int tiles) {
  tile(in, out, blockIdx.x / tiles, blockIdx.x % tiles, tiles);
}
extern "C" __global__ void loops(const unsigned char* in, unsigned char* out, int tiles) {
  for (int across = blockIdx.x; across < tiles; across += gridDim.x) tile(in, out, blockIdx.y, across, tiles);
}
extern "C" __global__ void rows(const unsigned char* in, unsigned char* out, int tiles) {
  int row = blockIdx.x / tiles * 128 + threadIdx.x, first = row * 4 * tiles;
  out += blockIdx.x * size_t(512) + threadIdx.x % 32 * 16 + threadIdx.x / 32 * 4;
  for (int c = 0; c < 4; ++c) out[c] = in[first + blockIdx.x % tiles * 4 + c];
}
extern "C" __global__ void reads(const unsigned char* in, unsigned char* out, int tiles) {
  in += int(threadIdx.x * 4 * tiles + blockIdx.x * 4);
  out += (blockIdx.y * size_t(tiles) + blockIdx.x) * 512 + threadIdx.x % 32 * 16 + threadIdx.x / 32 * 4;
  for (int c = 0; c < 4; ++c) out[c] = in[c];
}
extern "C" __global__ void writes(const unsigned char* in, unsigned char* out, int tiles) {
  in += (blockIdx.y * size_t(128) + threadIdx.x) * (4 * tiles) + blockIdx.x * 4;
  unsigned at = (blockIdx.y * tiles + blockIdx.x) * 512 + threadIdx.x % 32 * 16 + threadIdx.x / 32 * 4;
  for (int c = 0; c < 4; ++c) out[at + c] = in[c];
}
"""
Y = "(rows + 127) // 128"


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.cu").write_text(SOURCE)

    def judge(kernel: str, grid: str, more: str = "") -> Result:
        (tmp_path / "card.yaml").write_text(
            f"code: own.cu\nrecipe: swizzle\nflags: {{direction: rowwise, to: swizzled}}\n{more}launches:\n"
            f"  - kernel: {kernel}\n    grid: {grid}\n    block: 128\n    arguments:\n      - array: scale_inv\n"
            "      - array: swizzled_scale_inv\n      - i32: (cols + 63) // 64\n"
        )
        card, case = read_card("card.yaml"), find_case(CASE)
        card.check([case])
        return verify_card(case, with_card(EmulatorDevice(), card))

    return judge


def test_a_right_card_passes_and_all_of_it_is_judged(judged):
    grid = f"[cols // 64, 1, {Y}]"
    result = judged("right", grid)
    assert result.verdict is Verdict.PASS
    (note,) = result.notes  # z may be 65535 at most
    assert note.startswith(f"not judged as the end of {ROWS}: card.yaml:5: right: a grid of (4, 1, 2097153) blocks")


@pytest.mark.parametrize(
    ("kernel", "grid", "verdict", "shape"),
    [
        ("reads", f"[cols // 64, {Y}]", Verdict.OUT_OF_BOUNDS, COLS),
        ("writes", f"[cols // 64, {Y}]", Verdict.MISMATCH, COLS),
        ("rows", f"cols // 64 * ({Y})", Verdict.MISMATCH, ROWS),
    ],
)
def test_an_index_of_32_bits_is_found(judged, kernel: str, grid: str, verdict: Verdict, shape: str):
    result = judged(kernel, grid)
    assert result.verdict is verdict and f"as the end of {shape}" in result.story
    assert verdict is Verdict.OUT_OF_BOUNDS or "cause     index of 32 bits" in result.story


def test_a_card_for_smaller_tensors_is_not_judged_at_the_end_of_larger_ones(judged):
    result = judged("writes", f"[cols // 64, {Y}]", "most_elements: 2147483647\n")
    assert result.verdict is Verdict.PASS
    assert result.notes == tuple(
        f"not judged as the end of {shape}: the card is for at most 2147483647 elements" for shape in (ROWS, COLS)
    )
    judged("writes", f"[cols // 64, {Y}]", "most_elements: 32768\n")
    assert read_card("card.yaml").refuses(find_case(CASE)) == ""
    assert "at most 32768" in read_card("card.yaml").refuses(find_case("swizzle/default/144x256/normal/eager"))


def test_blocks_in_another_order_accuse_nobody(judged):
    result = judged("linear", f"cols // 64 * ({Y})")
    assert result.verdict is Verdict.PASS
    assert result.notes == (), "one row of tiles, and rows of tiles one after another, have their end at the end"


@pytest.mark.slow
def test_blocks_that_loop_over_the_tensor_accuse_nobody(judged):
    result = judged("loops", f"[2, {Y}]")
    assert result.verdict is Verdict.PASS
    assert [note.partition(":")[0].partition(" as ")[2] for note in result.notes] == [
        f"the end of {ROWS}", f"the end of {COLS}"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("case_id", "smaller"),
    [(CASE, ["262272x256", "128x524544"]), ("swizzle_grouped/default/128x256/normal/eager", ["262272+128x256"])],
)
def test_the_control_has_the_form_of_the_larger_tensor(case_id: str, smaller: list[str]):
    case = find_case(case_id)
    larger = [replace(case, problem=problem) for problem in suite_of(case.recipe).corners(case)]
    controls = [control(case, each) for each in larger]
    assert [each.shape for each in controls] == smaller
    for each in controls:
        _, around = inputs_around(case, each, make_inputs(case))
        assert all(isinstance(field, Field) and field.nbytes < 1 << 31 for field in around.values())


def test_the_last_lines_are_few():
    notes = [f"not judged as the end of {n}x256: why" for n in (1, 1, 2, 3, 4)]
    records = [{"notes": [note]} for note in notes]
    assert lines(records)[0] == "2 cases not judged as the end of 1x256: why"
    assert lines(records)[-1] == "2 not judged as the end of other larger tensors"
    assert lines(records[:2]) == ["2 cases not judged as the end of 1x256: why"] and lines([{}]) == []
    others = [{"notes": [f"read zeros at x.cu:{n}"]} for n in range(4)]
    assert lines([*others, *records[:1]])[-2:] == [
        "1 case read zeros at x.cu:1",
        "2 with other notes, which verify.md has",
    ]
    keep_note("a case", "1x1", "two\nlines")
    assert take_notes("a case") == ("not judged as the end of 1x1: two lines",) and take_notes("a case") == ()


@pytest.mark.slow
def test_a_run_of_a_function_says_below_its_screen_what_was_not_judged(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\n\ndef swizzle(case, inputs, outputs):\n"
        "    scales, tiles = inputs['scale_inv'], outputs['swizzled_scale_inv']\n"
        "    parts = scales.reshape(scales.shape[0] // 128, 4, 32, scales.shape[1] // 4, 4)\n"
        "    tiles[...] = parts.transpose(0, 3, 2, 1, 4).reshape(tiles.shape)\n"
    )
    words = ["verify", "swizzle", "--subject", "mine:swizzle", "--case", CASE]
    said = subprocess.run(
        [sys.executable, "-m", "harness", *words, "--jobs", "0", "--run-dir", "run"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    below = said.stdout.partition("journal beside it")[2]
    assert f"1 case not judged as the end of {ROWS}: only our kernels and cards run there" in below
