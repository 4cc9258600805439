"""What a function launches on the emulator runs in the judge's three orders, and what depends on them is seen."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from in_process import in_process

import harness
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import make_inputs
from harness.records.records import Finished
from harness.subjects.audit.verify import audit
from harness.subjects.card.code import read_code
from harness.subjects.device import with_subject
from harness.subjects.process import Child
from harness.subjects.subject import Subject, start
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer
from ptx_emulator.schedule import ASCENDING, Schedule

CASE = "swizzle/default/48x80/normal/eager"
BYTES = 128 * 8
# A quotient that is open: the nearest one in ascending order, and another in each of the other two.
SOURCE = """
__device__ int tiled(int row, int col, int cols) {
  return ((row / 128) * (cols / 4) + col / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
}
extern "C" __global__ void tile(const unsigned char* in, unsigned char* out, int rows, int cols, int mode) {
  float third;
  if (mode & 1) asm volatile("div.full.f32 %0, %1, %2;" : "=f"(third) : "f"(1.0f), "f"(rows > 0 ? 3.0f : 2.0f));
  else third = __fdiv_rn(1.0f, rows > 0 ? 3.0f : 2.0f);
  int more = __float_as_int(third) != 0x3eaaaaab;
  for (int i = threadIdx.x + blockIdx.x * 128; i < rows * cols; i += 256) {
    int at = tiled(i / cols, i % cols, cols);
    if (at >= 16 || !(mode & 4)) out[at] = in[i] + more + (mode >> 1 & (at == 100));
  }
  if (mode & 4 && threadIdx.x < 16) ((volatile unsigned char*)out)[threadIdx.x] = in[tiled(0, 0, cols)] + blockIdx.x;
}
"""
APPROXIMATE, WRONG, LAST_WINS = 1, 2, 4
MINE = """
import multiprocessing
import triton
import triton.language as tl
import harness
from harness.subjects.handover import tensor

TRITON_TARGET = "sm_100a"

@triton.jit
def tile(scales, tiles, columns, three, COLUMNS: tl.constexpr, RIGHT: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, COLUMNS)
    third = tl.div_rn(1.0, three) if RIGHT else 1.0 / three
    more = (third.to(tl.int32, bitcast=True) != 0x3EAAAAAB).to(tl.uint8)
    place = row // 128 * 128 * columns + column // 4 * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
    tl.store(tiles + place, tl.load(scales + row * columns + column) + more)

def run(inputs, outputs, right):
    scales, tiles = tensor(inputs["scale_inv"]), tensor(outputs["swizzled_scale_inv"])
    rows, columns = scales.shape
    tile[(rows,)](scales, tiles, columns, 3.0, columns, right)

def divides(case, inputs, outputs):
    run(inputs, outputs, False)

def right(case, inputs, outputs):
    run(inputs, outputs, True)

def opens(case, inputs, outputs):
    with harness.triton_on("sm_100a"):
        run(inputs, outputs, False)

def seeds(case, inputs, outputs):
    with harness.triton_on("sm_100a", seed=3):
        run(inputs, outputs, False)

def seeds_right(case, inputs, outputs):
    with harness.triton_on("sm_100a", seed=3):
        run(inputs, outputs, True)
"""
_ptx = ""
LINE = next(number for number, line in enumerate(MINE.splitlines(), 1) if "1.0 / three" in line)


def ptx_of(path: Path) -> str:
    return read_code(path, path.name, ["tile"], "sm_100a", ()).ptx


@cache
def module(text: str) -> Module:
    return Module(text)


@pytest.fixture(scope="module", autouse=True)
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PTX of SOURCE."""
    global _ptx
    path = tmp_path_factory.mktemp("orders") / "own.cu"
    path.write_text(SOURCE)
    _ptx = ptx_of(path)
    return _ptx


def tiles(inputs, outputs, mode: int, schedule: Schedule = ASCENDING) -> None:
    """Launch on the emulator as a function may."""
    scales, out = inputs["scale_inv"], outputs["swizzled_scale_inv"]
    rows, cols = scales.shape
    given = Buffer("scales", scales.reshape(-1).view(np.uint8).copy(), writable=False)
    written = Buffer("tiles", out.reshape(-1).view(np.uint8))
    launch(module(_ptx), "tile", (2, 1, 1), (128, 1, 1), [given, written, rows, cols, mode], schedule=schedule)


def judged(quantize: Callable, case: str = CASE) -> Result:
    return audit(find_case(case), with_subject(EmulatorDevice(), in_process(Subject("mine:f", "source 0", quantize))))


def test_a_function_that_launches_on_the_emulator():
    right = judged(lambda case, inputs, outputs: tiles(inputs, outputs, 0))
    assert right.verdict is Verdict.PASS, right.reason
    result = judged(lambda case, inputs, outputs: tiles(inputs, outputs, APPROXIMATE))
    line = next(number for number, text in enumerate(SOURCE.splitlines(), 1) if "div.full" in text)
    cause = f"approximate instruction: PTX leaves the last bits of div.full.f32 at own.cu:{line} open"
    nearest = (
        "with the nearest value in every order (ascending, descending, drawn), 0 of 1,024 bytes differ: "
        "only those bits are at issue"
    )
    assert (result.verdict, result.offence) == (Verdict.NONDETERMINISTIC, "")
    assert result.reason.endswith(f"because of an {cause}; {nearest}")
    assert f"cause     {cause}\nnearest   {nearest}" in result.story


def in_a_thread(inputs, outputs, mode: int) -> None:
    thread = threading.Thread(target=tiles, args=(inputs, outputs, mode))
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "way", [partial(tiles, schedule=Schedule(seed=5)), partial(tiles, schedule=Schedule(nearest=True)), in_a_thread]
)
def test_a_function_cannot_choose_the_order(way: Callable):
    assert judged(lambda case, inputs, outputs: way(inputs, outputs, mode=0)).verdict is Verdict.PASS
    result = judged(lambda case, inputs, outputs: way(inputs, outputs, mode=APPROXIMATE))
    assert result.verdict is Verdict.NONDETERMINISTIC and "div.full.f32 at own.cu:" in result.reason


