"""What is not judged of a case is said: in its record, in the last lines of a run, on its pages, after a merge."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from own_recipe import NAME, change, in_use, written

from harness.device.emulator import EmulatorDevice
from harness.records.run_folder import read_run
from harness.report.tables import write_verify
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict
from harness.verify.not_run import lines
from harness.verify.verify import verify

CASE = f"{NAME}/default/48x80/normal/eager"
CORNER = f"{NAME}/default/128x256/normal/eager"
CORNERS = "corners: # the emulator makes these cases at the end of larger tensors, too, to catch an index of 32 bits\n"
TENSORS = "  - shape: 128x256\n    tensors: [[268435584, 256], [128, 1073742080]]\n"
STEP = "  const float multiplier = "


def judged(folder: Path, case: str = CASE) -> Result:
    with in_use(folder):
        return verify(find_case(case), EmulatorDevice())


def test_what_is_new_has_corners_and_nothing_to_note(tmp_path: Path):
    result = judged(written(tmp_path), CORNER)
    assert (result.verdict, result.notes) == (Verdict.PASS, ())


def test_its_corner_finds_an_index_of_32_bits(tmp_path: Path):
    folder = written(tmp_path)
    change(folder, ".cu", "input[i64(row) * cols + col]", "input[unsigned(row) * unsigned(cols) + unsigned(col)]")
    result = judged(folder, CORNER)
    assert result.verdict is not Verdict.PASS and "as the end of 268435584x256" in result.story
    assert judged(folder).verdict is Verdict.PASS


@pytest.mark.slow
def test_a_recipe_without_corners_says_so_once(tmp_path: Path):
    folder = written(tmp_path / "own")
    change(folder, ".yaml", CORNERS + TENSORS, "")
    words = ["verify", "--recipe-dir", "own", "-k", "normal and 48x80 or ties and 16x16", "--jobs", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words, "--run-dir", "run"], cwd=tmp_path, capture_output=True, text=True
    )
    below = done.stdout.partition("journal beside it")[2]
    told = f"not judged as the end of a larger tensor: {NAME}.yaml has no `corners`"
    assert done.returncode == 0 and below.count(f"2 cases {told}") == 1, done.stdout + done.stderr
    for page in ("verify.md", "verify.html"):
        assert told.replace("`", "&#96;" if page == "verify.md" else "`") in (tmp_path / "run" / page).read_text(), page
    assert lines(read_run(tmp_path / "run").records)[0].startswith(f"2 cases {told}"), "a resumed or merged run has it"


def test_a_suite_may_say_that_larger_tensors_are_none_of_its_business(tmp_path: Path):
    folder = written(tmp_path)
    change(folder, ".yaml", CORNERS + TENSORS, "corners: []\n")
    assert judged(folder).notes == ()


def test_a_tensor_that_is_too_large_for_the_emulator_is_noted_with_its_bytes(tmp_path: Path):
    folder = written(tmp_path)
    change(folder, ".yaml", "[[268435584, 256], [128, 1073742080]]", "[[2147418112, 1024]]")
    result = judged(folder, CORNER)
    assert result.verdict is Verdict.PASS
    assert result.notes == (
        "not judged as the end of 2147418112x1024: 'input' has 4,397,912,293,376 bytes; "
        "the emulator allows 2,199,023,255,552",
    )


UNSET = "nothing sets it, as a card's `constants` could"


@pytest.mark.parametrize(
    ("declared", "read", "says"),
    [
        ("__constant__ float bias[4];", "bias[threadIdx.x & 3]", "__constant__ bias"),
        ("__device__ float bias;", "*(volatile float*)&bias", "__device__ bias"),
        ("__constant__ float bias[4] = {0, 0, 0, 1};", "bias[threadIdx.x & 1]", ""),
        ("__device__ float bias;\n__global__ void set() { bias = 1; }", "0 * *(volatile float*)&bias", ""),
        ("__constant__ float bias;", "0", ""),
    ],
    ids=["constant", "device", "given a value", "written by another kernel", "not read"],
)
def test_a_constant_that_nobody_set_is_named(tmp_path: Path, declared: str, read: str, says: str):
    folder = written(tmp_path)
    change(folder, ".cu", "// f32->e2m1", f"{declared}\n\n// f32->e2m1")
    change(folder, ".cu", STEP, f"  amax = {read};\n  if (amax > 1) return;\n{STEP}")
    line = next(n for n, text in enumerate((folder / f"{NAME}.cu").read_text().split("\n"), 1) if read in text)
    result = judged(folder)
    assert result.verdict is Verdict.PASS, result.story
    expected = (f"read zeros at {NAME}.cu:{line}, {says}: {UNSET}",) if says else ()
    assert result.notes == expected


def test_a_card_is_told_of_its_constants_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.cu").write_text(
        "__constant__ int moved;\n"
        'extern "C" __global__ void untile(const unsigned char* in, unsigned char* out, int tiles) {\n'
        "  const int t = threadIdx.x + moved, row = t % 128, at = blockIdx.x * 512 + row % 32 * 16 + row / 32 * 4;\n"
        "  for (int c = 0; c < 4; ++c) out[at + c] = in[row * tiles * 4 + blockIdx.x * 4 + c];\n}\n"
    )
    (tmp_path / "card.yaml").write_text(
        "code: own.cu\nrecipe: swizzle\nflags: {direction: rowwise, to: swizzled}\nmost_elements: 32768\n"
        "launches:\n  - kernel: untile\n    grid: (cols + 63) // 64\n    block: 128\n    arguments:\n"
        "      - array: scale_inv\n      - array: swizzled_scale_inv\n      - i32: (cols + 63) // 64\n"
    )
    card, case = read_card("card.yaml"), find_case("swizzle/default/48x80/normal/eager")
    result = verify_card(case, with_card(EmulatorDevice(), card))
    assert result.verdict is Verdict.PASS, result.story
    assert result.notes == (f"read zeros at own.cu:3, __constant__ moved: {UNSET}",)
    with (tmp_path / "card.yaml").open("a") as file:
        file.write("constants: {moved: {i32: 0}}\n")
    assert verify_card(case, with_card(EmulatorDevice(), read_card("card.yaml"))).notes == ()


def test_a_right_case_of_ours_has_no_notes_and_its_page_no_section(tmp_path: Path):
    result = verify(find_case("row_scaled/default/48x80/normal/eager"), EmulatorDevice())
    assert "notes" not in result.to_record()
    assert all("Not judged" not in path.read_text() for path in write_verify(tmp_path, [result.to_record()]))
