"""`harness verify --strict`: what GPUs bear is reported of a card, of our kernels and of a function alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.device.emulator import EmulatorDevice
from harness.ground import strictness
from harness.ground.command_lines import Asked, verify_command
from harness.runner.request import Request
from harness.subjects import child, subject
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.screen import screen

CASE = "swizzle/default/48x80/normal/eager"
# Every thread stores the same value to `offset`.
SOURCE = """
extern "C" __global__ void tiles(const unsigned char* in, unsigned char* out, int rows, int cols) {
  __shared__ int across;
  across = cols / 4 * 512;  // by all
  __syncthreads();
  for (int i = threadIdx.x; i < rows * cols; i += 128) {
    int row = i / cols, col = i % cols;
    out[row / 128 * across + col / 4 * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4] = in[i];
  }
}"""
CARD = """\
code: tiles.cu
recipe: swizzle
flags: {direction: rowwise, to: swizzled}
launches:
  - kernel: tiles
    block: 128
    arguments:
      - array: scale_inv
      - array: swizzled_scale_inv
      - i32: (rows + 127) // 128 * 128
      - i32: (cols // 16 + 3) // 4 * 4
"""


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test chooses is as before at its end."""
    monkeypatch.setattr(strictness, "_CHOSEN", [])


def test_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lenient: None):
    monkeypatch.chdir(tmp_path)
    Path("tiles.cu").write_text(SOURCE)
    Path("card.yaml").write_text(CARD)
    device, case = with_card(EmulatorDevice(), read_card("card.yaml")), find_case(CASE)
    result = verify_card(case, device)
    assert result.verdict is Verdict.PASS, result.story
    strictness.use_strict()
    result = verify_card(case, device)
    assert result.verdict is Verdict.NONDETERMINISTIC and "tiles.cu:4" in result.story
    *_, again = screen(result, Asked.here("card.yaml")).splitlines()
    assert again.startswith("reproduce ") and "--strict" in again


def test_a_process_below_is_told(lenient: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "load", lambda name: subject.Subject(name, "", lambda *_: None))
    child.Service().load("mine", strict=True)
    assert strictness.strict()


def test_the_words_of_the_command_line(lenient: None, tmp_path: Path):
    assert strictness.strict_option() == [] and "--strict" not in verify_command(CASE)
    Request.of(["suites/swizzle.yaml"], tmp_path, tmp_path)
    assert not strictness.strict()
    Request.of(["suites/swizzle.yaml", "--strict-ptx"], tmp_path, tmp_path)
    assert strictness.strict() and strictness.strict_option("--strict-ptx") == ["--strict-ptx"]
    assert verify_command(CASE).endswith(f"harness verify --strict --case '{CASE}'")