@pytest.mark.parametrize("mode, differing, alike", [(WRONG, 1, True), (LAST_WINS, 16, False)])
def test_a_second_opinion_counts_what_is_wrong_beside_the_approximation(mode: int, differing: int, alike: bool):
    result = judged(lambda case, inputs, outputs: tiles(inputs, outputs, APPROXIMATE | mode))
    assert (result.verdict, result.offence) == (Verdict.NONDETERMINISTIC, "")
    opinion = result.second_opinion
    assert opinion["orders"] == ["ascending", "descending", "drawn"] and opinion["bytes"] == BYTES
    assert opinion["alike"] is alike
    assert opinion["differing"] == differing if alike else 0 < opinion["differing"] <= differing
    assert ("the runs still differ" in result.reason) is not alike
    record = result.to_record()
    Finished.model_validate(record)
    assert Result.from_record(record) == result


def test_no_second_opinion_without_an_approximation():
    result = judged(lambda case, inputs, outputs: tiles(inputs, outputs, LAST_WINS))
    assert (result.verdict, result.offence, result.second_opinion) == (Verdict.NONDETERMINISTIC, "", {})
    assert result.reason == "host: runs on the same input differ in swizzled_scale_inv"
    wrong = judged(lambda case, inputs, outputs: tiles(inputs, outputs, WRONG))
    assert (wrong.verdict, wrong.offence, wrong.second_opinion) == (Verdict.MISMATCH, "", {})
    assert "second_opinion" not in wrong.to_record()


def test_an_approximation_that_shows_on_other_data_only():
    own = make_inputs(find_case(CASE))["scale_inv"]

    def quantize(case, inputs, outputs, mode: int) -> None:
        tiles(inputs, outputs, 0 if np.array_equal(inputs["scale_inv"], own) else mode)

    assert judged(partial(quantize, mode=0)).verdict is Verdict.PASS
    result = judged(partial(quantize, mode=APPROXIMATE))
    assert result.verdict is Verdict.NONDETERMINISTIC and "div.full.f32 at own.cu:" in result.reason
    assert result.reason.endswith(
        "only those bits are at issue on a second input with a smaller amax at the same addresses"
    )
    assert result.second_opinion["differing"] == 0
    plain = judged(partial(quantize, mode=WRONG))
    assert plain.verdict is Verdict.MISMATCH and plain.reason.endswith(
        "on a second input with a smaller amax at the same addresses"
    )


def test_what_fails_by_the_call_is_still_an_offence():
    calls = []

    def quantize(case, inputs, outputs) -> None:
        calls.append(case)
        tiles(inputs, outputs, 0)
        if len(calls) == 1:
            outputs["swizzled_scale_inv"][...] = 0

    assert judged(quantize).offence == "asleep_at_first"


def test_a_forked_process_that_lives_from_call_to_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str):
    """It was forked before the first call."""
    (tmp_path / "forks.py").write_text(FORKS.replace("PTX", repr(source)))
    monkeypatch.chdir(tmp_path)
    assert _in_a_process("forks:right").verdict is Verdict.PASS
    result = _in_a_process("forks:divides")
    assert result.verdict is Verdict.NONDETERMINISTIC and "div.full.f32 at own.cu:" in result.reason


FORKS = """
import multiprocessing
import numpy as np
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

def work(scales, mode):
    out = np.zeros(scales.size, np.uint8)
    given = [Buffer("scales", scales.reshape(-1).copy(), writable=False), Buffer("tiles", out)]
    launch(Module(PTX), "tile", (2, 1, 1), (128, 1, 1), [*given, *scales.shape, mode])
    return out

POOL = multiprocessing.get_context("fork").Pool(1)

def divides(case, inputs, outputs, mode=1):
    scales = np.array(inputs["scale_inv"]).view(np.uint8)
    outputs["swizzled_scale_inv"].reshape(-1).view(np.uint8)[...] = POOL.apply(work, (scales, mode))

def right(case, inputs, outputs):
    divides(case, inputs, outputs, 0)
"""


def _in_a_process(name: str) -> Result:
    child = Child(name)
    try:
        return audit(find_case(CASE), with_subject(EmulatorDevice(), start(name, child)))
    finally:
        child.end()


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("triton", "3.6", reason="Triton 3.6 or newer is not installed; the extra [triton] has it")
    (tmp_path / "tiling.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tiling", raising=False)
    import tiling

    yield tiling
    del sys.modules["tiling"]


@pytest.mark.parametrize("name, target, right", [
    ("divides", "sm_100a", False), ("right", "sm_100a", True), ("opens", "", False), ("opens", "sm_90a", False),
    ("seeds", "", False), ("seeds_right", "", True),
])  # fmt: skip
def test_triton(mine, name: str, target: str, right: bool):
    subject = Subject("mine:f", "source 0", getattr(mine, name), triton_target=target)
    result = audit(find_case(CASE), with_subject(EmulatorDevice(), in_process(subject)))
    assert result.verdict is (Verdict.PASS if right else Verdict.NONDETERMINISTIC), result.reason
    if not right:
        assert result.offence == ""
        assert f"PTX leaves the last bits of div.full.f32 at tiling.py:{LINE} open" in result.reason
        assert result.second_opinion["differing"] == 0 and result.second_opinion["alike"]


def test_outside_of_a_judge_a_block_has_the_order_that_it_asks_for(mine):
    found = {}
    inputs = make_inputs(find_case(CASE))
    for seed in (None, 3):
        outputs = {"swizzled_scale_inv": np.zeros(inputs["scale_inv"].shape, np.uint8)}
        with harness.triton_on("sm_100a", seed=seed):
            mine.run(inputs, outputs, False)
        found[seed] = outputs["swizzled_scale_inv"].tobytes()
    assert found[None] != found[3]
